"""The optimizers: torch's own in value, and fused where torch can."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from noisin import training
from noisin.training.config import TrainConfig
from noisin.training.optim import adam, adamw, build_optimizer, sgd, shrink


class Operations(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(func._overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


CASES = [
    (sgd, torch.optim.SGD, {"lr": 0.5}),
    (sgd, torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "nesterov": True}),
    (adamw, torch.optim.AdamW, {"lr": 0.01}),
    (adamw, torch.optim.AdamW, {"lr": 0.01, "betas": (0.8, 0.9), "weight_decay": 0.1}),
    (adam, torch.optim.Adam, {"lr": 0.01, "betas": (0.0, 0.999), "weight_decay": 0.1}),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("ours", "torchs", "options"), CASES)
def test_it_takes_the_steps_of_the_plain_one(
    ours: Any, torchs: Any, options: dict[str, Any], dtype: torch.dtype
) -> None:
    def trained(build: Any) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = nn.LSTM(3, 4).to(dtype)
        x = torch.randn(5, 2, 3, dtype=dtype)
        optimizer = build(model.parameters())
        for _ in range(5):
            optimizer.zero_grad()
            model(x)[0].square().sum().backward()
            optimizer.step()
        return [p.detach() for p in model.parameters()]

    fused = trained(lambda parameters: ours(parameters, **options))
    plain = trained(lambda parameters: torchs(parameters, **options, foreach=False, fused=False))
    for a, b in zip(fused, plain, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    ("build", "kernel"), [(training.sgd, "_fused_sgd_"), (training.adamw, "_fused_adamw_")]
)
def test_the_fused_kernel_runs(build: Any, kernel: str) -> None:
    weight = nn.Parameter(torch.ones(3))
    optimizer = build([weight], lr=0.1)
    weight.grad = torch.ones(3)
    with Operations() as operations:
        optimizer.step()
    assert kernel in operations.names


def test_adam_without_momentum_is_rmsprop_with_the_bias_corrected() -> None:
    """w -= lr · g / (sqrt(v / (1 - β2^t)) + ε), as Melis et al. train."""
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(3, dtype=torch.float64))
    config = TrainConfig(optimizer="adam", lr=0.1, beta1=0, weight_decay=0.5)
    optimizer = build_optimizer(config, nn.ParameterList([weight]))
    expected, v = weight.detach().clone(), torch.zeros(3, dtype=torch.float64)
    for t in range(1, 4):
        weight.grad = torch.randn(3, dtype=torch.float64)
        g = weight.grad + 0.5 * expected
        v = 0.999 * v + 0.001 * g.square()
        expected = expected - 0.1 * g / ((v / (1 - 0.999**t)).sqrt() + 1e-8)
        optimizer.step()
    torch.testing.assert_close(weight.detach(), expected)


def test_weights_shrink_by_a_share_of_themselves() -> None:
    weights: list[torch.Tensor] = [nn.Parameter(torch.tensor([8.0, -4.0])), torch.ones(1)]
    shrink(weights, 0.25)
    assert [w.tolist() for w in weights] == [[6.0, -3.0], [0.75]]


@pytest.mark.parametrize("build", [sgd, adamw])
def test_groups_of_parameters_have_options_of_their_own(build: Any) -> None:
    a, b, c = (nn.Parameter(torch.zeros(2)) for _ in range(3))
    optimizer = build([{"params": [a, b]}, {"params": c, "lr": 0.5}], lr=0.1)
    assert [group["lr"] for group in optimizer.param_groups] == [0.1, 0.5]
    assert all(group["fused"] for group in optimizer.param_groups)


@pytest.mark.parametrize("build", [sgd, adamw])
def test_elsewhere_one_call_serves_all_parameters(build: Any) -> None:
    optimizer = build([nn.Parameter(torch.zeros(2, device="meta"))], lr=0.1)
    assert not optimizer.defaults["fused"]
    assert optimizer.defaults["foreach"]


def test_names_load_when_first_used() -> None:
    assert {"Average", "adamw", "sgd"} <= set(dir(training))
    with pytest.raises(AttributeError, match="'noisin.training' has no attribute 'nonsense'"):
        _ = training.nonsense
