"""Where our kernels run a layer, it computes nothing for padding; all else stays as it was."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from noisin import likelihoods, noise
from noisin.data import Batch
from noisin.errors import Unsupported
from noisin.models import Dense, Dropout, Loss, SequenceModel, Values
from noisin.models.layers import Layer, layer
from noisin.noise.sampling import Shard, set_shard
from noisin.recurrent import kernels
from noisin.recurrent.injection import Injection
from noisin.regularizers.weights import WeightDrop
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


def model() -> SequenceModel:
    torch.manual_seed(0)
    layers = [layer("lstm", size, H, injection=Injection(LAW)) for size in (F, H)]
    return SequenceModel(Values(F), layers, Dense(H, F, likelihoods.Bernoulli())).double()


def padded(real: Tensor = REAL) -> Batch:
    x = (sequences() > 0).double()
    return Batch(x, x, real, padded=True)


def garbage(batch: Batch) -> Batch:
    """Padding that is not a number: whoever computes with it has no finite result."""
    assert batch.scored is not None
    return replace(batch, x=batch.x.where(batch.scored[..., None], torch.nan))


@pytest.mark.parametrize("samples", [1, 2])
def test_the_loss_of_a_padded_batch(samples: int) -> None:
    net, found = model(), []
    for given in replace(padded(), padded=False), padded(), garbage(padded()):
        torch.manual_seed(1)
        with kernels.everywhere():
            mean = net.loss(given, samples=samples).mean
        found.append([mean, *torch.autograd.grad(mean, list(net.parameters()))])
    assert_close(found[1], found[0])
    assert_close(found[2], found[1])


@pytest.mark.parametrize("ask", ["log_prob", "read"])
def test_the_score_of_a_padded_batch(ask: str) -> None:
    net = model().eval()
    expected = net.log_prob(replace(padded(), padded=False))[0]
    with kernels.everywhere():
        found, *_, state = getattr(net, ask)(garbage(padded()))
    assert_close(found[REAL], expected[REAL])
    assert state[0][0].isfinite().all(), "the padding was computed"


LITTLE = torch.arange(T)[:, None] < torch.tensor([7, 6, 7, 6])  # 7 % padding


@pytest.mark.parametrize(
    ("real", "where", "computed"),
    [
        (REAL, kernels.everywhere, False),
        (REAL, nullcontext, True),  # torch's kernel takes longer for packed sequences
        (LITTLE, kernels.everywhere, True),
    ],
    ids=["left out", "torch's kernel", "little padding"],
)
def test_padding_is_computed_where_that_takes_less_time(
    real: Tensor, where: Any, computed: bool
) -> None:
    """Then it is in the state, which is that of the last real step otherwise."""
    with where():
        h, _ = model().loss(garbage(padded(real))).state[0]
    assert bool(h.isnan().any()) == computed


class Older(Layer):
    """A layer that was written before layers knew of padding."""

    def forward(self, x: Tensor, state: Any = None, *, samples: int = 1) -> Any:  # type: ignore[override]
        return super().forward(x, state, samples=samples)


class Doubled(SequenceModel):
    """A model that was."""

    def encode(self, x: Tensor, state: Any = None, *, samples: int = 1) -> Any:  # type: ignore[override]
        z, state = super().encode(x, state, samples=samples)
        return 2 * z, state


def test_subclasses_without_the_argument() -> None:
    parts = model()
    layers = [Older(made.rnn, made.dropout) for made in parts.layers]
    whole = replace(padded(), padded=False)
    for net in (
        SequenceModel(parts.encoder, layers, parts.head),
        Doubled(parts.encoder, parts.layers, parts.head),
    ):
        for ask in net.loss, net.log_prob:
            found = []
            for batch in padded(), whole:
                torch.manual_seed(1)
                with kernels.everywhere():
                    result = ask(batch)
                found.append(result.mean if isinstance(result, Loss) else result[0][REAL])
            assert_close(*found)


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


def test_statistics_of_batches_are_not_learnt_from_padding() -> None:
    """In eval() padding has no effect; a batch without it is learnt from."""
    net = SequenceModel(
        Values(F), [layer("batch-norm-lstm", F, H)], Dense(H, F, likelihoods.Bernoulli())
    )
    x, target = torch.rand(2, T, N, F).round()
    padded = Batch(x, target, REAL, padded=True)
    mean = dict(net.named_buffers())["layers.0.rnn.cell.cell.mean_x"]
    before = mean.clone()
    with pytest.raises(Unsupported, match="statistics of a batch would contain its padding"):
        net.loss(padded)
    assert_close(mean, before)
    net.loss(replace(padded, padded=False))
    assert not torch.equal(mean, before)
    other = replace(padded, x=x.where(REAL[..., None], 9.0))
    assert_close(net.eval().loss(padded).mean, net.loss(other).mean)
