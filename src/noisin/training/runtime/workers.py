"""The interface of the processes that train one model together, for a single process."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn

from noisin.data import Batch


class Workers:
    """A single process, which has all columns of the batch.

    Several processes (:class:`noisin.training.runtime.distributed.Processes`) split the columns.
    Each draws the noise of all columns and uses its own slice, so that their generators stay in the
    same state. Only the main process writes files.

    >>> Workers().sum([2.0, 1.0])
    [2.0, 1.0]
    """

    main = True
    count = 1

    def split(self, model: nn.Module, batch: Batch) -> None:
        """Set which columns of a batch belong to this process."""

    def share(self, model: nn.Module, batch: Batch) -> Batch:
        """The columns of a batch that belong to this process."""
        return batch

    def shares(self, model: nn.Module, batches: Iterable[Batch]) -> Generator[Batch]:
        """The columns of each batch that this process scores."""
        yield from batches

    def weight(self, own: int, total: int) -> float:
        """The weight of this process's mean over ``own`` targets in the mean over all."""
        return 1.0

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors, such as gradients, by their means over the processes."""

    def gather(self, carried: Any) -> Any:
        """The carried state of all columns, for a checkpoint."""
        return carried

    def scatter(self, carried: Any) -> Any:
        """This process's part of the carried state of all columns."""
        return carried

    def agree(self, request: int) -> int:
        """The maximum over all processes, so that all of them save or stop at the same step."""
        return request

    def sum(self, values: Sequence[float]) -> list[float]:
        """The sums of some numbers over the processes."""
        return list(values)

    def tell_text(self, text: str) -> str:
        """Broadcast a text of the main process."""
        return text

    @contextmanager
    def main_first(self) -> Iterator[None]:
        """Run a block in the main process, then in the others; if it fails, all of them stop."""
        yield
