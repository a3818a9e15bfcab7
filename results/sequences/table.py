"""Print the table of the final runs of each data set: python results/sequences/table.py [FOLDER]

FOLDER, results/sequences by default, has the sweeps MODEL-final with their evaluations on valid and
test. Mean ± sample standard deviation over seeds, at the epoch that is best on valid.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from statistics import mean, stdev

from noisin.experiments import formats
from noisin.experiments.collection import collect
from noisin.experiments.records import Run

SPLITS = ("valid", "test")
MODELS = {"lstm": "LSTM", "gru": "GRU", "min-gru": "minGRU", "vrnn": "VRNN", "srnn": "SRNN"}
SERIES = ("bikes", "ett")  # have one sequence each
ARMS = ("none", "dropout", "noise")


def spread(values: list[float]) -> str:
    """Mean ± sample standard deviation."""
    return f"{mean(values):.3f} ± {stdev(values):.3f}"


def after_first(run: Run, split: str) -> float:
    """Nats per frame over frames 2 to T of the last evaluation of a split."""
    lines = (run.folder / "evaluations.jsonl").read_text().splitlines()
    scores = [score for score in map(json.loads, lines) if score["split"] == split]
    return scores[-1]["conventions"]["after_first"]["nats"]


def strength(run: Run) -> str:
    """The rate of dropout or the standard deviation of the noise."""
    if run.config.noise is not None:
        return f"std {run.config.noise.std:g}"
    rate = run.config.model.dropout.output
    return f"rate {rate:g}" if rate else ""


def columns(model: str, arm: str, runs: list[Run]) -> dict[str, str]:
    """The line of an arm, by the heads of the columns."""
    epochs = [int(run.best["epoch"]) for run in runs]
    line = {"model": MODELS[model], "arm": arm, "strength": strength(runs[0])}
    line |= {split: spread([run.best[split] for run in runs]) for split in SPLITS}
    if runs[0].config.data.name not in SERIES:
        for split in SPLITS:
            nats = [after_first(run, split) for run in runs]
            line[f"{split}, frames 2 to T"] = spread(nats)
    line["train"] = spread([run.best["train_clean"] for run in runs])
    return line | {"best epoch": f"{min(epochs)}-{max(epochs)}"}


def tables(folder: Path) -> str:
    """The tables of all data sets that have final runs, in Markdown."""
    arms: dict[tuple[str, str, str], list[Run]] = {}
    for run in collect(folder):
        model, _, stage = run.folder.parent.name.removeprefix(
            f"{run.config.data.name}-"
        ).rpartition("-")
        if stage == "final":
            arm = run.folder.name.split("-seed-")[0]
            arms.setdefault((run.config.data.name, model, arm), []).append(run)
    sheets = []
    for data in sorted({data for data, _, _ in arms}):
        rows = [
            columns(model, arm, arms[data, model, arm])
            for model in MODELS
            for arm in ARMS
            if (data, model, arm) in arms
        ]
        lines = tuple(tuple(row.values()) for row in rows)
        sheets.append(formats.Sheet(data, tuple(rows[0]), lines, left=(0, 1, 2)))
    return "\n\n".join(map(formats.markdown, sheets))


if __name__ == "__main__":
    print(tables(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent))
