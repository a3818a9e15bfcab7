"""The metrics of a run for TensorBoard, in addition to ``metrics.jsonl``."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from noisin.errors import InvalidValue
from noisin.tasks.unit import Unit


class Board:
    """Writes lines of metrics into the folder ``tensorboard/`` of a run.

    Args:
        folder: the folder of the run.
        wanted: whether to write at all; if not, tensorboard does not have to be installed.
        unit: the unit of the scores.
        epochs: the number of completed epochs; later ones of an earlier session are hidden.
    """

    def __init__(self, folder: Path, wanted: bool, epochs: int, unit: Unit) -> None:
        self._writer: Any = None
        self._unit = unit
        if not wanted:
            return
        if find_spec("tensorboard") is None:
            raise InvalidValue(
                "training: train.tensorboard needs tensorboard. Install it: "
                "pip install 'noisin[tensorboard]'."
            )
        from torch.utils.tensorboard import SummaryWriter

        purge = epochs + 1 if epochs else None
        self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=purge)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._writer is not None:
            self._writer.close()

    def write(self, metrics: Mapping[str, Any]) -> None:
        """Write the metrics of an epoch."""
        if self._writer is None:
            return
        for name, value in metrics.items():
            if isinstance(value, Mapping) and "nats" in value:
                value = self._unit.value(value["nats"])
            if isinstance(value, float):
                self._writer.add_scalar(name, value, metrics["epoch"])
        self._writer.flush()
