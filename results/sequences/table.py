"""Print the table of the final runs of each data set: python results/sequences/table.py [FOLDER]

FOLDER, results/sequences by default, has the sweeps MODEL-final with their evaluations on valid and
test. Mean ± sample standard deviation over seeds, at the epoch that is best on valid.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from noisin.errors import InvalidValue, NoisinError
from noisin.experiments import formats
from noisin.experiments.collection import collect
from noisin.experiments.records import Run
from noisin.experiments.seeds import Mean

HERE = Path(__file__).parent
MODELS = {"lstm": "LSTM", "gru": "GRU", "min-gru": "minGRU", "vrnn": "VRNN", "srnn": "SRNN"}
ARMS = ("none", "dropout", "noise")
SPLITS = ("valid", "test")

Finals = dict[tuple[str, str], list[Run]]  # by model and arm


def finals(runs: Iterable[Run]) -> dict[str, Finals]:
    """The runs of the second stage by data set, and by model and arm, in the order of the page."""
    found: dict[str, Finals] = defaultdict(dict)
    for run in sorted(runs, key=lambda run: (run.config.data.name, run.config.seed)):
        sweep, arm = run.folder.parent.name, run.folder.name.split("-seed-")[0]
        if sweep.endswith("-final"):
            data = run.config.data.name
            model = sweep.removeprefix(f"{data}-").removesuffix("-final")
            if model not in MODELS or arm not in ARMS:
                raise InvalidValue(
                    f"{run.folder}: no final run of the plan. Expected DATA-MODEL-final/ARM-seed-*"
                    f", MODEL one of {', '.join(MODELS)} and ARM one of {', '.join(ARMS)}."
                )
            found[data].setdefault((model, arm), []).append(run)
    for arms in found.values():
        arms.update({key: arms.pop(key) for key in sorted(arms, key=_place)})
    return found


def _place(key: tuple[str, str]) -> tuple[int, int]:
    model, arm = key
    return list(MODELS).index(model), ARMS.index(arm)


def strength(run: Run) -> str:
    """The rate of dropout or the standard deviation of the noise."""
    config = run.config
    if config.noise is not None:
        return f"std {config.noise.std:g}"
    rate = config.model.dropout.output
    return f"rate {rate:g}" if rate else ""


def after_first(run: Run, split: str = "test") -> float | None:
    """The score of a split without the first frame of each piece, which a series does not have."""
    kept: list[dict[str, Any]] = [
        line["conventions"]
        for line in run.evaluations
        if line["split"] == split and line["method"] in ("exact", "elbo") and "conventions" in line
    ]
    return kept[-1]["after_first"]["nats"] if kept else None


def row(key: tuple[str, str], runs: list[Run]) -> dict[str, str]:
    """The line of an arm, by the heads of its columns."""

    def shown(name: str) -> str:
        return Mean.of([run.best[name] for run in runs if run.best]).shown(runs[0].unit)

    model, arm = key
    line = {"model": MODELS[model], "arm": arm, "strength": strength(runs[0])}
    line |= {"valid": shown("best_valid"), "test": shown("test")}
    for split in SPLITS:
        found = [value for run in runs if (value := after_first(run, split)) is not None]
        if len(found) == len(runs):
            line[f"{split}, frames 2 to T"] = Mean.of(found).shown(runs[0].unit)
    epochs = {int(run.best["epoch"]) for run in runs if run.best}
    ends = "-".join(map(str, sorted({min(epochs), max(epochs)})))
    return line | {"train": shown("train_clean"), "best epoch": ends}


def table(data: str, arms: Finals) -> str:
    """The table of a data set, in Markdown."""
    lines = [row(key, runs) for key, runs in arms.items()]
    rows = tuple(tuple(line.values()) for line in lines)
    return formats.markdown(formats.Sheet(data, tuple(lines[0]), rows, left=(0, 1, 2)))


def main() -> None:
    """Read the arguments; a wrong one is refused with exit code 2."""
    parser = argparse.ArgumentParser(description="Print the table of each data set.")
    parser.add_argument("folder", metavar="FOLDER", nargs="?", type=Path, default=HERE)
    folder = parser.parse_args().folder
    try:
        found = finals(collect(folder))
    except NoisinError as error:
        parser.error(str(error))
    if not found:
        parser.error(f"{folder} has no runs in a sweep MODEL-final. See results/sequences/next.py.")
    print("\n\n".join(table(*item) for item in found.items()))


if __name__ == "__main__":
    main()
