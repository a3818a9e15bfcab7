"""Where our kernels run a layer, it computes nothing for padding; all else stays as it was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from noisin import likelihoods, noise
from noisin.data import Batch
from noisin.models import Dense, Dropout, SequenceModel, Values
from noisin.models.layers import Layer, layer
from noisin.noise.sampling import Shard, set_shard
from noisin.recurrent import kernels
from noisin.recurrent.injection import Injection
from noisin.regularizers.weights import WeightDrop
from noisin.training.predictors.base import in_rows
from tests.pairwise import table

T, N, F, H = 7, 4, 3, 5
LENGTHS = torch.tensor([3, 7, 1, 5])
REAL = torch.arange(T)[:, None] < LENGTHS
LAW = noise.Gaussian(0.5)
OPTIONS: dict[str, dict[str, Any]] = {
    "clean": {},
    "noise": {"injection": Injection(LAW)},
    "additive": {"injection": Injection(LAW, mode="additive")},
    "not fed back": {"injection": Injection(LAW, feedback=False)},
    "one draw": {"injection": Injection(LAW, share="sequence")},
    "recurrent dropout": {"injection": Injection(LAW), "dropout": Dropout(0.3)},
    "locked": {"dropout": Dropout(0.3, locked=True)},
    "zoneout": {"injection": Injection(LAW), "zoneout": (0.3, 0.0)},
    "weight drop": {"injection": Injection(LAW), "weight_drop": WeightDrop(0.3)},
}


def made(cell: str, option: str) -> Layer:
    torch.manual_seed(0)
    return layer(cell, F, H, **OPTIONS[option]).double()


def run(
    net: Layer, x: Tensor, lengths: Tensor | None, state: Any = None
) -> tuple[Tensor, Any, list[Tensor]]:
    """What is emitted, the state, and the gradients by what is not padding."""
    torch.manual_seed(1)
    x = x.clone().requires_grad_()
    with kernels.everywhere():
        z, state = net(x, state, lengths=lengths)
    real = REAL[:, : x.shape[1]]
    gradients = torch.autograd.grad(z[real].square().sum(), [x, *net.parameters()])
    return z, state, [gradients[0][real], *gradients[1:]]


def sequences() -> Tensor:
    return torch.randn(T, N, F, dtype=torch.float64, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize(
    ("cell", "option"), table(["lstm", "gru", "elman-tanh"], list(OPTIONS)), ids=str
)
def test_it_emits_what_it_would_with_the_padding(cell: str, option: str) -> None:
    """With the same noise and masks, and padding that is not a number."""
    net, x = made(cell, option), sequences()
    expected, _, gradients = run(net, x, None)
    z, _, found = run(net, x.where(REAL[..., None], torch.nan), LENGTHS)
    assert_close(z[REAL], expected[REAL])
    assert_close(found, gradients)
    assert z.shape == expected.shape


@pytest.mark.parametrize("cell", ["lstm", "gru", "elman-tanh"])
def test_the_state_is_that_of_the_last_real_step(cell: str) -> None:
    net, x = made(cell, "clean"), sequences()
    start = net(x[:2])[1]
    _, state, _ = run(net, x, LENGTHS, start)
    for n, length in enumerate(LENGTHS.tolist()):
        alone = map_rows(start, n)
        assert_close(map_rows(state, n), net(x[:length, n : n + 1], alone)[1])


def map_rows(state: Any, n: int) -> Any:
    """One sequence of a state."""
    if isinstance(state, tuple):
        return tuple(map_rows(part, n) for part in state)
    return state[:, n : n + 1].contiguous()


@pytest.mark.parametrize("option", ["noise", "one draw", "recurrent dropout", "zoneout"])
def test_processes_that_share_a_batch_draw_what_one_would(option: str) -> None:
    net, x = made("lstm", option), sequences()
    whole, _, _ = run(net, x, LENGTHS)
    for start in 0, 2:
        own = slice(start, start + 2)
        set_shard(net, Shard(start, 2, N))
        torch.manual_seed(1)
        with kernels.everywhere():
            z, _ = net(x[:, own], lengths=LENGTHS[own])
        assert_close(z[REAL[:, own]], whole[:, own][REAL[:, own]])


def test_torchs_kernel_computes_the_padding() -> None:
    """It takes longer for packed sequences than for padded ones."""
    net, x = made("lstm", "clean"), sequences()
    assert torch.equal(net(x, lengths=LENGTHS)[0], net(x)[0])


@pytest.mark.parametrize("samples", [1, 2])
def test_the_loss_of_a_padded_batch(samples: int) -> None:
    torch.manual_seed(0)
    layers = [layer("lstm", size, H, injection=Injection(LAW)) for size in (F, H)]
    net = SequenceModel(Values(F), layers, Dense(H, F, likelihoods.Bernoulli())).double()
    x = (sequences() > 0).double()
    batch, found = Batch(x, x, REAL, padded=True), []
    garbage = replace(batch, x=x.where(REAL[..., None], torch.nan))
    for given in replace(batch, padded=False), batch, garbage:
        torch.manual_seed(1)
        with kernels.everywhere():
            mean = net.loss(given, samples=samples).mean
        found.append([mean, *torch.autograd.grad(mean, list(net.parameters()))])
    assert_close(found[1], found[0])
    assert_close(found[2], found[1])


@pytest.mark.parametrize("rows", [1, 2, 3, 5])
def test_steps_that_are_not_scored_in_the_middle_are_read(rows: int) -> None:
    """Hours that are missing, at the end of a part whose state the next part continues from."""
    torch.manual_seed(0)
    model = SequenceModel(Values(F), [layer("lstm", F, H)], Dense(H, F, likelihoods.Bernoulli()))
    x = (sequences() > 0).double()
    missing = torch.rand(T, N, generator=torch.Generator().manual_seed(3)) < 0.5
    whole = Batch(x, x, REAL & ~missing, padded=True)
    parts = list(in_rows([whole], rows))
    joined = parts[0].followed_by(parts[1])
    assert [part.padded for part in (*parts, joined)] == [
        *[False] * (len(parts) - 1), True, len(parts) == 2
    ]  # fmt: skip
    with kernels.everywhere(), torch.no_grad():
        expected, state, found = model.double().log_prob(whole)[0], None, []
        for part in parts:
            log_prob, state = model.log_prob(part, state)
            found.append(log_prob)
    assert_close(torch.cat(found)[whole.scored], expected[whole.scored])


@pytest.mark.parametrize(
    ("scored", "lengths"),
    [
        ([[1, 1], [1, 0], [1, 0]], [3, 1]),
        ([[0, 1], [1, 0], [0, 0]], [2, 1]),
        ([[1, 0], [0, 0], [0, 0]], [1, 1]),  # nothing is scored, and torch packs no empty sequence
        ([[0, 1], [0, 0], [1, 1]], None),
    ],
)
def test_lengths_end_with_the_last_scored_step(
    scored: list[list[int]], lengths: list[int] | None
) -> None:
    x = torch.zeros(3, 2)
    batch = Batch(x, x, torch.tensor(scored, dtype=torch.bool), padded=True)
    assert (None if batch.lengths is None else batch.lengths.tolist()) == lengths
    assert replace(batch, padded=False).lengths is None
    assert replace(batch, scored=None).lengths is None
    columns = batch.columns(slice(1, 2)).lengths
    assert columns is None if lengths is None else columns is not None and columns[0] == lengths[1]
