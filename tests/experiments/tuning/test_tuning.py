"""What is tuned, where a search starts, and the file with its result."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch

from noisin import analysis, noise
from noisin.errors import InvalidValue
from noisin.experiments import presets
from noisin.experiments.tuning import start
from noisin.experiments.tuning.driver import as_toml
from noisin.experiments.tuning.tunable import Tunable, dropout_rate
from noisin.noise.ranges import LAWS
from noisin.tasks import Text
from noisin.training import RunConfig, RunRecord, restore
from noisin.training.config.noise import LARGEST_STD
from tests.training import toy


def test_every_preset_is_the_same_after_toml() -> None:
    for name in presets.names():
        for config in presets.read(name).configs().values():
            assert RunConfig.parse(tomllib.loads(as_toml(config))) == config


def test_odd_settings_are_the_same_after_toml() -> None:
    settings: dict[str, Any] = {
        "data": {"name": 'a "b"\\c\x7f é \u2028'},
        "train": {"terms": {"mine.terms:Slow": 1e-17, "l1": 2.0}, "minutes": 1e16},
        "noise": {"family": "mine:Own", "std": 0.5, "schedule": {"kind": "cosine"}},
    }
    config = RunConfig.parse(settings)
    assert RunConfig.parse(tomllib.loads(as_toml(config))) == config


def test_what_is_open_is_set_and_nothing_else() -> None:
    tunable = Tunable.of("ptb-medium-dropout-gumbel", {"train": {"lr": "7"}}, "noise")
    config = tunable.config(0.4, lr=14.0, epochs=3)
    assert config.noise is not None
    assert (config.noise.std, config.noise.gamma, config.noise.family) == (0.4, None, "gumbel")
    assert (config.train.lr, config.train.epochs, tunable.lr) == (14.0, 3, 7.0)
    assert config.model == tunable.clean.model

    other = Tunable.of("ptb-medium-dropout-gumbel", {}, "dropout")
    assert other.config(1.0).noise == presets.read(other.name).configs()[other.name].noise
    dropout = other.config(1.0).model.dropout
    assert (dropout.input, dropout.between, dropout.output) == (0.5, 0.5, 0.5)
    assert other.mark != tunable.mark


def test_any_rates_are_tuned_alone_or_together_with_noise() -> None:
    gates = Tunable.of("manual", {}, "model.gate_dropout.x,model.gate_dropout.h")
    found = gates.config(1.0)
    assert found.model.gate_dropout is not None
    assert (found.model.gate_dropout.x, found.model.gate_dropout.h) == (0.5, 0.5)
    assert found.noise == presets.read("manual").configs()["manual"].noise
    both = Tunable.of("manual", {}, "noise,dropout").config(0.5)
    assert both.noise is not None
    assert (both.noise.std, both.model.dropout.output) == (0.5, 0.2)


@pytest.mark.parametrize(
    "what",
    ["zoneout", "model.zoneout", "model.hidden_size", "train.beta1", "noise,", "model.p", ""],
)
def test_what_is_no_rate_is_refused(what: str) -> None:
    with pytest.raises(InvalidValue, match="must be noise, dropout, or rates by their names"):
        Tunable.of("manual", {}, what)


@pytest.mark.parametrize("what", ["noise,noise", "dropout,model.dropout.input"])
def test_what_is_named_twice_is_refused(what: str) -> None:
    with pytest.raises(InvalidValue, match=f"must name nothing twice, got {what}"):
        Tunable.of("manual", {}, what)


def test_flags_of_what_is_not_tuned_are_kept() -> None:
    """And those of dropout name the rates that are tuned; a preset may have any strength."""
    noisy = Tunable.of("manual", {"noise": {"std": "0.4"}}, "dropout").config(1.0)
    assert noisy.noise is not None
    assert (noisy.noise.std, noisy.model.dropout.output) == (0.4, 0.5)
    rates = Tunable.of("manual", {"model": {"dropout": {"output": "0.1"}}}, "dropout").rates
    assert rates == ["model.dropout.output"]
    path = Tunable.of("ptb-medium-gaussian", {}, "noise")
    assert path.settings["noise"]["gamma"] == 1.1


def test_a_learning_rate_whose_double_is_not_valid_stays() -> None:
    adam = {"train": {"optimizer": "adam", "lr": 0.7}}
    assert Tunable.of("manual", adam, "noise").lr is None
    adam["train"]["lr"] = 0.1
    assert Tunable.of("manual", adam, "noise").lr == 0.1


@pytest.mark.parametrize("family", LAWS)
def test_every_family_has_the_stds_that_are_tried(family: str) -> None:
    tunable = Tunable.of("manual", {"noise": {"family": family}}, "noise")
    assert all(tunable.config(std).noise for std in (0.0, 0.001, 1.0, 1000.0))
    with pytest.raises(InvalidValue, match=r"noise\.std"):
        tunable.config(2 * LARGEST_STD)


def test_rates_of_dropout_have_the_variance_of_the_noise() -> None:
    for std in (0.1, 0.4, 1.6):
        rate = dropout_rate(std)
        assert noise.Bernoulli(1 - rate).variance == pytest.approx(std**2, rel=1e-3)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> RunRecord:
    """A run without noise that has learnt something."""
    out = tmp_path_factory.mktemp("clean")
    return toy.fit(out, noise={"std": 0.0, "gamma": None}, train=FAST, model=PLAIN)


FRACTION = 0.01
FAST = {"epochs": 12, "optimizer": "adam", "lr": 0.03, "averaging": "none"}
PLAIN = {"hidden_size": 12, "dropout": {}}
STRONG = {"std": 0.1, "gamma": None, "feedback": False, "noisy_layers": "last"}


def found(record: RunRecord, objective: str, **noise: Any) -> tuple[start.Start, Text]:
    settings = toy.config(model=PLAIN, noise=STRONG | noise, train=FAST | {"objective": objective})
    tunable = Tunable("toy", settings.model_dump(exclude_none=True), "noise")
    task = Text.from_config(settings, toy.corpus())
    return start.find_start(tunable, record, task, FRACTION), task


def test_the_start_is_where_the_explicit_regularizer_is_the_fraction(trained: RunRecord) -> None:
    """By the closed form of the theory, on the same weights and data."""
    penalty, task = found(trained, "penalty")
    model = restore(trained, "last", "raw").model
    total, risk, count, state = 0.0, 0.0, 0, None
    regularizer = analysis.Penalty(model.head.likelihood, noise.Gaussian(1.0))
    with torch.no_grad():
        for batch in task.batches("train"):
            risk += float(model.loss(batch, state).mean) * batch.count
            z, state = model.encode(batch.x, state)
            total += float(regularizer(z, model.head.V, model.head.bias).sum())
            count += batch.count
    assert penalty.risk == pytest.approx(risk / count, rel=1e-4)
    expected = (FRACTION * risk / total) ** 0.5
    assert 0.01 < expected < 1.0
    assert penalty.std == pytest.approx(expected, rel=1e-3)
    sampled, _ = found(trained, "noise")
    assert sampled.std == pytest.approx(expected, rel=0.25)  # Monte Carlo, and higher orders


def test_noise_that_is_fed_back_adds_more(trained: RunRecord) -> None:
    last, _ = found(trained, "noise")
    everywhere, _ = found(trained, "noise", feedback=True, noisy_layers="all")
    assert everywhere.std < last.std
    assert found(trained, "noise")[0] == last  # the same whenever it is measured


def test_a_search_of_a_comparison_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "two.toml"
    path.write_text("[compare.a]\n[compare.b]\n", encoding="utf-8")
    with pytest.raises(InvalidValue, match=r"two: has several runs to compare \(a, b\)"):
        Tunable.of(str(path), {}, "noise")
