"""Recipes: each is a cell of the paper, is built, and takes a step."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

import noisin
from noisin.data import Windows
from noisin.experiments import presets
from noisin.experiments.paper import recipes, results
from noisin.models import PRESETS
from noisin.regularizers import DropoutLSTMCell, ZoneoutMasks
from noisin.tasks import Observation
from noisin.training import RunConfig
from noisin.training.build import build_model, build_noise
from tests.training import toy

CORPUS = toy.corpus()
TOY = {"hidden_size": 6}
SMALLER = {"batch_size": 4, "bptt": 10, "epochs": 1, "tokens": 40, "eval_batch_size": 40}
DROPOUT = {  # input, between, output, recurrent; products with x and with h; zoneout of h and of c
    None: (0.0, 0.0, 0.0, 0.0, None, None),
    "dropout": (0.5, 0.4, 0.5, 0.0, None, None),
    "recurrent-dropout": (0.5, 0.0, 0.5, 0.4, None, None),
    "gate-dropout": (0.0, 0.0, 0.5, 0.0, (0.5, 0.4), None),
    "zoneout": (0.5, 0.4, 0.5, 0.0, None, (0.025, 0.25)),
}
# At toy size all others are one of these, but for the gamma.
DISTINCT = [name for name in recipes.RECIPES if name.startswith(("ptb-small", "figure1"))]


def rates(config: RunConfig) -> tuple[Any, ...]:
    dropout, gates, zoneout = (
        *(config.model.dropout, config.model.gate_dropout, config.model.zoneout),
    )
    return (
        *(dropout.input, dropout.between, dropout.output, dropout.recurrent),
        gates and (gates.x, gates.h),
        zoneout and (zoneout.p_h, zoneout.p_c),
    )


@pytest.mark.parametrize("reading", recipes.READINGS)
@pytest.mark.parametrize("cell", results.CELLS, ids=recipes.name_of)
def test_a_recipe_is_its_cell(cell: results.TableCell, reading: recipes.Reading) -> None:
    """Text, size, dropout and noise are the row's, and all else is the config's own default."""
    config = recipes.config(recipes.name_of(cell, reading))
    assert config.data.name == cell.corpus
    assert (config.model.num_layers, config.model.hidden_size) == PRESETS[cell.size]
    assert rates(config) == DROPOUT[reading if cell.dropout else None]
    noise: Any = build_noise(config.noise)
    if noise is None:
        assert cell.gamma is None
    else:
        assert config.noise is not None
        assert (config.noise.family, config.noise.gamma) == (cell.family, cell.gamma)
        assert noise.std == cell.std
        default = {"mode": "multiplicative", "feedback": True, "noisy_layers": "all"}
        assert config.noise.model_dump(include=set(default)) == default, "Algorithm 1"
    plain = RunConfig()
    update = {"dropout": plain.model.dropout, "gate_dropout": None, "hidden_size": 650}
    model = config.model.model_copy(update=update)
    assert model == plain.model
    assert (config.train, config.seed) == (plain.train, 1111)


def test_every_cell_has_its_recipe_and_every_recipe_but_the_small_its_cell() -> None:
    of_cells = {recipes.name_of(c, reading) for c in results.CELLS for reading in recipes.READINGS}
    others = {
        name
        for name in recipes.RECIPES
        if not any(part in name for part in ("-small", "figure1", "-zoneout"))
    }
    assert of_cells == others
    assert len(of_cells) == 4 * 4 * 9


@pytest.mark.parametrize("name", [name for name in recipes.RECIPES if "zoneout" in name])
def test_zoneout_is_added_to_the_recipe_with_dropout(name: str) -> None:
    config, below = recipes.config(name), recipes.config(name.replace("zoneout", "dropout"))
    assert rates(config) == DROPOUT["zoneout"]
    model = config.model.model_copy(update={"zoneout": None})
    assert config.model_copy(update={"model": model}) == below


@pytest.mark.parametrize("corpus", ["ptb", "wt2"])
def test_the_noise_of_the_small_has_one_std(corpus: str) -> None:
    small = [name for name in recipes.RECIPES if name.startswith(f"{corpus}-small")]
    assert len(small) == 5 * 9
    for name in small:
        config = recipes.config(name)
        assert (config.model.num_layers, config.model.hidden_size) == PRESETS["small"]
        noise: Any = build_noise(config.noise)
        assert noise is None or noise.std == pytest.approx(0.5)
        assert noise is None or name.endswith(f"-{config.noise.family}")


def test_figure_1() -> None:
    clean, noisy = recipes.config("figure1-clean"), recipes.config("figure1-noisy")
    assert noisy.model_copy(update={"noise": None}) == clean, "the settings are the same for both"
    assert (clean.model.cell, clean.model.num_layers, clean.model.hidden_size) == (
        *("elman-sigmoid", 1, 256),
    )
    assert noisy.noise is not None
    assert (noisy.noise.family, noisy.noise.mode) == ("gaussian", "additive")
    assert clean.data.name == "ptb"


def test_the_code_in_the_docs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "tables.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["config"] == recipes.config("wt2-large-dropout-beta")
    assert names["config"].noise.gamma == 0.6
    assert (round(names["cell"].std, 2), names["cell"].test) == (0.77, 77.9)


HASHES = {
    "ptb-small": "a3783dc557f43e1cc191687290bd9fe8bda819cfbfce0a5f364d419c83d55b40",
    "ptb-small-gaussian": "5212399c903108d3da928aff2cf22143869ae2360fe37ffab3ef406efa4dae99",
    "ptb-medium-gaussian": "9a318a5a62e1cc8da8bd01c7be8d5f5109602f115367f00c8a1fde4a930c4e7f",
}


@pytest.mark.parametrize("name", HASHES)
def test_the_settings_of_runs_that_were_made_stay_as_they_are(name: str) -> None:
    assert recipes.config(name).hash() == HASHES[name]


@pytest.mark.parametrize("name", DISTINCT)
def test_every_recipe_is_built_and_takes_a_step(name: str) -> None:
    """At toy size, with its own dropout, noise, step and clip; the loss is that of guessing."""
    config = recipes.config(name)
    config = config.model_copy(update={"model": config.model.model_copy(update=TOY)})
    model = build_model(config, Observation("categorical", len(CORPUS.vocab)))
    optimizer = torch.optim.SGD(model.parameters(), lr=config.train.lr)
    windows = Windows(CORPUS.train, 4, 10)
    before = [p.detach().clone() for p in model.parameters()]
    window = next(iter(windows.epoch(0)))
    loss = model.loss(window).mean
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), config.train.clip)
    optimizer.step()
    assert float(loss.detach()) == pytest.approx(torch.tensor(12.0).log().item(), abs=0.3)
    for old, new in zip(before, model.parameters(), strict=True):
        assert new.isfinite().all()
        assert not torch.equal(old, new)
    other = model.loss(window).mean
    again = model.loss(window).mean
    random = config.noise is not None or any(rates(config))
    assert torch.equal(other, again) != random


def test_the_recipes_have_the_parts_that_they_name() -> None:
    def layers(name: str) -> Any:
        config = recipes.config(name)
        config = config.model_copy(update={"model": config.model.model_copy(update=TOY)})
        model = build_model(config, Observation("categorical", len(CORPUS.vocab)))
        return model.layers

    for rnn in (layer.rnn for layer in layers("ptb-small-gate-dropout-beta")):
        assert isinstance(rnn.cell, noisin.Noisy)
        assert isinstance(rnn.cell.cell, DropoutLSTMCell)
        assert (rnn.cell.cell.p_x, rnn.cell.cell.p_h, rnn.cell.cell.site) == (0.5, 0.4, "after")
        assert not rnn.cell.cell.shared, "eight masks"
    for layer in layers("wt2-small-zoneout"):
        assert isinstance(layer.zoneout, ZoneoutMasks)
        assert (layer.zoneout.p_h, layer.zoneout.p_c) == (0.025, 0.25)
        assert isinstance(layer.rnn, noisin.LSTM)
    for layer in layers("ptb-small-recurrent-dropout-gaussian"):
        assert isinstance(layer.rnn, noisin.LSTM)


@pytest.mark.parametrize(
    "name",
    [
        "ptb-medium-recurrent-dropout-chi-square",
        "ptb-small-gate-dropout-gaussian",
        "ptb-small-zoneout",
        "figure1-noisy",
    ],
)
def test_the_trainer_takes_a_recipe(name: str, tmp_path: Path) -> None:
    flags: dict[str, Any] = {"model": TOY, "train": SMALLER, "threads": 1}
    (config,) = presets.read(name).configs(flags).values()
    record = toy.train(config, tmp_path / name, CORPUS)
    assert record.summary is not None
    assert record.summary["best"]["test"]["nats"] > 0


@pytest.mark.parametrize(
    ("corpus", "size", "words", "parameters"),
    [
        ("ptb", "medium", 10_000, 13_280_400),
        ("ptb", "large", 10_000, 51_034_000),
        ("wt2", "medium", 33_278, 28_434_378),
        ("wt2", "large", 33_278, 85_974_278),
        ("ptb", "small", 10_000, 2_653_200),
    ],
)
def test_parameters_at_true_size(corpus: str, size: str, words: int, parameters: int) -> None:
    """The paper's 13M and 51M: the weights are tied, and neither noise nor dropout adds any."""
    for name in recipes.RECIPES:
        if name.startswith(f"{corpus}-{size}"):
            with torch.device("meta"):
                model = build_model(recipes.config(name), Observation("categorical", words))
            assert sum(p.numel() for p in model.parameters()) == parameters, name
