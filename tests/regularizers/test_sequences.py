"""Dropout of sequences: its masks, and recurrent dropout against a cell with masks of its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing import assert_close

import noisin
from noisin import noise
from noisin.errors import InvalidValue
from noisin.models import Dropout, Dropouts, layers
from noisin.models.layers import Layer
from noisin.recurrent.functional import inject
from noisin.recurrent.injection import Injection
from noisin.recurrent.names import KERNEL_NAMES
from noisin.regularizers import DropoutLSTMCell, Masks
from tests import oracle, stats

T, N, F, H = 5, 3, 4, 6


def layer(cell: str, p: float, locked: bool = False, **settings: Any) -> Layer:
    injection = Injection(**settings)
    return layers.layer(cell, F, H, injection=injection, dropout=Dropout(p, locked)).double()


@pytest.mark.parametrize("locked", [False, True])
def test_masks_keep_the_mean(locked: bool) -> None:
    drop = Dropout(0.3, locked)
    x = drop(torch.ones(2, 500, 100))
    assert_close(x.unique(), torch.tensor([0.0, 1 / 0.7]))
    assert torch.equal(x[0], x[1]) == locked
    stats.assert_mean(x[0].numpy(), 1.0, (0.3 / 0.7) ** 0.5)
    assert torch.equal(drop.eval()(x), x)
    assert torch.equal(Dropout(0.0)(x), x)


def test_locked_masks_differ_between_rows_and_calls() -> None:
    drop = Dropout(0.5, locked=True)
    x = torch.ones(3, 2, 50)
    first, second = drop(x), drop(x)
    assert not torch.equal(first[0, 0], first[0, 1])
    assert not torch.equal(first, second)


@pytest.mark.parametrize("locked", [False, True])
def test_recurrent_dropout_is_the_cell_with_masked_products(locked: bool) -> None:
    """``W_h (h * m)`` with one mask for all gates, at every step, the first included."""
    ours = layer("lstm", 0.4, locked)
    cell = DropoutLSTMCell(F, H, p_h=0.4, site="before", shared=True).double()
    with torch.no_grad():
        for theirs, weight in zip(cell.parameters(), ours.rnn.parameters(), strict=True):
            theirs.copy_(weight)
    x, start = torch.randn(T, N, F).double(), torch.randn(2, 1, N, H).double()
    torch.manual_seed(1)
    z, (h, c) = ours(x, tuple(start))
    torch.manual_seed(1)
    masks = ours.dropout.mask(x, H)
    assert torch.equal(masks[0], masks[1]) == locked
    state = (start[0, 0], start[1, 0])
    for t in range(T):
        state = cell(x[t], state, masks=Masks(None, masks[t].unsqueeze(-2)))
        assert_close(z[t], state[0])
    assert_close((h[0], c[0]), state)


@pytest.mark.parametrize("feedback", [True, False])
@pytest.mark.parametrize("mode", ["multiplicative", "additive"])
@pytest.mark.parametrize("cell", KERNEL_NAMES)
def test_noise_composes_with_masks_of_ones(cell: str, mode: str, feedback: bool) -> None:
    """Masks so kind that they drop nothing leave the noisy layer as it is, for every cell."""
    ours = layer(cell, 1e-12, noise=noise.Gaussian(0.3), mode=mode, feedback=feedback)
    x = torch.randn(T, N, F).double()
    _, start = ours.rnn(x)
    torch.manual_seed(2)
    ours.dropout.mask(x, H)
    expected, state = ours.rnn(x, start)
    torch.manual_seed(2)
    found, carried = ours(x, start)
    assert_close(found, expected)
    assert_close(carried, state)


@pytest.mark.parametrize("feedback", [True, False])
def test_a_gru_keeps_its_carry(feedback: bool) -> None:
    """Gates read the masked, noisy z; the carry is neither masked nor noisy."""
    ours = layer("gru", 0.5, noise=noise.Gaussian(0.3), feedback=feedback)
    w = list(ours.rnn.parameters())
    x = torch.randn(T, 1, F).double()
    torch.manual_seed(3)
    z, carried = ours(x)
    torch.manual_seed(3)
    masks, eps = ours.dropout.mask(x, H), ours.rnn.sample_eps(x)[0]
    read = carry = torch.zeros(H).double()
    for t in range(T):
        carry = oracle.gru_cell(x[t, 0], read * masks[t, 0], carry, w)
        emitted = inject(carry, eps[t, 0], "multiplicative")
        assert_close(z[t, 0], emitted)
        read = emitted if feedback else carry
    assert_close(carried[0, 0], carry)


def test_in_eval_the_kernel_runs() -> None:
    ours = layer("lstm", 0.4).eval()
    x = torch.randn(T, N, F).double()
    assert torch.equal(ours(x)[0], ours.rnn(x)[0])


def test_gradients_of_the_loop() -> None:
    ours = layer("lstm", 0.4, noise=noise.Gaussian(0.3))
    x = torch.randn(3, 1, F, dtype=torch.float64, requires_grad=True)

    def run(x: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(1)
        return ours(x)[0]

    assert torch.autograd.gradcheck(run, (x, *ours.parameters()))


def test_checkpointing_draws_the_same_masks_or_refuses() -> None:
    x = torch.randn(T, N, F, requires_grad=True)
    drop = Dropout(0.5, generator=torch.Generator().manual_seed(1))
    recomputed = torch.utils.checkpoint.checkpoint(drop, x, use_reentrant=False)
    with pytest.raises(noisin.errors.Unsupported, match="Leave generator=None"):
        recomputed.sum().backward()
    dropped = torch.utils.checkpoint.checkpoint(Dropout(0.5), x, use_reentrant=False)
    dropped.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad == 0, dropped == 0)


@pytest.mark.parametrize("name", ["input", "between", "output", "recurrent", "words"])
@pytest.mark.parametrize("rate", [1.0, -0.1, float("nan"), True, "0.5"])
def test_bad_rates(name: str, rate: Any) -> None:
    with pytest.raises(InvalidValue, match=rf"Dropouts: {name} .* must lie in \[0, 1\)"):
        Dropouts(**{name: rate})


def test_bad_lock() -> None:
    for name in ("locked", "words_shared"):
        with pytest.raises(InvalidValue, match=f"{name} must be True or False, got 2"):
            Dropouts(**{name: 2})
