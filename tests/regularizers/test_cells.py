"""The general dropout LSTM: masks on the eight products, against the paper's equations."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import noisin
from noisin import noise
from noisin.errors import InvalidValue
from noisin.recurrent import kernels
from noisin.regularizers import DropoutLSTMCell, Masks
from tests import pairwise, stats
from tests.compiler import needs_compiler

F, H, N = 3, 4, 2
D64: dict[str, Any] = {"dtype": torch.float64}


def equations(
    cell: DropoutLSTMCell, x: Tensor, h: Tensor, c: Tensor, masks: Masks
) -> tuple[Tensor, Tensor]:
    """The paper's equations, gate by gate, with eight separate products."""
    gates = {}
    for g, name in enumerate("ifco"):
        rows = slice(g * H, (g + 1) * H)
        total = 0
        for v, weight, bias, mask in (
            (x, cell.weight_ih, cell.bias_ih, masks.x),
            (h, cell.weight_hh, cell.bias_hh, masks.h),
        ):
            m = 1 if mask is None else mask[..., 0 if mask.shape[-2] == 1 else g, :]
            if cell.site == "after":
                total = total + (v @ weight[rows].T) * m
            else:
                total = total + (v * m) @ weight[rows].T
            total = total + (0 if bias is None else bias[rows])
        gates[name] = total
    c = gates["f"].sigmoid() * c + gates["i"].sigmoid() * gates["c"].tanh()
    return gates["o"].sigmoid() * c.tanh(), c


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("site", "shared", "p_x", "p_h"),
    list(itertools.product(["before", "after"], [True, False], [0.0, 0.5], [0.0, 0.4])),
)
def test_equations(site: Any, shared: bool, p_x: float, p_h: float, bias: bool) -> None:
    cell = DropoutLSTMCell(F, H, bias=bias, p_x=p_x, p_h=p_h, site=site, shared=shared, **D64)
    x, h, c = (torch.randn(N, n, **D64) for n in (F, H, H))
    masks = cell.sample_masks(x)
    got = cell(x, (h, c), masks=masks)
    assert_close(got, equations(cell, x, h, c, masks))
    if not p_x and not p_h:
        assert_close(got, nn.LSTMCell.forward(cell, x, (h, c)))
    unbatched = Masks(*(None if m is None else m[0] for m in masks))
    assert_close(cell(x[0], (h[0], c[0]), masks=unbatched)[0], got[0][0])


def test_masks_have_their_rate_scale_and_shape() -> None:
    cell = DropoutLSTMCell(F, H, p_x=0.25, p_h=0.5)
    masks = cell.sample_masks(torch.zeros(2000, F))
    assert masks.x.shape == (2000, 4, H)
    assert_close(masks.x.unique(), torch.tensor([0, 4 / 3]))
    stats.assert_mean(masks.x.numpy().ravel(), 1.0, (1 / 3) ** 0.5)
    stats.assert_mean(masks.h.numpy().ravel(), 1.0, 1.0)
    gates = masks.h[:, 0] * masks.h[:, 1]  # independent between gates
    stats.assert_mean(gates.numpy().ravel(), 1.0, 3**0.5)
    before = DropoutLSTMCell(F, H, p_x=0.5, p_h=0.5, site="before", shared=True)
    masks = before.sample_masks(torch.zeros(7, F))
    assert (masks.x.shape, masks.h.shape) == ((7, 1, F), (7, 1, H))


def test_fresh_masks_while_training_and_torchs_cell_in_eval() -> None:
    cell = DropoutLSTMCell(F, H, p_x=0.5, p_h=0.5)
    theirs = nn.LSTMCell(F, H)
    cell.load_state_dict(theirs.state_dict(), strict=True)
    x = torch.randn(N, F)
    assert not torch.equal(cell(x)[0], cell(x)[0])
    cell.eval()
    assert torch.equal(cell(x)[0], theirs(x)[0])
    zeros = Masks(torch.zeros(N, 4, H), torch.zeros(N, 4, H))
    assert not torch.equal(cell(x, masks=zeros)[0], theirs(x)[0]), "given masks hold in eval too"
    with pytest.raises(InvalidValue, match=r"expected a state of shape \(2, 4\), got \(1, 4\)"):
        cell.train()(x, (torch.zeros(1, H), torch.zeros(1, H)))


