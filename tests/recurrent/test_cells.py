"""Cells, noise around any transition, and the loop over time."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import prune
from torch.testing import assert_close

import noisin
from noisin import noise
from noisin.errors import InvalidType
from tests.cases import F, H

D64: dict[str, Any] = {"dtype": torch.float64}
X = (6, 2, F)
LAYERS = {
    "tanh": (noisin.RNN, noisin.RNNCell, nn.RNNCell, {}),
    "relu": (noisin.RNN, noisin.RNNCell, nn.RNNCell, {"nonlinearity": "relu"}),
    "sigmoid": (noisin.RNN, noisin.RNNCell, None, {"nonlinearity": "sigmoid"}),
    "lstm": (noisin.LSTM, noisin.LSTMCell, nn.LSTMCell, {}),
    "gru": (noisin.GRU, noisin.GRUCell, nn.GRUCell, {"site": "read"}),
}


def cell_weights(layer: nn.RNNBase) -> dict[str, Tensor]:
    return {name.removesuffix("_l0"): w for name, w in layer.state_dict().items()}


def pair(kind: str, law: Any = noise.Gaussian(0.5), **kwargs: Any) -> tuple[Any, Any]:  # noqa: B008
    """A layer of one kind and the cell with the same weights."""
    layer_class, cell_class, _, extra = LAYERS[kind]
    layer = layer_class(F, H, noise=law, **extra, **D64, **kwargs)
    cell = cell_class(F, H, noise=law, **extra, **D64, **kwargs)
    cell.load_state_dict(cell_weights(layer), strict=True)
    return layer, cell


@pytest.mark.parametrize("feedback", [True, False])
@pytest.mark.parametrize("mode", ["additive", "multiplicative"])
@pytest.mark.parametrize("kind", LAYERS)
def test_an_unrolled_cell_is_the_layer(kind: str, mode: str, feedback: bool) -> None:
    layer, cell = pair(kind, mode=mode, feedback=feedback)
    x, eps = torch.randn(X, **D64), torch.randn(6, 2, H, **D64)
    h_0 = torch.randn(1, 2, H, **D64)
    hx, state = ((h_0, h_0), (h_0[0], h_0[0])) if kind == "lstm" else (h_0, h_0[0])
    for given, start in ((hx, state), (None, None)):
        want, want_state = layer(x, given, eps=eps[None])
        z, final = noisin.unroll(cell, x, start, eps=eps)
        assert_close(z, want)
        last = final[0] if kind == "lstm" else final[-1] if isinstance(final, tuple) else final
        want_last = want_state[0] if kind == "lstm" else want_state
        assert_close(last, want_last[0])  # of a reading GRU's pair, the carry


@pytest.mark.parametrize("kind", [kind for kind in LAYERS if kind != "sigmoid"])
def test_without_noise_a_cell_is_torchs(kind: str) -> None:
    _, ours_class, theirs_class, extra = LAYERS[kind]
    extra = {k: v for k, v in extra.items() if k != "site"}
    for bias in (True, False):
        theirs = theirs_class(F, H, bias=bias, **extra)
        ours = ours_class(F, H, bias, **extra)
        ours.load_state_dict(theirs.state_dict(), strict=True)
        theirs.load_state_dict(ours.state_dict(), strict=True)
        x = torch.randn(2, F)
        for state in (None, theirs(x)):
            got, want = ours(x, state), theirs(x, state)
            assert isinstance(ours, theirs_class)
            assert all(
                map(torch.equal, *((s,) if isinstance(s, Tensor) else s for s in (got, want)))
            )


@pytest.mark.parametrize("kind", ["tanh", "lstm"])
def test_a_callers_own_loop_is_the_unrolled_cell(kind: str) -> None:
    _, cell = pair(kind)
    x, eps = torch.randn(X, **D64), torch.randn(6, 2, H, **D64)
    state, zs = None, []
    for t in range(6):
        state = cell(x[t], state, eps=eps[t])
        zs.append(state[0] if kind == "lstm" else state)
    assert torch.equal(torch.stack(zs), noisin.unroll(cell, x, eps=eps)[0])
    torch.manual_seed(0)
    drawn = cell(x[0])
    assert not torch.equal(*((s[0] if kind == "lstm" else s) for s in (drawn, cell(x[0])))), (
        "noise while training"
    )
    cell.eval()
    assert_close(cell(x[0]), cell(x[0]))


def test_noisy_wraps_torchs_cells_and_keeps_their_parameters() -> None:
    inner = nn.LSTMCell(F, H, **D64)
    cell = noisin.Noisy(inner, noise.Gaussian(0.5))
    _, same = pair("lstm")
    same.load_state_dict(inner.state_dict())
    x, eps = torch.randn(X, **D64), torch.randn(6, 2, H, **D64)
    assert_close(noisin.unroll(cell, x, eps=eps), noisin.unroll(same, x, eps=eps))
    assert list(cell.parameters()) == list(inner.parameters())
    cell.eval()
    assert torch.equal(noisin.unroll(cell, x)[0], noisin.unroll(inner, x)[0])


class LeakyState(NamedTuple):
    h: Tensor
    trace: Tensor


class Leaky(nn.Module):
    """A user's cell with a named state."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(F + H, H, **D64)

    def forward(self, x: Tensor, state: LeakyState | None) -> LeakyState:
        if state is None:
            state = LeakyState(x.new_zeros(len(x), H), x.new_zeros(len(x), H))
        h = torch.tanh(self.linear(torch.cat([x, state.h], -1)))
        return LeakyState(h, 0.9 * state.trace + h)


