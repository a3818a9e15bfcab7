"""Your own runs as tables: a row for each point, and its difference from one of them.

A point is the runs that differ in the seed alone (:mod:`.group`). Two points are compared by runs
of the same seed, which start alike and read the same batches: the difference of their log-scores on
test, and Student's 95 % interval for its mean over the seeds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from noisin._util.wording import shown
from noisin.errors import InvalidValue
from noisin.experiments import formats, group, tags
from noisin.experiments.collection import Collection
from noisin.experiments.formats import Format, Sheet
from noisin.experiments.group import PointGroup, TaskGroup
from noisin.experiments.intervals import Interval
from noisin.experiments.records import Run
from noisin.experiments.seeds import Mean, number
from noisin.tasks.unit import Unit

NOTHING = "-"
HEADS = ("seeds", "valid", "test", "difference (95 %)", "best epoch", "notes")
FIELDS = (
    *("task", "point", "unit", "per", "seeds", "train", "train_std", "valid", "valid_std", "test"),
    *("test_std", "reference", "pairs", "difference_nats", "low_nats", "high_nats", "weights"),
    *("best_epoch", "notes", "runs"),
)


@dataclass(frozen=True)
class OverviewRow:
    """A point, and its difference from the reference: nats per target on test, if both have it."""

    point: PointGroup
    difference: Interval | None


@dataclass(frozen=True)
class Overview:
    """The points of a task, the best first, and the one that they are compared with."""

    task: TaskGroup
    reference: PointGroup | None

    @property
    def rows(self) -> Iterator[OverviewRow]:
        """A row for each point."""
        reference = self.reference
        for point in self.task.points:
            found = None
            if reference is not None and point is not reference:
                found = paired(point, reference)
            yield OverviewRow(point, found)


def show(
    runs: Collection,
    format: Format = "text",
    *,
    against: str | None = None,
    width: int | None = None,
) -> str:
    """The tables of all runs, one for each text and model. CSV contains only the numbers.

    Args:
        runs: what to show.
        format: the format.
        against: what to compare with: a row, or a run of it, by name; by default the best.
        width: the most columns of a line of text.
    """
    found = overviews(runs, against)
    if format == "csv":
        return formats.csv(FIELDS, (line for each in found for line in _values(each)))
    return formats.document(map(_sheet, found), remarks(runs), format, width)


def overviews(runs: Collection, against: str | None = None) -> list[Overview]:
    """The tasks of some runs, each with its reference."""
    tasks = group.tasks(runs)
    if against is None:
        return [Overview(task, _best(task)) for task in tasks]
    named = [_named(task, against) for task in tasks]
    if not any(named):
        known = dict.fromkeys(point.label for task in tasks for point in task.points)
        raise InvalidValue(
            f"--against must be a row of the table, or the name of one of its runs, got "
            f"{shown(against, 60)}. Rows: {'; '.join(known) or 'none'}."
        )
    return [Overview(t, point or _best(t)) for t, point in zip(tasks, named, strict=True)]


def paired(point: PointGroup, reference: PointGroup) -> Interval | None:
    """The mean difference on test over seeds that both have, in nats per target; lower is better.

    None without such a seed, or if a score is not finite.
    """
    ours, theirs = _nats_by_seed(point), _nats_by_seed(reference)
    pairs = [ours[seed] - theirs[seed] for seed in ours if seed in theirs]
    return Interval.of(pairs) if pairs and all(map(math.isfinite, pairs)) else None


def remarks(runs: Collection) -> list[str]:
    """How to read the tables, and which records are not in them."""
    found = []
    if runs:
        found.append(
            "Each row is the runs that differ in the seed alone, at the epoch of the lowest score "
            "on valid, with noise and dropout off: mean ± sample standard deviation."
        )
        found.append(
            "difference: of test, between runs of the same seed, and Student's interval for its "
            "mean, not corrected for the number of rows. Of a perplexity in percent, exp of the "
            "difference of the log-scores; lower is better."
        )
    else:
        found.append("There are no runs. To make some: noisin train")
    notes = {tag.words.lstrip("0123456789 ") for p in _points(runs) for tag in tags.of_point(p)}
    found += [f"{words}: {tags.MEANINGS[words]}" for words in tags.MEANINGS if words in notes]
    return found + [f"{record.name} cannot be used: {record.reason}" for record in runs.damaged]


def _points(runs: Collection) -> list[PointGroup]:
    return [point for task in group.tasks(runs) for point in task.points]


def _best(task: TaskGroup) -> PointGroup | None:
    """The complete point with the lowest score on valid."""
    first = task.points[0]
    return first if first.complete and first.valid is not None else None


def _named(task: TaskGroup, name: str) -> PointGroup | None:
    for point in task.points:
        names = {run.name for run in point.all_runs} | {run.folder.name for run in point.all_runs}
        if name in {point.label, point.label.replace("γ", "gamma"), *names}:
            return point
    return None


def _nats_by_seed(point: PointGroup) -> dict[int, float]:
    found = {run.config.seed: _test(run) for run in point.counted}
    return {seed: point.unit.nats(test) for seed, test in found.items() if test is not None}


def _test(run: Run) -> float | None:
    return None if run.best is None else run.best["test"]


def _sheet(overview: Overview) -> Sheet:
    unit, reference = overview.task.unit, overview.reference
    against = "" if reference is None else f" Differences from: {reference.label}"
    title = f"{overview.task.title}: {unit}.{against}"
    rows = tuple(_row(row, unit, row.point is reference) for row in overview.rows)
    return Sheet(title, ("", *HEADS), rows, left=(0, len(HEADS)))


def _row(row: OverviewRow, unit: Unit, is_reference: bool) -> tuple[str, ...]:
    point = row.point
    return (
        point.label,
        str(len(point.counted)),
        *(NOTHING if mean is None else mean.shown(unit) for mean in (point.valid, point.test)),
        "reference" if is_reference else difference(row.difference, unit),
        point.best_epochs or NOTHING,
        ", ".join(tag.words for tag in tags.of_point(point)),
    )


def difference(found: Interval | None, unit: Unit) -> str:
    """A difference of log-scores: in percent of a perplexity, else in the unit.

    >>> from noisin.tasks.unit import NATS_PER_FRAME, PERPLEXITY
    >>> difference(Interval(-0.1, -0.2, 0.0, 5), PERPLEXITY)
    '-9.5 % (-18.1 to +0.0)'
    >>> difference(Interval(-0.1, None, None, 1), NATS_PER_FRAME)
    '-0.100'
    """
    if found is None:
        return NOTHING
    sign = " %" if unit.name == "perplexity" else ""
    mean = _signed(found.mean, unit)
    if found.low is None or found.high is None:
        return f"{mean}{sign}"
    return f"{mean}{sign} ({_signed(found.low, unit)} to {_signed(found.high, unit)})"


def _signed(nats: float, unit: Unit) -> str:
    value = 100 * (unit.value(nats) - 1) if unit.name == "perplexity" else unit.value(nats)
    return ("+" if value >= 0 else "") + number(value, unit)


def _values(overview: Overview) -> Iterator[Sequence[object]]:
    task, reference = overview.task, overview.reference
    for row in overview.rows:
        point, found = row.point, row.difference
        yield (
            *(task.title, point.label, task.unit.name, task.unit.per, len(point.counted)),
            *_mean_and_std(point.train),
            *_mean_and_std(point.valid),
            *_mean_and_std(point.test),
            None if reference is None else reference.label,
            *((None,) * 4 if found is None else (found.n, found.mean, found.low, found.high)),
            point.weights,
            point.best_epochs,
            "; ".join(tag.words for tag in tags.of_point(point)),
            "; ".join(run.name for run in point.counted),
        )


def _mean_and_std(mean: Mean | None) -> tuple[float | None, float | None]:
    return (None, None) if mean is None else (mean.mean, mean.std)
