"""Where the metrics of a run go besides ``metrics.jsonl``: TensorBoard, W&B, MLflow, Aim, yours.

A tracker is a class without arguments with the methods of :class:`Tracker`. ``train.tracker`` names
one of :data:`TRACKERS`, or yours as ``package.module:Class``. Nothing here needs torch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Protocol

from noisin._util.settings import construct, load_object
from noisin.errors import InvalidValue
from noisin.tasks.unit import Unit
from noisin.training.config.train import TRACKER_NAMES
from noisin.training.runtime.progress import Progress, RunOutline, Status

HOME = "noisin.training.runtime.trackers"


CLASSES = ("TensorBoard", "WeightsAndBiases", "MLflow", "Aim")
# By name, which is also that of the package that a tracker needs, and of noisin's extra.
TRACKERS = dict(zip(TRACKER_NAMES, CLASSES, strict=True))


class Tracker(Protocol):
    """Receives the metrics of a run."""

    def begin(self, outline: RunOutline) -> None:
        """A run starts, or continues after ``outline.done`` epochs."""

    def epoch(self, number: int, values: Mapping[str, float]) -> None:
        """Called after an epoch with its numbers by name; scores are in the unit of the task."""

    def end(self) -> None:
        """The run has ended, for whatever reason."""


def find_tracker(name: str) -> Tracker:
    """The tracker of a setting; raises if what it needs is not installed."""
    if name in TRACKERS and find_spec(name) is None:
        raise InvalidValue(
            f"training: train.tracker = {name!r} needs {name}. Install it: "
            f"pip install 'noisin[{name}]'."
        )
    home = f"{HOME}:{TRACKERS[name]}" if name in TRACKERS else name
    members = ("begin", "epoch", "end")
    found: Tracker = construct("train.tracker", load_object(home, "train.tracker", members))
    return found


def numbers(metrics: Mapping[str, Any], unit: Unit) -> dict[str, float]:
    """The numbers of a line of metrics, scores in a unit, without what is not finite.

    >>> from noisin.tasks.unit import NATS_PER_FRAME
    >>> line = {"epoch": 3, "lr": 0.5, "valid": {"nats": 8.5, "count": 9}, "terms": {"ar": 0.1}}
    >>> numbers(line | {"valid_averaged": None}, NATS_PER_FRAME)
    {'lr': 0.5, 'valid': 8.5, 'terms.ar': 0.1}
    """
    found: dict[str, float] = {}
    for name, value in metrics.items():
        if isinstance(value, Mapping) and "nats" in value:
            value = None if value["nats"] is None else unit.value(value["nats"])
        if isinstance(value, Mapping):
            found |= {f"{name}.{inner}": v for inner, v in numbers(value, unit).items()}
        elif isinstance(value, float) and math.isfinite(value):
            found[name] = value
    return found


class Tracked:
    """A progress that also tells trackers. One that fails is left out, and the run continues.

    Args:
        shown: the progress.
        trackers: the trackers.
    """

    def __init__(self, shown: Progress, trackers: Sequence[Tracker]) -> None:
        self.shown, self.trackers = shown, list(trackers)

    def begin(self, outline: RunOutline) -> None:
        """A run starts or continues."""
        self.shown.begin(outline)
        self._each(lambda tracker: tracker.begin(outline))

    def status(self, status: Status) -> None:
        """Show the current status."""
        self.shown.status(status)

    def epoch(self, metrics: Mapping[str, Any], unit: Unit) -> None:
        """An epoch has ended."""
        self.shown.epoch(metrics, unit)
        values = numbers(metrics, unit)
        self._each(lambda tracker: tracker.epoch(metrics["epoch"], values))

    def note(self, message: str) -> None:
        """Show a message for the user."""
        self.shown.note(message)

    def end(self) -> None:
        """The run has ended."""
        self._each(lambda tracker: tracker.end())
        self.shown.end()

    def _each(self, call: Callable[[Tracker], None]) -> None:
        for tracker in list(self.trackers):
            try:
                call(tracker)
            except Exception as error:  # of a network, a service, a disk: none of them is the run
                self.trackers.remove(tracker)
                self.note(
                    f"{type(tracker).__name__} failed and gets no more metrics, the run continues: "
                    f"{error}"
                )
