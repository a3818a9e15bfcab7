"""Sweeps from files: what they mean, their names, and what is refused."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import pytest

from noisin.errors import InvalidValue, NoisinError
from noisin.experiments import sweep
from noisin.experiments.paper import recipes, results
from noisin.experiments.sweep import Sweep
from noisin.experiments.sweep.definition import Pruning
from noisin.experiments.sweep.reading import FOLDER
from noisin.training.config import RunConfig
from tests.cli.test_settings import ALL

FAMILIES = {"gaussian", "bernoulli", "gamma", "gumbel", "laplace", "logistic", "beta", "chi-square"}


def read(folder: Path, text: str, **flags: Any) -> Sweep:
    path = folder / "mine.toml"
    path.write_text(text)
    return sweep.read(str(path), flags)


def configs(chosen: Sweep) -> dict[str, RunConfig]:
    return {run.name: run.config for task in chosen.tasks for run in task.runs}


def test_the_families_at_equal_std() -> None:
    chosen = configs(sweep.read("manual-families"))
    noises = [config.noise for config in chosen.values()]
    assert {(n.family, n.std) for n in noises if n} == {(f, s) for f in FAMILIES for s in (0.5, 1)}
    assert {config.seed for config in chosen.values()} == {1111, 1112, 1113}
    assert len({config.hash() for config in chosen.values()}) == len(chosen) == 48


def test_ptb_small() -> None:
    chosen = configs(sweep.read("ptb-small"))
    assert {config.train.epochs for config in chosen.values()} == {14}
    assert {config.model.hidden_size for config in chosen.values()} == {200}
    described = [
        (c.noise and c.noise.family, c.noise and c.noise.std, c.model.dropout.input > 0)
        for c in chosen.values()
    ]
    assert described == [
        (None, None, False),
        ("gaussian", 0.5, False),
        ("gaussian", 1.0, False),
        ("bernoulli", 0.5, False),
        ("bernoulli", 1.0, False),
        (None, None, True),
        ("gaussian", 0.5, True),
    ]


@pytest.mark.parametrize("table", [3, 4])
def test_the_tables_of_the_paper(table: int) -> None:
    chosen = sweep.read(f"table{table}")
    cells = [cell for cell in results.CELLS if cell.table == table]
    assert [point.name for point in chosen.points] == [recipes.name_of(cell) for cell in cells]
    for task, cell in zip(chosen.tasks, cells, strict=True):
        assert task.runs[0].config == recipes.config(recipes.name_of(cell))


def test_points_and_grids_combine(tmp_path: Path) -> None:
    chosen = read(
        tmp_path,
        """
        base = "manual"
        seeds = [5, 6]
        [train]
        epochs = 2
        [grid]
        "train.lr" = [10, 20]
        noise.feedback = [true]
        [[points]]
        name = "weak"
        noise.std = 0.1
        [[points]]
        noise.family = "laplace"
        noise.gamma = 0.7
        [[points]]
        base = "ptb-small-gaussian"
        """,
        train={"bptt": "7"},
    )
    names = [task.runs[0].name for task in chosen.tasks]
    assert names[:4] == [
        "weak-lr-10-feedback-true-seed-5",
        "weak-lr-10-feedback-true-seed-6",
        "weak-lr-20-feedback-true-seed-5",
        "weak-lr-20-feedback-true-seed-6",
    ]
    assert "laplace-gamma-0.7-lr-10-feedback-true-seed-5" in names
    assert "ptb-small-gaussian-lr-20-feedback-true-seed-6" in names
    assert len(names) == 12
    last = chosen.tasks[-1].runs[0].config
    assert (last.data.name, last.train.lr, last.train.epochs, last.train.bptt) == ("ptb", 20, 2, 7)
    assert last.noise is not None
    assert last.noise.gamma == 0.5


def test_any_setting_can_be_swept(tmp_path: Path) -> None:
    """Limits and seeds too: each is a run of its own."""
    chosen = read(tmp_path, "[grid]\ntrain.epochs = [1, 2]\nseed = [3, 4]\nmodel.tied = [false]")
    assert sorted(configs(chosen)) == [
        "epochs-1-tied-false-seed-3",
        "epochs-1-tied-false-seed-4",
        "epochs-2-tied-false-seed-3",
        "epochs-2-tied-false-seed-4",
    ]
    assert len({config.hash() for config in configs(chosen).values()}) == 4


def test_optional_sections_can_be_swept(tmp_path: Path) -> None:
    chosen = read(
        tmp_path,
        """
        [grid]
        model.zoneout.p_h = [0.0, 0.1]
        [grid.train.terms]
        "mine.terms:Slow" = [1, 2.5]
        """,
    )
    found = [
        (config.model.zoneout, dict(config.train.terms)) for config in configs(chosen).values()
    ]
    assert [terms["mine.terms:Slow"] for _, terms in found] == [1.0, 2.5, 1.0, 2.5]
    assert [zoneout and zoneout.p_h for zoneout, _ in found] == [None, None, 0.1, 0.1]
    text = '[search]\ntrials = 1\ntrain.terms."mine.terms:Slow" = {low = 0.1, high = 1}'
    assert list(
        read(tmp_path, text)
        .searched({'train.terms."mine.terms:Slow"': 0.5})
        .runs[0]
        .config.train.terms
    ) == ["mine.terms:Slow"]


def test_a_search(tmp_path: Path) -> None:
    chosen = read(
        tmp_path,
        """
        base = "manual"
        seeds = [1, 2]
        [search]
        trials = 9
        sampler = "random"
        noise.std = {low = 0.1, high = 2.0, log = true}
        noise.family = {choices = ["gaussian", "beta"]}
        train.bptt = {low = 10, high = 40, step = 10}
        [pruning]
        min_epochs = 2
        """,
    )
    assert (chosen.count, chosen.runs_per_task, chosen.points) == (9, 2, ())
    assert chosen.pruning == Pruning(min_epochs=2, factor=3)
    task = chosen.searched({"noise.std": 0.25, "noise.family": "beta", "train.bptt": 20})
    assert [run.name for run in task.runs] == [
        "std-0.25-beta-bptt-20-seed-1",
        "std-0.25-beta-bptt-20-seed-2",
    ]
    config = task.runs[1].config
    assert config.noise is not None
    assert (config.noise.family, config.train.bptt, config.seed) == ("beta", 20, 2)


@pytest.mark.parametrize("name", sweep.names())
def test_a_worker_is_told_the_same(name: str) -> None:
    chosen = sweep.read(name)
    copy = Sweep.model_validate_json(chosen.model_dump_json())
    assert copy.digest == chosen.digest
    assert configs(copy) == configs(chosen)


WRONG = {
    "": "a sweep needs [grid], [[points]] or both, or else [search]",
    "[grid]\nseed=[1]\n[search]\ntrials=1": "or else [search]",
    "seeds = 3\n[grid]\ntrain.lr=[1]": "seeds must be a list of whole numbers, got 3",
    "seeds = []\n[grid]\ntrain.lr=[1]": "seeds must be a list of whole numbers, got []",
    "seeds = []\n[search]\ntrain.lr={low=1.0,high=2.0}": "seeds must be a list of whole numbers",
    "seeds = [1.5]\n[grid]\ntrain.lr=[1]": "seeds.0 must be a whole number, got 1.5",
    "seeds = [1, 1]\n[grid]\ntrain.lr=[1]": "the same run: lr-1-seed-1 and lr-1-seed-1",
    "seeds = [1]\n[grid]\nseed=[1]": "seeds are given, and so is seed",
    "seeds = [1]\nseed = 2\n[grid]\ntrain.lr=[1]": "seeds are given, and so is seed",
    "base = 'nothing'\n[grid]\nseed=[1]": "base must be a preset, got 'nothing'",
    "base = [1]\n[grid]\nseed=[1]": "base must be a preset, got [1]",
    "base = 'compare'\n[grid]\nseed=[1]": "base must be one run, and compare is several",
    "grid = 3": "[grid] must contain lists by name, got 3",
    "[grid]\nseed = 1": "[grid]: seed must be a list of values, got 1",
    "[grid]\nseed = []": "[grid]: seed must be a list of values, got []",
    "[grid]\ntrain.lrr = [1]": "point lrr-1: config: train.lrr is not a setting. Did you mean lr?",
    "[grid]\ntrain.epochs = [1, 0]": "epochs-0: config: train.epochs must be 1 or more",
    "[grid]\nnoise.std = [nan]": "noise.std must be a finite number, got nan",
    "[grid]\ntrain.lr = [1, 1.0]": "two points are the same run",
    "[grid]\nseed = [" + "1, " * 200 + "]\ntrain.lr = [" + "1, " * 200 + "]": "at most, got 40000",
    "points = 3": "[[points]] must be tables of settings, got 3",
    "points = []": "[[points]] must be tables of settings, got []",
    "[[points]]\nname = '../x'": "the name of a point becomes a folder",
    "[[points]]\nname = 3": "got 3",
    "[[points]]\nbase = 'manual'\n[grid]\nbase = ['manual']": "a point also has a base",
    "[[points]]\ntrain = 3": "train must be a section of settings, got 3",
    '[[points]]\ntrain = 3\n"train.lr" = 3': "train.lr is within train, which has a value itself",
    "search = 3": "[search] must contain ranges by name, got 3",
    "[search]\ntrain.lr = {low = 1, high = 2}": "search.trials is missing",
    "[search]\ntrials = 1": "[search] must contain a setting, such as noise.std = {low",
    "[search]\ntrials = 0\ntrain.lr = {low = 1, high = 2}": "search.trials must be 1 or more",
    "[search]\ntrials = 1\nsampler = 'x'\ntrain.lr = {low = 1, high = 2}": "search.sampler must be",
    "[search]\ntrials = 1\ntrain.lr = 3": "[search]: train.lr must be a range such as",
    "[search]\ntrials = 1\ntrain.lr = {low = 1}": "expected low and high, or choices",
    "[search]\ntrials = 1\ntrain.lr = {low = 2, high = 1}": "low must be less than high",
    "[search]\ntrials = 1\ntrain.lr = {low = 0, high = 1, log = true}": "more than 0 with log",
    "[search]\ntrials = 1\ntrain.lr = {low = 1, high = 2, log = true, step = 1}": "be combined",
    "[search]\ntrials = 1\ntrain.lr = {choices = []}": "choices must contain at least one",
    "[search]\ntrials = 1\ntrain.lr = {choices = [1], low = 1}": "cannot be combined with low",
    "[search]\ntrials = 1\ntrain.bptt = {low = 1.5, high = 3}": "train.bptt must be a whole number",
    "[search]\ntrials = 1\ntrain.bptt = {low = 0, high = 3}": "train.bptt must be 1 or more, got 0",
    "[search]\ntrials = 1\nnoise.gamma = {low = 0, high = 3}\nnoise.family = {choices = "
    "['gaussian', 'bernoulli']}": "gamma is the keep probability",
    "[search]\ntrials = 1\nno.thing = {low = 0, high = 3}": "no is not a setting",
    "pruning = 3\n[grid]\nseed=[1]": "pruning must be a section of settings, got 3",
    "[pruning]\nfactor = 1\n[grid]\nseed=[1]": "pruning.factor must be 2 or more, got 1",
    "[pruning]\nfaktor = 1\n[grid]\nseed=[1]": "pruning.faktor is not a setting",
    "[grid": "is not TOML",
}  # fmt: skip


@pytest.mark.parametrize(("text", "message"), WRONG.items())
def test_what_is_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(NoisinError) as caught:
        read(tmp_path, text)
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(tmp_path / "mine.toml"))


def test_names_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(InvalidValue, match="no sweep or TOML file 'tabel3'. Did you mean 'table3'"):
        sweep.read("tabel3")
    with pytest.raises(InvalidValue, match="Available: manual-families, ptb-small, table3, table4"):
        sweep.read("qqq")
    with pytest.raises(NoisinError, match="cannot be read: No such file"):
        sweep.read(str(tmp_path / "no.toml"))
    with pytest.raises(NoisinError, match="cannot be read: Is a directory"):
        sweep.read(str(tmp_path))


@pytest.mark.parametrize(
    "flags", [{"noise": {"std": "1"}}, {"noise": {"gamma": "1"}}, {"noise": {"family": "beta"}}]
)
def test_what_varies_cannot_be_set_for_all(flags: Any) -> None:
    with pytest.raises(InvalidValue, match="is varied by this sweep"):
        sweep.read("manual-families", flags)


def test_the_seed_cannot_be_set_where_there_are_seeds() -> None:
    with pytest.raises(InvalidValue, match="seeds are given, and so is seed"):
        sweep.read("manual-families", {"seed": "3"})


def test_the_files_in_the_docs_are_right(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "sweeps.md").read_text()
    blocks = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert [read(tmp_path, block).count for block in blocks] == [12, 2, 30]


VALUES = [
    *("true", "0", "-1", "1.5", "1e400", "nan", "[]", "[1, 2]", "{}", "{a = 1}", '""', '"x"'),
    *("{low = 1, high = 2}", "{choices = [1]}", "{choices = 3}", "{low = nan, high = 1}", "[[]]"),
    *("1979-05-27", "[1979-05-27]", "[{a = 1}]", "['x', 1]", "[9999999999999999999]", "[nan]"),
    *("{low = 1, high = 1e400}", "{choices = [[1]]}", "{step = 1}", "[-0.0, 0.0]", "['a/b']"),
]


def test_thousands_of_wrong_files(tmp_path: Path) -> None:
    """One message each; what happens to be right is a sweep."""
    draw = random.Random(1111)
    own = ["base", "seeds", "grid", "points", "search", "pruning", "search.trials", "name"]
    names = [*ALL, *(f"grid.{n}" for n in ALL), *(f"search.{n}" for n in ALL), *own * 9, "x", "a.b"]
    shipped = [path.read_bytes() for path in sorted(FOLDER.glob("*.toml"))]
    path, right = tmp_path / "wrong.toml", 0
    for _ in range(1500):
        if draw.random() < 0.4:
            content = bytearray(draw.choice(shipped))
            for _ in range(draw.randint(1, 6)):
                place = draw.randrange(len(content))
                content[place : place + draw.randint(0, 3)] = draw.randbytes(draw.randint(0, 2))
        else:
            chosen = draw.sample(names, draw.randint(1, 4))
            content = bytearray("".join(f"{n} = {draw.choice(VALUES)}\n" for n in chosen).encode())
        path.write_bytes(content)
        message = refusal(path)
        right += not message
        assert len(message) < 20_000
    assert right < 300


def refusal(path: Path) -> str:
    try:
        sweep.read(str(path))
    except NoisinError as error:
        return str(error)
    return ""