class SaysOtherwise(nn.Module):
    """A cell that keeps its hidden state last, in a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = Leaky()

    def forward(self, x: Tensor, state: dict[str, Tensor] | None) -> dict[str, Tensor]:
        old = None if state is None else LeakyState(state["h"], state["trace"])
        new = self.inner(x, old)
        return {"trace": new.trace, "h": new.h}

    def hidden(self, state: dict[str, Tensor]) -> Tensor:
        return state["h"]

    def with_hidden(self, state: dict[str, Tensor], z: Tensor) -> dict[str, Tensor]:
        return {**state, "h": z}


@pytest.mark.parametrize("feedback", [True, False])
def test_noisy_wraps_any_users_cell(feedback: bool) -> None:
    leaky, x, eps = Leaky(), torch.randn(X, **D64), torch.randn(6, 2, H, **D64)
    state, zs = None, []
    for t in range(6):
        state = leaky(x[t], state)
        z = state.h * (1 + eps[t])
        zs.append(z)
        state = state._replace(h=z) if feedback else state
    otherwise = SaysOtherwise()
    otherwise.inner = leaky
    for cell in (leaky, otherwise):
        z, final = noisin.unroll(
            noisin.Noisy(cell, noise.Gaussian(1.0), feedback=feedback), x, eps=eps
        )
        assert_close(z, torch.stack(zs))
        got = LeakyState(final["h"], final["trace"]) if isinstance(final, dict) else final
        assert type(got) is LeakyState
        assert_close(got, state)


class NamesALayerHidden(nn.Module):
    """A cell with a layer, or a number, called hidden: the commonest name there is."""

    def __init__(self, extra: Any = None) -> None:
        super().__init__()
        self.inner = nn.Linear(F, H, **D64)
        self.hidden = nn.Linear(H, H, **D64) if extra is None else extra

    def forward(self, x: Tensor, h: Tensor | None) -> Tensor:
        past = 0 if h is None else h if isinstance(self.hidden, int) else self.hidden(h)
        return torch.tanh(self.inner(x) + past)


@pytest.mark.parametrize("extra", [None, 4])
def test_an_attribute_called_hidden_is_no_method(extra: Any) -> None:
    cell, x, eps = NamesALayerHidden(extra), torch.randn(X, **D64), torch.randn(6, 2, H, **D64)
    state, zs = None, []
    for t in range(6):
        state = cell(x[t], state) * (1 + eps[t])
        zs.append(state)
    z, _ = noisin.unroll(noisin.Noisy(cell, None), x, eps=eps)
    assert_close(z, torch.stack(zs))


def test_one_method_without_the_other_is_refused() -> None:
    class Half(Leaky):
        def hidden(self, state: LeakyState) -> Tensor:
            return state.h

    with pytest.raises(InvalidType, match="needs both or neither"):
        noisin.unroll(noisin.Noisy(Half(), LAW), torch.randn(X, **D64))


LAW = noise.Gaussian(0.5)


@pytest.mark.parametrize("feedback", [True, False])
@pytest.mark.parametrize("training", [True, False])
def test_hooks_of_a_cell_run_at_every_step(feedback: bool, training: bool) -> None:
    cell = noisin.LSTMCell(F, H, noise=LAW, feedback=feedback).train(training)
    calls: list[int] = []
    cell.register_forward_hook(lambda *_: calls.append(1))
    prune.random_unstructured(cell, "weight_hh", 0.5)
    for _ in range(2):  # a pruned weight is made anew by a hook before each pass
        noisin.unroll(cell, torch.randn(X))[0].sum().backward()
    assert len(calls) == 12


@pytest.mark.parametrize("feedback", [True, False])
def test_eps_is_applied_by_unroll_whenever_given(feedback: bool) -> None:
    cell = noisin.LSTMCell(F, H, noise=LAW, feedback=feedback, **D64)
    x, eps = torch.randn(X, **D64), torch.randn(6, 2, H)
    want = noisin.unroll(cell, x, eps=eps)[0]
    assert want.dtype == torch.float64
    lawless = noisin.LSTMCell(F, H, feedback=feedback, **D64)
    lawless.load_state_dict(cell.state_dict())
    for other in (cell.eval(), lawless, lawless.eval()):
        with noisin.noise_off(other):
            assert torch.equal(noisin.unroll(other, x, eps=eps)[0], want)


def test_a_list_for_a_state_stays_a_list() -> None:
    cell = noisin.Noisy(lambda x, state: [x, x], LAW)
    _, state = noisin.unroll(cell, torch.randn(X))
    assert type(state) is list


def test_noisy_wraps_a_plain_function() -> None:
    def cell(x: Tensor, state: Tensor | None) -> Tensor:
        return x if state is None else 0.5 * state + x

    noisy = noisin.Noisy(cell, noise.Gaussian(0.1), mode="additive")
    x, eps = torch.randn(X), torch.randn(X)
    z, _ = noisin.unroll(noisy, x, eps=eps)
    assert_close(z[1], 0.5 * (x[0] + eps[0]) + x[1] + eps[1])


@pytest.mark.parametrize("share", ["step", "sequence"])
def test_share(share: str) -> None:
    cell = noisin.Noisy(lambda x, state: x, noise.Gaussian(1.0), mode="additive", share=share)
    z, _ = noisin.unroll(cell, torch.zeros(X))
    assert bool((z == z[0]).all()) == (share == "sequence")


def test_unbatched_and_single_steps() -> None:
    _, cell = pair("lstm")
    x, eps = torch.randn(6, F, **D64), torch.randn(6, H, **D64)
    z, (h, c) = noisin.unroll(cell, x, eps=eps)
    assert z.shape == (6, H)
    assert h.shape == c.shape == (H,)
    z1, _ = noisin.unroll(cell, x[:, None], eps=eps[:, None])
    assert_close(z1[:, 0], z)


def test_plain_cells_unroll_too() -> None:
    cell, layer = nn.GRUCell(F, H), nn.GRU(F, H)
    cell.load_state_dict(cell_weights(layer))
    x = torch.randn(X)
    assert_close(noisin.unroll(cell, x)[0], layer(x)[0])


def test_a_reading_gru_cell_takes_and_returns_a_pair() -> None:
    cell = noisin.GRUCell(F, H, site="read", noise=noise.Gaussian(1.0))
    z, h = cell(torch.randn(2, F))
    assert not torch.equal(z, h)
    cell.eval()
    z, h = cell(torch.randn(2, F), torch.zeros(2, H))
    assert torch.equal(z, h)


def test_nested_noise_is_additive_in_effect() -> None:
    """Noise around noise: two independent factors."""
    inner = noisin.Noisy(lambda x, state: x, noise.Bernoulli(0.5))
    z, _ = noisin.unroll(noisin.Noisy(inner, noise.Bernoulli(0.5)), torch.ones(100, 50, 1))
    assert set(z.unique().tolist()) == {0.0, 4.0}
