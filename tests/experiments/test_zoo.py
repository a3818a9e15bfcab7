"""The recipes of the zoo: built at true size, and trained at toy size."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from noisin._util.settings import merge
from noisin.data import Batch
from noisin.experiments import presets
from noisin.experiments.paper import recipes, results, systems, zoo
from noisin.experiments.records import point
from noisin.tasks import Observation
from noisin.training import RunConfig
from noisin.training.build import build_model, build_noise
from tests.training import toy

# RECIPES section 6, and AWD-LSTM's own count.
KNOWN = {
    "ptb-awd": 24_221_600,
    "ptb-highway": 23_482_400,
    "ptb-melis-10m": 9_997_549,
    "ptb-melis": 23_979_620,
    "wt2-melis": 23_982_129,
    "ptb-fraternal": 9_997_440,
    "ptb-pointer-sentinel": 20_204_200,
    "ptb-awd-mos": 21_500_620,
    "wt2-awd-mos": 34_909_528,
}
SMALLEST = {"embedding_size": 12, "last_size": 14}
NO_RATES: dict[str, Any] = {
    "dropout": dict.fromkeys(("input", "between", "output", "recurrent", "words"), 0.0),
    "zoneout": {"p_h": 0.0, "p_c": 0.0},
    "gate_dropout": {"x": 0.0, "h": 0.0},
    "weight_drop": {"p": 0.0},
    "update_dropout": {"p": 0.0},
    "projection": {"dropout": 0.0},
    "head": {"dropout": 0.0},
}
SENTENCE = np.random.RandomState(0).permutation(np.arange(24) % toy.WORDS).astype(np.int32)
REPEATED = dataclasses.replace(
    toy.corpus(), train=np.tile(SENTENCE, 80), valid=np.tile(SENTENCE, 4), test=SENTENCE
)


def shrunk(name: str, **train: Any) -> dict[str, Any]:
    """The settings of a recipe with two layers at most, of a few units."""
    settings = zoo.RECIPES[name]
    model: dict[str, Any] = {
        size: units for size, units in SMALLEST.items() if size in settings["model"]
    }
    if "cell_arguments" in settings["model"]:
        model["cell_arguments"] = {"depth": 2}
    model |= {"hidden_size": 16, "num_layers": min(2, settings["model"].get("num_layers", 2))}
    limits = {"batch_size": 4, "bptt": 10, "epochs": 1, "eval_batch_size": 4, "clean_tokens": 0}
    small = {"model": model, "train": limits | train, "threads": 1}
    return merge(settings, small)


def without_rates(settings: dict[str, Any]) -> dict[str, Any]:
    """Without noise and terms, and with all rates of dropout and its kind at zero."""
    rates = {name: value for name, value in NO_RATES.items() if name in settings["model"]}
    if settings["model"].get("head", {}).get("kind") == "pointer-sentinel":
        del rates["head"]
    terms = dict.fromkeys(settings["train"].get("terms", {}), 0.0)
    plain = {section: given for section, given in settings.items() if section != "noise"}
    return merge(plain, {"model": rates, "train": {"terms": terms}})


@pytest.mark.parametrize("name", zoo.RECIPES)
def test_parameters_at_true_size(name: str) -> None:
    recipe = zoo.SYSTEM_RECIPES[name]
    with torch.device("meta"):
        model = build_model(zoo.config(name), Observation("categorical", recipe.words))
    assert sum(p.numel() for p in model.parameters()) == recipe.parameters
    assert recipe.parameters == KNOWN.get(name, recipe.parameters)


@pytest.mark.parametrize("name", zoo.RECIPES)
def test_every_recipe_trains_two_steps(name: str, tmp_path: Path) -> None:
    """With its own rates, noise, optimizer, objective and terms."""
    settings = shrunk(name, tokens=80, variable_length=False)
    record = toy.train(RunConfig.parse(settings), tmp_path / "run")
    assert record.summary is not None
    (line,) = record.metrics
    assert line["step"] == 2
    assert math.isfinite(record.summary["best"]["test"]["nats"])


FITTING = {"optimizer": "adam", "lr": 0.05, "clip": 0.25, "lr_decay": 1.0, "bptt": 8, "epochs": 3}


@pytest.mark.long
@pytest.mark.parametrize("name", zoo.RECIPES)
def test_every_system_overfits_a_sentence(name: str, tmp_path: Path) -> None:
    """Of 24 words, each of 12 twice. Steps this large spoil an epoch now and then, but not all."""
    settings = without_rates(shrunk(name, variable_length=False, **FITTING))
    record = toy.train(RunConfig.parse(settings), tmp_path / "run", REPEATED)
    assert min(line["valid"]["nats"] for line in record.metrics) < 0.5 * math.log(toy.WORDS)


@pytest.mark.long
@pytest.mark.parametrize("name", ["ptb-awd-mos-gamma", "ptb-small-lstm-gaussian"])
def test_a_system_overfits_a_sentence_with_its_noise(name: str, tmp_path: Path) -> None:
    """More slowly, and scored without it."""
    settings = without_rates(shrunk(name, variable_length=False, **FITTING | {"epochs": 6}))
    noisy = settings | {"noise": zoo.RECIPES[name]["noise"]}
    record = toy.train(RunConfig.parse(noisy), tmp_path / "run", REPEATED)
    assert min(line["valid"]["nats"] for line in record.metrics) < 0.5 * math.log(toy.WORDS)


@pytest.mark.long
def test_the_last_row_takes_a_step_at_true_size() -> None:
    """On one window of its recipe, of random words, which it then predicts a little better."""
    config = zoo.config("ptb-awd-mos-gamma")
    torch.manual_seed(config.seed)
    model = build_model(config, Observation("categorical", 10_000)).train()
    words = torch.randint(10_000, (config.train.bptt + 1, config.train.batch_size))
    batch, parameters = Batch(words[:-1], words[1:]), list(model.parameters())
    losses = []
    for _ in range(2):
        loss = model.loss(batch)
        losses.append(loss.mean.item())
        gradients = torch.autograd.grad(loss.objective, parameters)
        norm = torch.stack([g.norm() for g in gradients]).norm()
        with torch.no_grad():
            for parameter, gradient in zip(parameters, gradients, strict=True):
                parameter -= config.train.lr * min(1.0, config.train.clip / norm) * gradient
    assert losses[0] == pytest.approx(math.log(10_000), abs=0.5)
    assert losses[1] < losses[0] - 0.01


def test_every_row_of_the_last_table_has_one_recipe() -> None:
    citations = [citation for recipe in zoo.LARGE for citation in recipe.rows]
    assert sorted(citations, key=str) == sorted((row.citation for row in results.SYSTEMS), key=str)
    for row in results.SYSTEMS:
        recipe, evaluation = zoo.of_row(row.citation)
        assert zoo.config(recipe.name).data.name == "ptb"
        if row.parameters and "14 M" not in row.note:
            assert row.parameters == pytest.approx(recipe.parameters / 1e6, abs=1)
        if evaluation == "static":
            assert recipe.published == (row.dev, row.test)


def test_no_recipe_is_another() -> None:
    keys = {point(zoo.config(name)) for name in zoo.RECIPES}
    assert len(keys) == len(zoo.RECIPES)
    assert not keys & {point(recipes.config(name)) for name in recipes.RECIPES}
    assert not zoo.RECIPES.keys() & recipes.RECIPES.keys()
    assert {presets.read(name).name for name in zoo.RECIPES} == zoo.RECIPES.keys()


def test_the_noise_of_the_last_row() -> None:
    """The caption's shape 2 and scale 0.4, centred and scaled: a std of 0.4."""
    config, below = zoo.config("ptb-awd-mos-gamma"), zoo.config("ptb-awd-mos")
    noise: Any = build_noise(config.noise)
    assert (type(noise).__name__, noise.alpha, noise.gamma) == ("Gamma", 2.0, 0.4)
    assert noise.variance == pytest.approx(0.16)
    assert config.noise is not None
    assert config.noise.mode == "multiplicative"
    assert (config.train.epochs, below.train.epochs) == (400, 1000)
    train = config.train.model_copy(update={"epochs": 1000})
    assert config.model_copy(update={"noise": None, "train": train}) == below


@pytest.mark.parametrize("system", zoo.SMALL_SYSTEMS)
def test_small_systems_differ_by_noise_alone(system: str) -> None:
    plain, noisy = (zoo.config(f"ptb-small-{system}{suffix}") for suffix in ("", "-gaussian"))
    assert plain.noise is None
    assert noisy.noise is not None
    assert noisy.noise.known_std == 0.5
    assert noisy.model_copy(update={"noise": None}) == plain
    assert (plain.model.hidden_size, plain.model.num_layers) == (200, 2)
    assert (plain.train.batch_size, plain.train.epochs) == (20, 15)


def test_a_summed_loss_takes_the_same_step_as_its_mean() -> None:
    """w - lr · clipped(gradient), of a sum over 35 steps and of its mean."""
    gradient = torch.tensor([0.3, -0.4], dtype=torch.float64)  # of the mean
    for clip in (5.0, 50.0):
        ours = systems.summed(1.0, clip)
        total = 35 * gradient
        theirs = 1.0 * total * min(1.0, clip / float(total.norm()))
        mine = ours["lr"] * gradient * min(1.0, ours["clip"] / float(gradient.norm()))
        torch.testing.assert_close(mine, theirs)
