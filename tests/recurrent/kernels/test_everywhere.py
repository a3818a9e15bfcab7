"""Layers without noise by our kernels: torch's up to rounding, in value and gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import noisin
from noisin import noise
from noisin.errors import InvalidValue
from noisin.recurrent import kernels
from noisin.recurrent.kernels import compiled
from tests.compiler import needs_compiler

DOUBLE: Any = {"dtype": torch.float64}


@pytest.mark.parametrize("options", [{}, {"bidirectional": True}, {"batch_first": True}])
@pytest.mark.parametrize("cell", ["LSTM", "GRU", "RNN"])
def test_it_is_torch(cell: str, options: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    theirs = getattr(nn, cell)(3, 4, num_layers=2, **options, **DOUBLE)
    ours = getattr(noisin, cell)(3, 4, num_layers=2, noise=noise.Gaussian(0.5), **options, **DOUBLE)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(5, 2, 3, **DOUBLE)
    expected, state = theirs(x)
    gradients = torch.autograd.grad(expected.cos().sum(), list(theirs.parameters()))
    ours.eval()
    assert torch.equal(ours(x)[0], expected)
    with kernels.everywhere():
        monkeypatch.setattr(getattr(nn, cell), "forward", None)
        monkeypatch.setattr(ours, "_kernel", None)
        found, final = ours(x)
    assert not kernels.replaces_torch(fused=False)
    assert_close((found, final), (expected, state))
    assert_close(torch.autograd.grad(found.cos().sum(), list(ours.parameters())), gradients)


def test_noise_that_is_not_fed_back() -> None:
    torch.manual_seed(0)
    layer = noisin.LSTM(3, 4, num_layers=2, noise=noise.Gaussian(0.5), feedback=False, **DOUBLE)
    x = torch.randn(5, 2, 3, **DOUBLE)
    eps = layer.sample_eps(x)
    expected = layer(x, eps=eps)
    with kernels.everywhere():
        assert_close(layer(x, eps=eps), expected)


@needs_compiler
def test_the_c_kernel_alone_and_where_torch_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    with kernels.everywhere("c"):
        assert kernels.replaces_torch(fused=False)
        assert not kernels.replaces_torch(fused=True)
        with kernels.using("eager"):
            assert not kernels.replaces_torch(fused=False)
        monkeypatch.setattr(compiled, "library", lambda: None)
        assert not kernels.replaces_torch(fused=False)
    with kernels.everywhere():
        assert kernels.replaces_torch(fused=True)


def test_another_kernel_is_refused() -> None:
    with pytest.raises(InvalidValue, match="kernels.everywhere"), kernels.everywhere("fast"):
        pass