def test_zarembas_dropout_is_dropout_of_the_input() -> None:
    """site="before", shared and p_h = 0: F.dropout on x with the same mask."""
    cell = DropoutLSTMCell(F, H, p_x=0.5, site="before", shared=True, **D64)
    x = torch.randn(N, F, **D64)
    masks = cell.sample_masks(x)
    assert_close(cell(x, masks=masks), nn.LSTMCell.forward(cell, x * masks.x[:, 0]))


def test_the_papers_special_case_is_inexact() -> None:
    """No masks after the products give what Zaremba's gives, unless it keeps all of x or nothing.

    A unit depends on the masks of its own four gates alone, so 16 combinations are all there are.
    """
    after = DropoutLSTMCell(F, H, p_x=0.5, **D64)
    zaremba = DropoutLSTMCell(F, H, p_x=0.5, site="before", shared=True, **D64)
    zaremba.load_state_dict(after.state_dict())
    x, state = torch.randn(1, F, **D64), (torch.zeros(1, H, **D64), torch.randn(1, H, **D64))
    values = (0.0, 2.0)
    gates = [torch.tensor(bits, **D64) for bits in itertools.product(values, repeat=4)]
    masks = [Masks(bits[:, None].expand(1, 4, H), None) for bits in gates]
    reachable = torch.stack([after(x, state, masks=mask)[0] for mask in masks])
    for bits in itertools.product(values, repeat=F):
        mask = Masks(torch.tensor(bits, **D64).view(1, 1, F), None)
        found = torch.isclose(reachable, zaremba(x, state, masks=mask)[0]).any(0)
        assert bool(found.all()) == (len(set(bits)) == 1), bits


def test_noise_composes_with_dropout() -> None:
    """The paper's D + noise: the dropout LSTM is just another transition."""
    inner = DropoutLSTMCell(F, H, p_x=0.5, p_h=0.4, **D64)
    cell = noisin.Noisy(inner, noise.Gaussian(0.5))
    x, eps = torch.randn(5, N, F, **D64), torch.randn(5, N, H, **D64)
    torch.manual_seed(7)  # of the masks: the noise is given
    z, (z_n, c_n) = noisin.unroll(cell, x, eps=eps)
    torch.manual_seed(7)
    state = None
    for t in range(5):
        h, c = cell.cell(x[t], state)
        state = (h * (1 + eps[t]), c)
        assert_close(z[t], state[0])
    assert_close((z_n, c_n), state)
    z.sum().backward()
    assert inner.weight_hh.grad.any()
    with noisin.noise_off(cell):  # dropout is not noise's to switch
        assert not torch.equal(noisin.unroll(cell, x)[0], noisin.unroll(cell, x)[0])


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("site", ["before", "after"])
def test_locked_masks_are_constant_in_a_window(site: Any, shared: bool) -> None:
    """Gal's variational LSTM: the equations with one draw; another window has another."""
    cell = DropoutLSTMCell(
        F, H, p_x=0.5, p_h=0.4, site=site, shared=shared, locked=True, **D64
    )  # fmt: skip
    x = torch.randn(5, N, F, **D64)
    torch.manual_seed(7)
    z, (h_n, c_n) = noisin.unroll(noisin.Noisy(cell, None), x)
    torch.manual_seed(7)
    masks = cell.sample_masks(x[0])
    h, c = torch.zeros(2, N, H, **D64)
    for t in range(5):
        h, c = equations(cell, x[t], h, c, masks)
        assert_close(z[t], h)
    assert_close((h_n, c_n), (h, c))
    assert not torch.equal(noisin.unroll(cell, x)[0], z)
    cell.eval()
    theirs = nn.LSTMCell(F, H, **D64)
    theirs.load_state_dict(cell.state_dict())
    assert torch.equal(noisin.unroll(cell, x)[0], noisin.unroll(theirs, x)[0])
    with pytest.raises(InvalidValue, match=r"expected a state of shape \(2, 4\), got \(1, 4\)"):
        noisin.unroll(cell.train(), x, (h[:1], c[:1]))


