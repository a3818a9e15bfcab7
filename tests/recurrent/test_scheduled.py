"""Noise in a model while it trains: what all callbacks have in common, without a framework."""

from __future__ import annotations

import copy
import importlib.util
import pickle
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import noisin
from noisin import noise
from noisin.errors import NoisinError, Unavailable
from noisin.noise.schedules import scaled
from noisin.recurrent.scheduled import ScheduledNoise

LAW = noise.Gaussian(0.4)


def model() -> nn.ModuleDict:
    """Torch's RNN, and one that has noise of its own."""
    return nn.ModuleDict({"a": nn.LSTM(2, 3), "b": noisin.GRU(2, 3, noise=noise.Gamma(0.1))})


def test_converts_follows_its_schedule_and_gives_everything_back() -> None:
    m = model()
    before = {name: dict(vars(module)) for name, module in m.items()}
    scheduled = ScheduledNoise(LAW, schedule=noise.Ramp("linear", epochs=4), feedback=False)
    scheduled.begin(m)
    assert isinstance(m["a"], noisin.LSTM)
    assert not m["a"].feedback
    for epoch, std in enumerate((0.0, 0.1, 0.2, 0.3, 0.4, 0.4)):
        scheduled.epoch(epoch)
        assert [rnn.noise.std for rnn in m.values()] == pytest.approx([std, std])
    scheduled.end()
    assert [type(rnn) for rnn in m.values()] == [nn.LSTM, noisin.GRU]
    assert m["b"].noise == noise.Gamma(0.1)
    assert {name: dict(vars(rnn)).keys() for name, rnn in m.items()} == {
        name: attributes.keys() for name, attributes in before.items()
    }
    scheduled.end()  # twice, as after an error and a teardown


def test_where_and_a_second_beginning() -> None:
    m, other = model(), model()
    scheduled = ScheduledNoise(LAW, where="a")
    scheduled.begin(m)
    scheduled.begin(other)
    assert type(m["a"]) is nn.LSTM, "the first model is given back"
    assert isinstance(other["a"], noisin.LSTM)
    assert other["b"].noise == noise.Gamma(0.1)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda s: pickle.loads(pickle.dumps(s))])
def test_a_copy_has_converted_nothing(copied: Any) -> None:
    scheduled, m = ScheduledNoise(LAW, schedule=noise.Ramp("cosine", epochs=3)), model()
    scheduled.begin(m)
    twin = copied(scheduled)
    twin.end()
    assert isinstance(m["a"], noisin.LSTM)


@dataclass(frozen=True)
class Uniform:
    """A custom noise that has one strength only."""

    variance: float = 1 / 3

    def sample(self, shape: Any, *, like: Tensor, generator: Any = None) -> Tensor:
        u = torch.rand(shape, dtype=like.dtype, device=like.device, generator=generator)
        return 2 * u - 1


def test_the_strength_of_a_noise() -> None:
    assert scaled([LAW, None], 0.5) == [noise.Gaussian(0.2), None]
    assert scaled(noise.Beta(0.4, alpha=3.0), 0.5) == noise.Beta(0.1, alpha=3.0)
    assert scaled(Uniform(), 1) == Uniform()
    for family in noise.FAMILIES.values():
        assert scaled(family.from_variance(0.5), 0.3).std == pytest.approx(0.3 * 0.5**0.5)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ScheduledNoise(0.5), "noise.Gaussian"),
        (lambda: ScheduledNoise(LAW, schedule="linear"), "a function from an epoch to a share"),
        (lambda: ScheduledNoise(LAW, mode="x"), "mode must be"),
        (lambda: ScheduledNoise(LAW, schedule=lambda epoch: -1.0), "share must be"),
        (lambda: ScheduledNoise(Uniform(), schedule=noise.Ramp("linear")), "from_variance"),
        (lambda: noise.Ramp("sudden"), "kind must be one of 'constant', 'linear', 'cosine'"),
        (lambda: noise.Ramp("linear", epochs=0), "epochs must be"),
        (lambda: noise.Ramp("linear", start=-1), "start must be"),
    ],
)
def test_bad_arguments_are_refused_before_training(make: Any, message: str) -> None:
    with pytest.raises(NoisinError, match=message):
        make()


@pytest.mark.parametrize(
    ("package", "name"),
    [
        ("lightning", "NoiseCallback"),
        ("huggingface", "NoiseTrainerCallback"),
        ("skorch", "NoiseNetCallback"),
    ],
)
def test_without_the_framework_there_is_one_message(package: str, name: str) -> None:
    framework = "transformers" if package == "huggingface" else package
    if importlib.util.find_spec(framework):
        pytest.skip(f"{framework} is installed")
    callback = getattr(importlib.import_module(f"noisin.{package}"), name)
    with pytest.raises(Unavailable, match=f"{name} needs {framework}.*pip install {framework}"):
        callback(LAW)
