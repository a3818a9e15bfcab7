"""The noise that noisin.RNN, LSTM and GRU draw: where, how often, from which stream."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence
from torch.testing import assert_close

from noisin import noise
from tests import stats
from tests.cases import KINDS, PLAIN, UNFED, Case, F, H

LENGTHS = [4, 2, 5, 1]


@pytest.mark.parametrize("case", PLAIN + UNFED, ids=str)
def test_noise_while_training_only(case: Case) -> None:
    rnn, x = case.make(), torch.randn(5, 2, F, dtype=torch.float64)
    with torch.no_grad():
        assert not torch.equal(rnn(x)[0], rnn(x)[0])
        rnn.eval()
        clean = rnn(x)[0]
        assert torch.equal(rnn(x)[0], clean)
        rnn.train()
        assert not torch.equal(rnn(x)[0], clean)
        assert_close(rnn(x, eps=0 * case.eps(5, 2))[0], clean)


@pytest.mark.parametrize("feedback", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_noise_is_drawn_for_real_steps_only(kind: str, feedback: bool) -> None:
    """A packed batch draws as many numbers as it has real steps, whatever is padded around them."""
    drawn: list[tuple[int, ...]] = []

    class Spy:
        variance = 1.0

        def sample(self, shape: Any, *, like: Tensor, generator: Any = None) -> Tensor:
            drawn.append(tuple(shape))
            return torch.randn(shape, dtype=like.dtype, generator=generator)

    case = Case(kind, feedback=feedback)
    rnn = case.make(Spy())
    drawn.clear()
    rnn(pack_sequence([torch.randn(n, F, dtype=torch.float64) for n in LENGTHS], False))
    assert drawn == [(sum(LENGTHS), case.output_size)] * 2


@pytest.mark.parametrize("feedback", [True, False])
@pytest.mark.parametrize("share", ["step", "sequence"])
def test_share(share: str, feedback: bool) -> None:
    """Recover the noise from additive output: it is fresh per step, or one per sequence."""
    case = Case("tanh", "additive", feedback, num_layers=1)
    rnn = case.make(share=share)
    x = pack_sequence(
        [torch.randn(n, F, dtype=torch.float64) for n in LENGTHS], enforce_sorted=False
    )
    output, lengths = pad_packed_sequence(rnn(x)[0])
    inputs, _ = pad_packed_sequence(x)
    w = rnn.all_weights[0]
    for n, length in enumerate(lengths):
        h = torch.zeros(H, dtype=torch.float64)
        eps = []
        for t in range(length):
            f = torch.tanh(inputs[t, n] @ w[0].T + w[2] + h @ w[1].T + w[3])
            eps.append(output[t, n] - f)
            h = output[t, n] if feedback else f
        spread = torch.stack(eps).std(dim=0, correction=0).max() if length > 1 else torch.ones(())
        assert bool(spread < 1e-9) == (share == "sequence" and length > 1)


def test_noise_is_independent_per_row_unit_layer_and_direction() -> None:
    case = Case("lstm", "additive", feedback=False, bidirectional=True)
    rnn = case.make(noise.Gaussian(1.0))
    x = torch.zeros(50, 40, F, dtype=torch.float64)
    clean = rnn.eval()(x)[0]
    eps = rnn.train()(x)[0] - clean  # also the noise that layer 1 passed on, through layer 2
    last = Case("lstm", "additive", False, "last", True).make(noise.Gaussian(1.0))
    last.load_state_dict(rnn.state_dict())
    eps = (last(x)[0] - clean).detach().flatten(0, 1)
    stats.assert_mean(eps.numpy().ravel(), 0.0, 1.0)
    correlation = torch.corrcoef(eps.T) - torch.eye(8)
    for value in correlation[torch.triu(torch.ones(8, 8), 1) > 0]:
        stats.assert_mean(value.reshape(1).numpy(), 0.0, len(eps) ** -0.5)


def test_noise_may_differ_per_layer() -> None:
    rnn = Case("tanh", "additive", feedback=False).make([None, noise.Gaussian(0.1)])
    first = Case("tanh", "additive", feedback=False).make([noise.Gaussian(0.1), None])
    x = torch.zeros(5, 2, F, dtype=torch.float64)
    assert rnn._injecting_layers(given=False) == [1]
    assert first._injecting_layers(given=False) == [0]
    first.load_state_dict(rnn.state_dict())
    assert not torch.equal(rnn(x)[0], first(x)[0])
    eps = torch.ones(2, 5, 2, H, dtype=torch.float64)
    only_last, _ = rnn(x, eps=eps)
    assert_close(only_last, rnn.eval()(x)[0] + 1)


@pytest.mark.parametrize("case", PLAIN + UNFED, ids=str)
def test_a_generator_alone_decides_the_noise(case: Case) -> None:
    g = torch.Generator()
    rnn, x = case.make(generator=g), torch.randn(5, 2, F, dtype=torch.float64)
    before = torch.get_rng_state()
    g.manual_seed(5)
    first = rnn(x)[0]
    assert not torch.equal(rnn(x)[0], first)
    g.manual_seed(5)
    assert torch.equal(rnn(x)[0], first)
    assert torch.equal(torch.get_rng_state(), before)


def test_a_reading_gru_does_not_explode_and_a_literal_one_does() -> None:
    """The reason for site="read": a large update gate and gamma 1.1."""
    largest = {}
    for site in ("read", "state"):
        rnn = Case(f"gru-{site}", num_layers=1).make(noise.Gaussian(1.1))
        with torch.no_grad():
            rnn.bias_ih_l0[H : 2 * H] = 4.0  # u close to 1
        largest[site] = rnn(torch.randn(200, 50, F, dtype=torch.float64))[0].abs().max()
    assert largest["read"] < 20
    assert largest["state"] > 1000