@pytest.mark.parametrize(
    ("kernel", "shared", "rates", "bias", "mode", "feedback"),
    [
        pytest.param(*row, marks=needs_compiler if row[0] == "c" else ())
        for row in pairwise.table(
            ("reference", "eager", "c"), (True, False), ((0.5, 0.4), (0.5, 0.0), (0.0, 0.4)),
            (True, False), ("multiplicative", "additive"), (True, False),
        )
    ],
)  # fmt: skip
def test_the_kernels_run_a_locked_window(
    kernel: str, shared: bool, rates: tuple[float, float], bias: bool, mode: Any, feedback: bool
) -> None:
    """A hook sees each step, so that they run one by one: the same values and gradients."""
    p_x, p_h = rates
    cell = DropoutLSTMCell(
        F, H, bias=bias, p_x=p_x, p_h=p_h, site="before", shared=shared, locked=True, **D64
    )  # fmt: skip
    noisy = noisin.Noisy(cell, None, mode=mode, feedback=feedback)
    x, eps = torch.randn(5, N, F, **D64).requires_grad_(), torch.randn(5, N, H, **D64)
    state = tuple(torch.randn(N, H, **D64).requires_grad_() for _ in range(2))
    calls, found = [], []
    for hooks in (0, 1):
        handle = cell.register_forward_hook(lambda *_: calls.append(1)) if hooks else None
        torch.manual_seed(7)
        with kernels.using(kernel):
            z, final = noisin.unroll(noisy, x, state, eps=eps)
        loss = z.square().sum() + sum(part.sin().sum() for part in final)
        found.append((z, *final, *torch.autograd.grad(loss, [x, *state, *cell.parameters()])))
        assert len(calls) == 5 * hooks
        if handle is not None:
            handle.remove()
    assert_close(found[0], found[1])


@pytest.mark.parametrize("share", ["step", "sequence"])
def test_the_noise_of_a_window_that_runs_at_once(share: Any) -> None:
    """Drawn for all steps, or once for them, with the law that it has step by step."""
    cell = DropoutLSTMCell(F, H, p_h=0.4, site="before", locked=True, **D64)
    given: list[Tensor] = []

    def run(state: Any, eps: Tensor, mode: str) -> Any:
        given.append(eps)
        return eps, state

    cell.at_once = lambda x: run  # type: ignore[method-assign]
    noisin.unroll(
        noisin.Noisy(cell, noise.Gaussian(0.5), share=share), torch.zeros(60, 50, F, **D64)
    )
    (eps,) = given
    assert torch.equal(eps[0], eps[1]) == (share == "sequence")
    drawn = eps if share == "step" else eps[0]
    stats.assert_mean(drawn.numpy().ravel(), 0.0, 0.5)
    stats.assert_mean(drawn.square().numpy().ravel(), 0.25, 0.25 * 2**0.5)


def test_a_subclass_of_noisy_with_another_step_is_not_run_by_the_kernels() -> None:
    class Halved(noisin.Noisy):
        def transition(self, x: Any, state: Any = None) -> Any:
            h, c = super().transition(x, state)
            return h / 2, c

    cell = DropoutLSTMCell(F, H, p_h=0.4, site="before", locked=True, **D64)
    x, eps = torch.randn(1, N, F, **D64), torch.randn(1, N, H, **D64)
    found = []
    for wrap in (Halved, noisin.Noisy):
        torch.manual_seed(7)
        found.append(noisin.unroll(wrap(cell, None), x, eps=eps)[0])
    assert_close(2 * found[0], found[1])


def test_a_subclass_with_another_step_is_not_run_by_the_kernels() -> None:
    class Halved(DropoutLSTMCell):
        def forward(self, *args: Any, **kwargs: Any) -> Any:
            h, c = super().forward(*args, **kwargs)
            return h / 2, c

    cell = Halved(F, H, p_h=0.4, site="before", locked=True, **D64)
    x = torch.randn(5, N, F, **D64)
    torch.manual_seed(7)
    z, _ = noisin.unroll(cell, x)
    torch.manual_seed(7)
    state = None
    for t, x_t in enumerate(cell.step_inputs(x)):
        state = cell(x_t, state)
        assert_close(z[t], state[0])


def test_no_rows_and_no_batch() -> None:
    cell = DropoutLSTMCell(F, H, p_x=0.5, p_h=0.4, site="before", locked=True, **D64)
    assert noisin.unroll(cell, torch.zeros(5, 0, F, **D64))[0].shape == (5, 0, H)
    assert noisin.unroll(cell, torch.zeros(5, F, **D64))[0].shape == (5, H)


@pytest.mark.parametrize("name", ["p_x", "p_h"])
@pytest.mark.parametrize("p", [1.0, -0.1, float("nan"), "0.5", True])
def test_bad_rates(name: str, p: Any) -> None:
    with pytest.raises(
        InvalidValue, match=rf"{name} is a probability and must lie in \[0, 1\), got"
    ):
        DropoutLSTMCell(F, H, **{name: p})


def test_bad_site() -> None:
    with pytest.raises(InvalidValue, match="site must be 'before' or 'after', got 'inside'"):
        DropoutLSTMCell(F, H, site="inside")
