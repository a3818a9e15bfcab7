"""The augmented loss: against its definition, its limit, and where gradients flow."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

from noisin.data import Batch
from noisin.errors import NoisinError
from noisin.models import LanguageModel
from noisin.models.mixture import MixtureOfSoftmaxes
from noisin.regularizers import augmented
from noisin.regularizers.augmented import AugmentedLoss

WORDS, H, T, N = 9, 4, 5, 3


def model(*terms: Any, **settings: Any) -> LanguageModel:
    torch.manual_seed(0)
    lm = LanguageModel(WORDS, hidden_size=H, terms=terms, **settings).double()
    with torch.no_grad():
        lm.embedding.weight.mul_(10)
        lm.bias.normal_()
    return lm


def batch(scored: bool = False) -> Batch:
    g = torch.Generator().manual_seed(1)
    words = torch.randint(WORDS, (T + 1, N), generator=g)
    return Batch(words[:-1], words[1:], torch.rand(T, N, generator=g) < 0.6 if scored else None)


def definition(lm: LanguageModel, b: Batch, tau: float, detach: bool) -> Tensor:
    L = lm.embedding.weight.detach() if detach else lm.embedding.weight
    log_y = F.log_softmax(lm(b.x)[0] / tau, -1)
    y = F.softmax(L[b.target] @ L.t() / tau, -1)
    kl = F.kl_div(log_y, y, reduction="none").sum(-1)
    return kl.mean() if b.scored is None else kl[b.scored].mean()


@pytest.mark.parametrize("scored", [False, True])
@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("detach", [True, False])
def test_it_is_its_definition(
    detach: bool, tied: bool, scored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(augmented, "CHUNK", 4)
    lm = model(AugmentedLoss(3.0, 2.0, detach), tied=tied)
    b = batch(scored)
    loss, plain = lm.loss(b), model(tied=tied).loss(b)
    assert_close(loss.mean, plain.mean)  # scores are without it
    expected = 3 * definition(lm, b, 2.0, detach)
    assert_close(loss.terms["augmented"], expected)
    assert_close(
        torch.autograd.grad(loss.terms["augmented"], list(lm.parameters()), allow_unused=True),
        torch.autograd.grad(expected, list(lm.parameters()), allow_unused=True),
    )


def test_the_limit_of_high_temperatures() -> None:
    """The gradient of the logits s tends to (s - L u) / (τ² V), up to the means over the words."""
    tau, lm, b = 1e3, model(output_bias=False), batch()
    with torch.no_grad():
        lm.bias.zero_()
    z = lm.encode(b.x)[0].detach().flatten(0, 1).requires_grad_()
    L = lm.embedding.weight.detach()
    kl = AugmentedLoss(1.0, tau)._divergence(L.t(), lm.bias, L, z, b.target.flatten())
    (found,) = torch.autograd.grad(kl.sum(), z)
    off = (z @ L.t() - L[b.target.flatten()] @ L.t()).detach()
    off -= off.mean(-1, keepdim=True)
    assert_close(found, off @ L / (tau**2 * WORDS), rtol=1e-2, atol=1e-9)


def test_it_is_zero_where_the_prediction_is_the_embedding_of_the_target() -> None:
    term, lm, b = AugmentedLoss(1.0, 5.0), model(), batch()
    L = lm.embedding.weight
    kl = term._divergence(L.t(), torch.zeros(WORDS).double(), L, L[b.target[0]], b.target[0])
    assert_close(kl, torch.zeros_like(kl))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((-1.0,), "weight must be a finite number, 0 or more"),
        ((1.0, 0.0), "temperature must be a finite number above 0"),
        ((1.0, 1.0, 1), "detach must be True or False"),
    ],
)
def test_bad_settings(arguments: Any, message: str) -> None:
    with pytest.raises(NoisinError, match=message):
        AugmentedLoss(*arguments)


def test_another_head_is_refused() -> None:
    lm = LanguageModel(WORDS, hidden_size=H, head=MixtureOfSoftmaxes, terms=[AugmentedLoss(1.0)])
    with pytest.raises(NoisinError, match="a linear head, got Words and MixtureOfSoftmaxes"):
        lm.loss(batch())
