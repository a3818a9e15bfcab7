"""Recorded noise, played back in calls of other lengths and for other rows."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

import noisin
from noisin import noise
from noisin.data import Batch
from noisin.errors import NoisinError
from noisin.likelihoods import Bernoulli
from noisin.models.latent import VRNN
from noisin.regularizers import DropoutLSTMCell
from tests.cases import PLAIN, UNFED, Case, F, H

T, N = 6, 4


def by_steps(rnn: nn.Module, x: Tensor, sizes: tuple[int, ...]) -> Tensor:
    """An RNN called for some steps at a time."""
    state, found = None, []
    for part in torch.split(x, sizes):
        z, state = rnn(part, state)
        found.append(z)
    return torch.cat(found)


@pytest.mark.parametrize(
    "case",
    # A GRU that reads noise returns its clean carry, and the first step of a call reads that.
    [c for c in PLAIN + UNFED if not c.bidirectional and (c.kind != "gru-read" or not c.feedback)],
    ids=str,
)
def test_a_rollout_step_by_step_is_replayed_at_once(case: Case) -> None:
    rnn, x = case.make().eval(), torch.randn(T, N, F, dtype=torch.float64)
    noises = noisin.replay(rnn)
    with noises.record():
        rollout = by_steps(rnn, x, (1,) * T)
    assert noises.eps[""].shape == (2, T, N, case.output_size)
    for rows in (slice(None), [2, 0], torch.tensor([1])):
        with noises.play(rows=rows):
            again, _ = rnn(x[:, rows])
        assert_close(again, rollout[:, rows])
    with noises.play():
        assert_close(by_steps(rnn, x, (2, 3, 1)), rollout)
    assert torch.equal(rnn(x)[0], rnn(x)[0]), "the noise is off again"


@pytest.mark.parametrize("rows", [1, N])
def test_cells_that_draw_the_noise_of_all_steps_at_once(rows: int) -> None:
    x, eta = torch.rand(T + 1, rows, F).round(), torch.randn(T, rows, 8)
    model = VRNN(F, Bernoulli(), hidden_size=16, z_size=8, noise=noise.Gaussian(0.5))
    cell = DropoutLSTMCell(F, 16, p_x=0.3, p_h=0.3, locked=True, site="before")
    noisy = noisin.Noisy(cell, noise.Gaussian(0.5))
    runs: list[tuple[nn.Module, Any]] = [
        (model, lambda: model.bound(Batch(x[:-1], x[1:]), eta=eta).log_p),
        (noisy, lambda: noisin.unroll(noisy, x[:-1])[0]),
    ]
    for module, run in runs:
        noises = noisin.replay(module)
        torch.manual_seed(3)
        with noises.record():
            expected = run()
        (eps,) = noises.eps.values()
        assert eps.shape == (1, T, rows, 16)
        torch.manual_seed(3)  # of the masks, which come first
        with noises.play():
            assert_close(run(), expected)


def test_sequences_that_begin_at_different_steps() -> None:
    """As the minibatches of recurrent PPO, cut at the beginnings of episodes."""
    rnn, x = noisin.LSTM(F, H, noise=noise.Gaussian(0.5)), torch.randn(T, N, F)
    noises = noisin.replay(rnn)
    with noises.record():
        rnn(x)
    rows = torch.tensor([[2, 0]]).expand(3, 2)
    steps = torch.arange(3).unsqueeze(1) + torch.tensor([[1, 3]])
    state = torch.randn(1, 2, H), torch.randn(1, 2, H)
    with noises.play(steps, rows):
        found, _ = rnn(x[steps, rows], state)
    want, _ = rnn(x[steps, rows], state, eps=noises.eps[""][:, steps, rows])
    assert_close(found, want)


def test_a_model_of_several_modules() -> None:
    cell = noisin.Noisy(nn.LSTMCell(H, H), noise.Gamma(0.3))
    model = nn.ModuleDict({"rnn": noisin.GRU(F, H, 2, noise=noise.Gaussian(0.5)), "cell": cell})
    x = torch.randn(T, N, F)

    def run(rows: Any = slice(None)) -> Tensor:
        z, _ = model["rnn"](x[:, rows])
        found: Tensor = noisin.unroll(model["cell"], z)[0]
        return found

    noises = noisin.replay(model)
    with noises.record():
        rollout = run()
    assert {name: tuple(eps.shape) for name, eps in noises.eps.items()} == {
        "rnn": (2, T, N, H), "cell": (1, T, N, H),
    }  # fmt: skip
    with noises.play(rows=[3, 1]):
        again = run([3, 1])
    assert_close(again, rollout[:, [3, 1]])
    again.sum().backward()
    assert model["rnn"].weight_hh_l0.grad.any()


def test_it_leaves_no_trace() -> None:
    rnn, x = noisin.LSTM(F, H, noise=noise.Gaussian(0.5)), torch.randn(T, N, F)
    before, noises = set(vars(rnn)), noisin.replay(rnn)
    with noises.record():
        twin = copy.deepcopy(rnn)
        rnn(x)
    with pytest.raises(KeyError), noises.play():
        raise KeyError
    assert set(vars(rnn)) == set(vars(twin)) == before
    assert not torch.equal(rnn(x)[0], rnn(x)[0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda rnn, n, x: n.play(rows=[0]), "asks for the noise of 6 steps, 4 rows"),
        (lambda rnn, n, x: n.play(steps=slice(3)), "3 steps left"),
        (lambda rnn, n, x: n.play(rows=0), r"\(T, N\) of numbers"),
        (lambda rnn, n, x: noisin.replay(rnn).play(), "no noise of '' was recorded"),
        (lambda rnn, n, x: noisin.replay(nn.LSTM(F, H)).record(), "contains no noise-injected"),
        (lambda rnn, n, x: noisin.replay(5), "expected a model"),
    ],
)
def test_bad_calls(call: Any, message: str) -> None:
    rnn, x = noisin.LSTM(F, H, noise=noise.Gaussian(0.5)), torch.randn(T, N, F)
    noises = noisin.replay(rnn)
    with noises.record():
        rnn(x)
    with pytest.raises(NoisinError, match=message), call(rnn, noises, x):
        rnn(x)


def test_what_has_no_steps_and_rows_is_refused() -> None:
    rnn, x = noisin.LSTM(F, H, noise=noise.Gaussian(0.5)), torch.randn(T, N, F)
    noises = noisin.replay(rnn)
    with pytest.raises(NoisinError, match="a PackedSequence"), noises.record():
        rnn(pack_sequence([x[:, 0], x[:3, 1]]))
    with pytest.raises(NoisinError, match=r"batches of \[3, 4\] rows"), noises.record():
        rnn(x), rnn(x[:, 1:])
    with noises.record():
        z, _ = checkpoint(rnn, x.requires_grad_(), use_reentrant=False)
        with pytest.raises(NoisinError, match="gradient checkpointing"):
            z.sum().backward()
    rnn.share = "sequence"
    with pytest.raises(NoisinError, match="share='sequence'"), noises.record():
        rnn(x)
