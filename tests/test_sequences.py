"""The results on sequences: the tables of the page are those of the records."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from noisin.experiments import formats
from noisin.experiments.collection import collect
from noisin.experiments.formats import Sheet
from noisin.experiments.records import Run
from noisin.experiments.seeds import Mean
from noisin.experiments.sweep import read

RESULTS = Path(__file__).parents[1] / "results"
PAGE = (RESULTS / "README.md").read_text(encoding="utf-8")
RUNS = collect(RESULTS / "sequences")
MODELS = {"lstm": "LSTM", "gru": "GRU", "min-gru": "minGRU", "vrnn": "VRNN", "srnn": "SRNN"}
ARMS = ("none", "dropout", "noise")
SEEDS = [1111, 1112, 1113]
HEADS = (
    *("model", "arm", "strength", "valid", "test", "valid, frames 2 to T", "test, frames 2 to T"),
    *("train", "best epoch"),
)


def finals() -> dict[str, dict[tuple[str, str], list[Run]]]:
    """The runs of the second stage by data set, and by model and arm, in the order of the page."""
    found: dict[str, dict[tuple[str, str], list[Run]]] = defaultdict(dict)
    for run in sorted(RUNS, key=lambda run: run.config.seed):
        sweep, arm = run.folder.parent.name, run.folder.name.split("-seed-")[0]
        if sweep.endswith("-final"):
            data = run.config.data.name
            model = sweep.removeprefix(f"{data}-").removesuffix("-final")
            found[data].setdefault((model, arm), []).append(run)
    for arms in found.values():
        arms.update({key: arms.pop(key) for key in sorted(arms, key=_place)})
    return found


def _place(key: tuple[str, str]) -> tuple[int, int]:
    model, arm = key
    return list(MODELS).index(model), ARMS.index(arm)


FINALS = finals()


def strength(run: Run) -> str:
    config = run.config
    if config.noise is not None:
        return f"std {config.noise.std:g}"
    rate = config.model.dropout.output
    return f"rate {rate:g}" if rate else ""


def scores(runs: list[Run], name: str) -> str:
    values = [run.best[name] for run in runs if run.best]
    return Mean.of(values).shown(runs[0].unit)


def after_first(run: Run, split: str = "test") -> float | None:
    """The score of a split without the first frame of each piece."""
    kept: list[dict[str, Any]] = [
        line["conventions"]
        for line in run.evaluations
        if line["split"] == split and line["method"] in ("exact", "elbo") and "conventions" in line
    ]
    return kept[-1]["after_first"]["nats"] if kept else None


def later(runs: list[Run], split: str) -> str:
    found = [value for run in runs if (value := after_first(run, split)) is not None]
    return Mean.of(found).shown(runs[0].unit) if len(found) == len(runs) else "-"


def row(key: tuple[str, str], runs: list[Run]) -> tuple[str, ...]:
    model, arm = key
    epochs = sorted(run.best["epoch"] for run in runs if run.best)
    return (
        *(MODELS[model], arm, strength(runs[0])),
        *(scores(runs, name) for name in ("best_valid", "test")),
        *(later(runs, split) for split in ("valid", "test")),
        *(scores(runs, "train_clean"), "-".join(map(str, sorted({epochs[0], epochs[-1]})))),
    )


def sheet(data: str) -> Sheet:
    rows = tuple(row(key, runs) for key, runs in FINALS[data].items())
    return Sheet(data, HEADS, rows, left=(0, 1, 2))


@pytest.mark.parametrize("data", FINALS)
def test_the_tables_are_those_of_the_records(data: str) -> None:
    """If not, the table as it should be is in the message."""
    assert formats.markdown(sheet(data)) in PAGE


@pytest.mark.parametrize("data", FINALS)
def test_only_arms_that_are_finished_are_published(data: str) -> None:
    """With all seeds, at the strength that was best on valid with another one."""
    for (model, arm), runs in FINALS[data].items():
        assert [run.config.seed for run in runs] == SEEDS
        (own,) = {strength(run) for run in runs}
        tried = [
            run
            for run in RUNS
            if run.folder.parent.name in _tunings(data, model)
            and run.folder.name.startswith(f"{arm}-")
        ]
        assert bool(tried) == (arm != "none")
        if tried:
            best = min(tried, key=_valid)
            assert (strength(best), best.config.seed) == (own, 1110)


def _tunings(data: str, model: str) -> tuple[str, str]:
    """The sweeps of the first stage."""
    return f"{data}-{model}-tuning", f"{data}-{model}-extended"


def _valid(run: Run) -> float:
    assert run.best is not None
    return float(run.best["best_valid"])


@pytest.mark.parametrize(
    "path", sorted((RESULTS / "sequences").glob("*.toml")), ids=lambda p: p.stem
)
def test_the_files_describe_their_records(path: Path) -> None:
    """Every record of a sweep is one of its points, by its settings."""
    sweep = read(str(path))
    known = {run.digest for task in sweep.tasks for run in task.runs}
    made = {run.config.hash() for run in RUNS if run.folder.parent.name == path.stem}
    assert made <= known
    assert not made or made == known or path.stem.endswith("-final")


def test_what_the_page_says_of_the_published_lstm() -> None:
    """*Reached* is a comparison of means, of frames 2 to T on test."""
    said = re.findall(r"reached the (\d\.\d\d) of Bai et al\. with (\w+)", PAGE)
    assert said
    for value, arm in said:
        found = [after_first(run) for run in FINALS["jsb"]["lstm", arm]]
        assert mean(v for v in found if v is not None) <= float(value)


def test_the_scores_on_the_projects_page() -> None:
    """Those of test, over all frames, in two decimals."""
    page = " ".join((RESULTS.parent / "README.md").read_text(encoding="utf-8").split())
    none, dropout, noise = (
        f"{mean(run.best['test'] for run in FINALS['jsb']['lstm', arm] if run.best):.2f}"
        for arm in ARMS
    )
    assert f"units from {none} nats per frame on test to {noise}, and tuned dropout" in page
    assert f"on its output to {dropout} " in page
