"""Randomness inside modules: shards of a batch, generators, and gradient checkpointing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

import noisin
from noisin import noise
from noisin._util import states
from noisin.errors import Unsupported
from noisin.models import Dropout
from noisin.models.layers import layer
from noisin.noise.sampling import Shard, Stochastic, set_shard
from noisin.recurrent.injection import Injection
from noisin.regularizers import (
    DropoutLSTMCell,
    HighwayCell,
    UpdateDropoutGRUCell,
    UpdateDropoutLSTMCell,
    WeightDrop,
    WeightNoise,
    Zoneout,
)

T, N, F, H = 4, 6, 3, 5
LAW = noise.Gaussian(0.5)
Make = Callable[[torch.Generator | None], nn.Module]

MODULES: dict[str, Make] = {
    "noise": lambda g: noisin.LSTM(F, H, 2, noise=LAW, generator=g),
    "noise per sequence": lambda g: noisin.GRU(F, H, noise=LAW, share="sequence", generator=g),
    "dropout": lambda g: _Stateless(Dropout(0.4, generator=g)),
    "locked dropout": lambda g: _Stateless(Dropout(0.4, locked=True, generator=g)),
    "recurrent dropout": lambda g: layer("lstm", F, H, dropout=Dropout(0.4, generator=g)),
    "noisy cell": lambda g: noisin.Unrolled(noisin.LSTMCell(F, H, noise=LAW, generator=g)),
    "zoneout by kernels": lambda g: layer(
        "lstm", F, H, injection=Injection(LAW, generator=g), zoneout=(0.3, 0.5),
        dropout=Dropout(0.4, generator=g),
    ),
    "zoneout": lambda g: noisin.Unrolled(Zoneout(nn.LSTMCell(F, H), 0.3, 0.5, generator=g)),
    "gate dropout": lambda g: noisin.Unrolled(DropoutLSTMCell(F, H, p_x=0.5, p_h=0.4, generator=g)),
    "shared gates": lambda g: noisin.Unrolled(
        DropoutLSTMCell(F, H, p_x=0.5, p_h=0.4, site="before", shared=True, generator=g)
    ),
    "weight drop": lambda g: layer(
        "lstm", F, H, injection=Injection(LAW, generator=g), weight_drop=WeightDrop(0.5)
    ),
    "weight noise": lambda g: layer(
        "gru", F, H, injection=Injection(generator=g), weight_noise=WeightNoise(0.3)
    ),
    "weight noise per step": lambda g: layer(
        "lstm", F, H, injection=Injection(LAW, generator=g),
        weight_noise=WeightNoise(0.3, "multiplicative", "step"),
    ),
    "locked gates": lambda g: noisin.Unrolled(
        DropoutLSTMCell(F, H, p_x=0.5, p_h=0.4, site="before", locked=True, generator=g)
    ),
    "highway": lambda g: noisin.Unrolled(HighwayCell(F, H, depth=2, p_h=0.4, generator=g)),
    "updates": lambda g: noisin.Unrolled(UpdateDropoutLSTMCell(F, H, p=0.4, generator=g)),
    "locked updates": lambda g: noisin.Unrolled(
        noisin.Noisy(UpdateDropoutGRUCell(F, H, p=0.4, locked_update=True, generator=g), LAW,
                     feedback=False, generator=g)
    ),
    "all of them": lambda g: layer(
        "lstm", F, H, injection=Injection(LAW, generator=g), zoneout=(0.3, 0.5),
        gate_dropout=(0.5, 0.4),
    ),
}  # fmt: skip


class _Stateless(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        return self.module(x), state


@pytest.mark.parametrize("K", [1, 2])
@pytest.mark.parametrize("name", MODULES)
def test_shards_together_are_the_whole_batch(name: str, K: int) -> None:
    """Over two windows, with K copies of the columns, and with the stream alike at the end."""
    module = MODULES[name](None).double()
    x = torch.randn(2, T, N, F, dtype=torch.float64)

    def run(columns: slice) -> tuple[Tensor, Any, Tensor]:
        torch.manual_seed(3)
        copies = x[:, :, columns].repeat(1, 1, K, 1)
        first, state = module(copies[0])
        second, state = module(copies[1], state)
        return torch.cat([first, second]), state, torch.get_rng_state()

    whole, state, stream = run(slice(None))
    parts = []
    for start in (0, 2, 4):
        set_shard(module, Shard(start, 2, N))
        parts.append(run(slice(start, start + 2)))
        assert torch.equal(parts[-1][2], stream)
    assert_close(states.join([z for z, _, _ in parts], 2), whole)
    assert_close(states.join([s for _, s, _ in parts], 2), state)
    own = states.columns(state, slice(2, 4), N)
    assert_close(parts[1][1], own)


@pytest.mark.parametrize("name", MODULES)
def test_a_generator_is_the_only_source(name: str) -> None:
    torch.manual_seed(1)
    module = MODULES[name](torch.Generator()).double()
    x = torch.randn(T, N, F, dtype=torch.float64)
    (source,) = {m.generator for m in module.modules() if isinstance(m, Stochastic)} - {None}
    found = []
    for seed in (7, 7, 8):
        before = torch.get_rng_state()
        source.manual_seed(seed)
        found.append(module(x)[0])
        assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


@pytest.mark.parametrize("name", MODULES)
def test_checkpointing_draws_the_same_again_or_refuses(name: str) -> None:
    x = torch.randn(T, N, F, dtype=torch.float64, requires_grad=True)
    module = MODULES[name](None).double()
    gradients = []
    for run in (module, lambda x: checkpoint(module, x, use_reentrant=False)):
        torch.manual_seed(5)
        gradients.append(torch.autograd.grad(run(x)[0].sin().sum(), [x]))
    assert_close(*gradients)
    module = MODULES[name](torch.Generator().manual_seed(1)).double()
    with pytest.raises(Unsupported, match="Leave generator=None"):
        checkpoint(module, x, use_reentrant=False)[0].sum().backward()
