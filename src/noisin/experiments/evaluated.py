"""The scores of ``noisin evaluate`` in a table: a row for each point, a column for each way.

A way of evaluation is a split, what was used (:func:`noisin.training.evaluations.kind_of`), and the
settings. Of each run the newest evaluation of its best weights counts, as in the paper's last
table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from noisin.errors import InvalidValue
from noisin.experiments.collection import DamagedRecord
from noisin.experiments.formats import Sheet
from noisin.experiments.group import PointGroup, TaskGroup
from noisin.experiments.records import Run
from noisin.experiments.seeds import Mean
from noisin.tasks.unit import Unit
from noisin.training import scores
from noisin.training.evaluations import kind_of

MISSING = "–"
SPLITS = ("valid", "test", "train")
FIRST = ("static", "temperature", "cache", "dynamic", "cache + dynamic")  # then the others by name
CALIBRATION = "calibration error, %"
FIELDS = ("masks", "power", "temperature", "batch_size")  # settings beside those of the two parts
PARTS = ("cache", "dynamic")
Line = Mapping[str, Any]


@dataclass(frozen=True)
class Way:
    """A way of evaluation.

    Attributes:
        split: the split.
        kind: what was used, with the number of samples.
        details: a temperature that is not 1, and whether settings were searched.
        measure: what was measured, empty for the score.
        samples: how many, 0 where none are drawn.
        settings: all others by dotted name, as text.
    """

    split: str
    kind: str
    details: str
    measure: str
    samples: int
    settings: tuple[tuple[str, str], ...]

    @property
    def head(self) -> str:
        """The heading of its column."""
        kind = "" if (self.kind, self.measure) == ("static", CALIBRATION) else self.kind
        return ", ".join(filter(None, (self.split, kind + self.details, self.measure)))

    @property
    def place(self) -> tuple[Any, ...]:
        """The place of its column: the kinds in order, each on valid before test."""
        known = FIRST.index(self.kind) if self.kind in FIRST else len(FIRST)
        kind = self.kind if known == len(FIRST) else ""
        method = kind.split(" ")[0]
        return (
            *(known, method, self.samples, kind, self.details),
            *(SPLITS.index(self.split), self.measure, self.settings),
        )


def way_of(line: Line, measure: str = "") -> Way:
    """The way of an evaluation.

    >>> line = {"split": "test", "method": "iwae", "K": 16, "temperature": 1.0}
    >>> way_of(line).head
    'test, iwae 16'
    >>> way_of({**line, "method": "exact", "K": None, "cache": {}, "temperature": 1.1}).head
    'test, cache, temperature 1.1'
    """
    tuned = line.get("tuned")
    searched = _searched(tuned)
    temperature, kind = line.get("temperature", 1), kind_of(line, samples=True)
    if "temperature" in searched:
        kind, temperature = ("temperature" if kind == "static" else kind), 1
    details = ""
    if temperature != 1:
        details = f" {temperature:g}" if kind == "temperature" else f", temperature {temperature:g}"
    details += "" if tuned is None else ", tuned"
    settings = tuple(sorted(_settings(line, searched)))
    return Way(line["split"], kind, details, measure, line.get("K") or 0, settings)


def _searched(tuned: Any) -> set[str]:
    """The settings that a search has varied: they are of the run, not of the way."""
    trials = tuned.get("trials") if isinstance(tuned, Mapping) else None
    if not isinstance(trials, list):
        return set()
    values: dict[str, set[str]] = {}
    for trial in trials:
        for name, value in _flat(trial) if isinstance(trial, Mapping) else ():
            values.setdefault(name, set()).add(value)
    return {name for name, known in values.items() if len(known) > 1}


def _settings(line: Line, searched: set[str]) -> Iterator[tuple[str, str]]:
    return ((name, value) for name, value in _flat(line) if name not in searched)


def _flat(line: Line) -> Iterator[tuple[str, str]]:
    """The settings of an evaluation by dotted name, as text."""
    yield from ((name, _text(line[name])) for name in FIELDS if name in line)
    for part in PARTS:
        values = line.get(part)
        if isinstance(values, Mapping):
            yield from ((f"{part}.{name}", _text(value)) for name, value in values.items())


def _text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def measured(run: Run) -> dict[Way, float]:
    """What ``noisin evaluate`` measured of the best weights of a run, the newest of each way."""
    found: dict[Way, float] = {}
    for split in SPLITS:
        for line in _lines(run, split):
            score = scores.in_unit(line, run.unit)
            if score is not None:
                found[way_of(line)] = score
            if calibration := line.get("calibration"):
                found[way_of(line, CALIBRATION)] = 100 * calibration["error"]
    return found


def _lines(run: Run, split: str) -> list[dict[str, Any]]:
    try:
        return run.evaluations_of_best(split)
    except InvalidValue:  # see damaged()
        return []


def damaged(runs: Iterable[Run]) -> Iterator[DamagedRecord]:
    """The runs whose evaluations cannot be read; the rest of their record can be used."""
    for run in runs:
        try:
            _ = run.evaluations
        except InvalidValue as error:
            yield DamagedRecord(run.name, run.folder, str(error))


def sheet(task: TaskGroup, title: str) -> Sheet | None:
    """The evaluations of the points of a task, mean ± standard deviation over the seeds.

    None if there is none. Where only some of the seeds were evaluated, their number is shown.
    """
    rows = [(point, [measured(run) for run in point.counted]) for point in task.points]
    rows = [(point, found) for point, found in rows if any(found)]
    ways = sorted({way for _, found in rows for one in found for way in one}, key=lambda w: w.place)
    if not ways:
        return None
    entries = tuple((point.label, *_entries(point, found, ways)) for point, found in rows)
    return Sheet(title, ("noise and other settings", *_heads(ways)), entries)


def _entries(
    point: PointGroup, found: Sequence[Mapping[Way, float]], ways: Iterable[Way]
) -> Iterator[str]:
    for way in ways:
        values = [one[way] for one in found if way in one]
        some = f" ({len(values)} of {len(found)} seeds)" if len(values) < len(found) else ""
        yield _number(values, way, point.unit) + some if values else MISSING


def _number(values: Sequence[float], way: Way, unit: Unit) -> str:
    mean = Mean.of(values)
    if way.measure == CALIBRATION:
        return f"{mean.mean:.2f}" + ("" if mean.std is None else f" ± {mean.std:.2f}")
    return mean.shown(unit).replace("-", "−")


def _heads(ways: Sequence[Way]) -> Iterator[str]:
    """The headings; those that are alike with the settings that distinguish them."""
    for way in ways:
        alike = [dict(other.settings) for other in ways if other.head == way.head]
        names = sorted({name for settings in alike for name in settings})
        mine = dict(way.settings)
        differ = [n for n in names if len({settings.get(n) for settings in alike}) > 1]
        told = [f"{name.replace('_', ' ')} {mine[name]}" for name in differ if name in mine]
        yield f"{way.head} ({', '.join(told)})" if told else way.head
