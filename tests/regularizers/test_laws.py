"""Dropout by other laws: where it acts, what it draws, and what stays as it is."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch.testing import assert_close

from noisin import kernels, models, noise
from noisin._util.settings import merge
from noisin.data import Batch
from noisin.errors import InvalidType, InvalidValue
from noisin.experiments.words import has_dropout
from noisin.noise.families import FAMILIES
from noisin.regularizers import HighwayCell, Zoneout, set_dropout_law
from noisin.regularizers.sequences import Dropout, WordDropout
from noisin.tasks import Observation
from noisin.training import RunConfig
from noisin.training.build import build_model
from tests import stats

RATES = models.Dropouts(0.5, 0.3, 0.2, recurrent=0.4)
WORDS = Observation("categorical", 10)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("locked", [False, True])
def test_a_mask_is_one_plus_noise_of_the_same_variance(name: str, locked: bool) -> None:
    law = FAMILIES[name]
    drop = Dropout(0.3, locked, torch.Generator().manual_seed(3))
    set_dropout_law(drop, law)
    mask = drop.mask(torch.zeros(4, 2, 5), 6)
    shape = (1 if locked else 4, 2, 6)
    again = torch.Generator().manual_seed(3)
    eps = law.from_variance(0.3 / 0.7).sample(shape, like=torch.zeros(()), generator=again)
    assert_close(mask, (1 + eps).expand(4, 2, 6), rtol=1e-6, atol=1e-6)


def test_the_law_of_gaussian_dropout() -> None:
    drop = Dropout(0.5)
    set_dropout_law(drop, noise.Gaussian)
    x = drop(torch.ones(10, 100, 100))
    stats.assert_law(x.numpy().ravel(), lambda v: norm.cdf(v, 1, 1))
    assert torch.equal(drop.eval()(x), x)


def test_bernoulli_is_dropout_bit_for_bit() -> None:
    one, other = (models.LanguageModel(10, hidden_size=8, dropout=RATES) for _ in range(2))
    other.load_state_dict(one.state_dict())
    set_dropout_law(other, noise.Bernoulli)
    x = torch.randint(10, (6, 3))
    found = []
    for model in (one, other):
        torch.manual_seed(5)
        found.append(model.log_prob(Batch(x, x))[0])
    assert torch.equal(*found)


@pytest.mark.parametrize("cell", ["lstm", "gru", "elman-tanh"])
def test_kernels_agree(cell: str) -> None:
    """The recurrence reads a state that was multiplied by any number, not by 0 or 2 alone."""
    model = models.LanguageModel(10, hidden_size=8, cell=cell, dropout=RATES).double()
    set_dropout_law(model, noise.Laplace)
    x, found = torch.randint(10, (6, 3)), []
    for kernel in ("reference", "eager", "c"):
        with kernels.using(kernel):
            torch.manual_seed(5)
            loss = model.loss(Batch(x, x)).objective
            found.append((loss, *torch.autograd.grad(loss, [*model.parameters()])))
    for others in found[1:]:
        for ours, theirs in zip(found[0], others, strict=True):
            assert_close(ours, theirs)


def laws_of(model: torch.nn.Module) -> dict[str, Any]:
    return {
        type(module).__name__: module.mask_law
        for module in model.modules()
        if hasattr(module, "mask_law")
    }


def test_what_needs_zeros_and_ones_keeps_them() -> None:
    model = torch.nn.ModuleList(
        [
            Dropout(0.5),
            WordDropout(0.5),
            HighwayCell(3, 3, p_h=0.5),
            Zoneout(torch.nn.GRUCell(2, 2), 0.5),
        ]
    )
    set_dropout_law(model, noise.Gumbel)
    found = laws_of(model)
    assert found["Dropout"] is found["HighwayCell"] is noise.Gumbel
    assert found["WordDropout"] is found["Zoneout"] is noise.Bernoulli
    assert laws_of(copy.deepcopy(model)) == found


@pytest.mark.parametrize(
    "settings",
    [
        {"dropout": {"input": 0.5, "recurrent": 0.3, "locked": True}},
        {"cell": "melis-lstm", "dropout": {"recurrent": 0.3}},
        {"projection": {"dropout": 0.2}, "embedding_size": 6},
        {"head": {"kind": "mixture-of-softmaxes", "experts": 2, "dropout": 0.2}},
    ],
)
def test_by_settings(settings: dict[str, Any]) -> None:
    law = {"dropout": {"law": "gaussian"}, "hidden_size": 8}
    model = build_model(RunConfig.parse({"model": merge(settings, law)}), WORDS)
    changed = {k: law for k, law in laws_of(model).items() if k in ("Dropout", "MelisLSTMCell")}
    assert {*changed.values()} == {noise.Gaussian}
    x = torch.randint(10, (6, 3))
    first, second = (model.loss(Batch(x, x)).objective.item() for _ in range(2))
    assert first != second
    assert np.isfinite(first)


def test_it_is_part_of_the_identity_of_a_run() -> None:
    plain, law = RunConfig(), {"model": {"dropout": {"law": "gaussian"}}}
    assert RunConfig.parse({"model": {"dropout": {"law": "bernoulli"}}}).hash() == plain.hash()
    assert RunConfig.parse(law).hash() != plain.hash()
    assert not has_dropout(RunConfig.parse(law)), "without a rate there is none"


def test_wrong_laws() -> None:
    for wrong in (noise.Gaussian(0.5), "gaussian", torch.nn.ReLU):
        with pytest.raises(InvalidType, match="law must be a class of noise with from_variance"):
            set_dropout_law(Dropout(0.5), wrong)
    with pytest.raises(InvalidValue, match=r"model.dropout.law .*gausian"):
        RunConfig.parse({"model": {"dropout": {"law": "gausian"}}})
    with pytest.raises(InvalidType, match="model"):
        set_dropout_law(None, noise.Gaussian)
