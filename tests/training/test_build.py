"""From settings to noise: classes of the user's own, loaded when the noise is built."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from noisin.errors import InvalidValue, NoisinError
from noisin.training.build import build_noise
from noisin.training.config import NoiseConfig
from tests.training import toy

MODULE = '''
from dataclasses import dataclass
import torch

@dataclass(frozen=True)
class Uniform:
    """eps ~ U(-gamma, gamma)."""
    gamma: float
    alpha: float = 0.0
    def __post_init__(self):
        if self.gamma < 0:
            raise ValueError("the width is negative")
    @property
    def variance(self):
        return self.gamma**2 / 3
    def sample(self, shape, *, like, generator=None):
        u = torch.rand(shape, dtype=like.dtype, device=like.device, generator=generator)
        return self.gamma * (2 * u - 1)

class Scaled(Uniform):
    @classmethod
    def from_variance(cls, variance):
        return cls((3 * variance) ** 0.5)

class Biased(Uniform):
    def sample(self, shape, *, like, generator=None):
        return super().sample(shape, like=like, generator=generator) + 1

class Loud:
    def __init__(self, *args, **kwargs):
        raise AssertionError("a class that is not a noise was called")
'''


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"noises_{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    return name


def test_a_class_by_name(module: str) -> None:
    noise = build_noise(NoiseConfig(family=f"{module}:Uniform", gamma=3.0))
    assert noise is not None
    assert (type(noise).__name__, noise.variance) == ("Uniform", 3.0)
    shaped = build_noise(NoiseConfig(family=f"{module}:Uniform", gamma=3.0, alpha=2.0))
    assert repr(shaped) == "Uniform(gamma=3.0, alpha=2.0)"


def test_a_std_and_a_schedule_need_from_variance(module: str) -> None:
    schedule = {"kind": "linear", "epochs": 2}
    config = NoiseConfig(family=f"{module}:Scaled", std=0.5, schedule=schedule)
    whole, half = build_noise(config), build_noise(config, epoch=1)
    assert whole is not None
    assert half is not None
    assert math.sqrt(whole.variance) == pytest.approx(0.5)
    assert math.sqrt(half.variance) == pytest.approx(0.25)
    for needs in ({"std": 0.5}, {"gamma": 1.0, "schedule": schedule}):
        plain = NoiseConfig(family=f"{module}:Uniform", **needs)
        with pytest.raises(InvalidValue, match=r"a class method Uniform.from_variance.variance.,"):
            build_noise(plain, epoch=1)


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("{}:Uniform", {"gamma": -1.0}, "Uniform failed: ValueError: the width is negative. Check"),
        ("{}:Scaled", {"std": 1.0, "alpha": 1.0}, "from_variance failed: .*alpha"),
        ("{}:Biased", {"gamma": 1.0}, "Biased: noise must be centred"),
        ("{}:Loud", {"gamma": 1.0}, "the class needs variance and sample, and has no variance"),
        ("{}:Uniforn", {"gamma": 1.0}, "noise.family = .* has no Uniforn"),
        ("{}_not:Uniform", {"gamma": 1.0}, "noise.family = .*: there is no module .*_not"),
    ],
)
def test_what_is_refused(module: str, name: str, settings: dict[str, float], message: str) -> None:
    config = NoiseConfig(family=name.format(module), **settings)
    with pytest.raises(NoisinError, match=message):
        build_noise(config)


@pytest.mark.parametrize(
    ("name", "settings"),
    [("Biased", {}), ("Nothing", {}), ("Uniform", {"schedule": {"kind": "linear", "epochs": 2}})],
)
def test_a_noise_that_is_refused_leaves_no_folder(
    module: str, name: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(NoisinError, match=name):
        toy.fit(tmp_path / "run", noise={"family": f"{module}:{name}", "gamma": 1.0, **settings})
    assert not (tmp_path / "run").exists()
