"""The processes that train one model together. Here there is one; the trainer asks no more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from noisin.data import Batch


class Workers:
    """One process alone: it has all columns of the text, its gradients are the gradients.

    Several split the columns, draw the noise of all of them and keep their own slice, so that their
    generators stay alike; and only the main one writes. They are
    :class:`noisin.training.runtime.distributed.Processes`.
    """

    main = True
    count = 1

    def split(self, model: nn.Module, batch: Batch) -> None:
        """Tell the model which columns of a batch are this process's."""

    def share(self, model: nn.Module, batch: Batch) -> Batch:
        """The columns of a batch that are this process's; the model is told which."""
        return batch

    def weight(self, own: int, total: int) -> float:
        """The weight of this process's mean over ``own`` targets in the mean over all."""
        return 1.0

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by their mean over the processes: gradients, and means of losses."""

    def gather(self, carried: Any) -> Any:
        """The carried state of all columns, for a checkpoint."""
        return carried

    def scatter(self, carried: Any) -> Any:
        """This process's part of the carried state of all columns."""
        return carried

    def agree(self, wish: int) -> int:
        """The largest wish of any process, so that all save, or stop, at the same step."""
        return wish

    def tell(self, value: float) -> float:
        """The main process's value, for all."""
        return value

    @contextmanager
    def main_first(self) -> Iterator[None]:
        """Let the main process do something, and then the others; if it fails, they stop too."""
        yield
