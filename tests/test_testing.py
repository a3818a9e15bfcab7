"""The contract for noises: the families meet it, and it catches every kind of wrong noise."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.distributions import Uniform

from noisin import noise
from noisin.testing import NoiseContract

TESTS = [name for name in dir(NoiseContract) if name.startswith("test_")]


class Of(NoiseContract):
    def __init__(self, law: Any) -> None:
        self.law = law

    def noise(self) -> Any:
        return self.law


class Wrong:
    """Gaussian noise with a fault."""

    variance = 1.0

    def __init__(self, fault: str) -> None:
        self.fault = fault

    def sample(self, shape: Any, *, like: Any, generator: Any = None) -> Any:
        generator = None if self.fault == "global" else generator
        eps = torch.randn(shape, dtype=like.dtype, generator=generator)
        match self.fault:
            case "mean":
                return eps + 0.03
            case "variance":
                return eps * 1.03
            case "dtype":
                return eps.float()
            case "shared":
                return eps[..., :1].expand(shape).clone()
        return eps


LAWS = [
    *(family.from_variance(v) for family in noise.FAMILIES.values() for v in (0.2, 1.5)),
    noise.from_distribution(Uniform(0.0, 1.0)),
]


@pytest.mark.parametrize("test", TESTS)
@pytest.mark.parametrize("law", LAWS, ids=str)
def test_noises_meet_the_contract(law: Any, test: str) -> None:
    getattr(Of(law), test)()


@pytest.mark.parametrize(
    ("fault", "test"),
    [
        ("mean", "test_mean_is_zero"),
        ("variance", "test_variance_is_as_stated"),
        ("dtype", "test_draws_have_the_shape_and_dtype_asked_for_and_are_finite"),
        ("global", "test_draws_are_reproducible"),
        ("shared", "test_entries_are_independent"),
    ],
)
def test_the_contract_catches(fault: str, test: str) -> None:
    with pytest.raises(AssertionError):
        getattr(Of(Wrong(fault)), test)()


def test_the_contract_asks_for_its_hook() -> None:
    with pytest.raises(NotImplementedError, match="Override noise"):
        NoiseContract().test_mean_is_zero()
