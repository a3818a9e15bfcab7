"""Data-parallel training in several processes that ``torchrun`` starts.

::

    torchrun --nproc-per-node 2 -m noisin train ptb-medium-gaussian

Each process has some columns of the batch. All processes draw noise and dropout for the whole batch
from generators in the same state, and each uses the slice of its columns; gradients are averaged.
Thus losses and weights equal those of a single process, except for the rounding of sums. After an
epoch each process scores its columns of the other data, and their sums are added.
"""

from __future__ import annotations

import hashlib
import os
import time
import uuid
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous

from noisin._util import states
from noisin.data import Batch
from noisin.errors import InvalidValue, Unsupported
from noisin.noise.sampling import Shard, set_shard
from noisin.training.runtime.device import chosen_device
from noisin.training.runtime.workers import Workers


@contextmanager
def connected(device: str = "cpu") -> Iterator[Workers]:
    """The processes that torchrun started, or this process alone.

    Args:
        device: ``"cuda"`` uses NCCL and one device per process; otherwise gloo is used.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield Workers()
        return
    device = chosen_device(device)
    if device == "cuda":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    with _together():
        store, rank, count = next(rendezvous("env://"))
        store = _fresh(store, rank, count)
        backend = "nccl" if device == "cuda" else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=count)
    try:
        yield Processes(torch.device(device))
    finally:
        dist.destroy_process_group()


def _fresh(store: Any, rank: int, count: int) -> Any:
    """The part of the store that belongs to exactly the processes that are alive now.

    Torchrun keeps its store when it restarts processes. The store then contains the addresses of
    the dead ones, and torch would try to connect to them. Therefore each process publishes a unique
    name, and the hash of all names is the prefix, once every process has seen the same names.
    """
    own = uuid.uuid4().hex
    store.set(f"noisin/{rank}", own)
    while True:
        names = b"".join(store.get(f"noisin/{r}") for r in range(count))
        session = f"noisin/{hashlib.sha256(names).hexdigest()}"
        store.set(f"{session}/{rank}", own)
        if store.check([f"{session}/{r}" for r in range(count)]):
            return dist.PrefixStore(session, store)  # type: ignore[attr-defined]
        time.sleep(0.02)


class Processes(Workers):
    """The processes of torch's default group; rank 0 is the main process.

    Args:
        device: the device of the tensors that the processes exchange.
    """

    def __init__(self, device: torch.device) -> None:
        self.rank, self.count = dist.get_rank(), dist.get_world_size()
        self.main = self.rank == 0
        self.device = device
        self._shard = Shard(0, 0, 0)

    def split(self, model: nn.Module, batch: Batch) -> None:
        """Set which columns of a batch belong to this process."""
        shard = self._part(batch)
        total = shard.total
        uneven = total % self.count != 0 and batch.carries  # states are gathered by column
        if uneven or not shard.size:
            raise InvalidValue(
                f"training: a batch of {total} columns cannot be split evenly among {self.count} "
                f"processes. Choose a train.batch_size that is a multiple of {self.count}."
            )
        self._shard = shard
        set_shard(model, shard)

    def _part(self, batch: Batch) -> Shard:
        total = batch.x.shape[1]
        start, stop = (total * rank // self.count for rank in (self.rank, self.rank + 1))
        return Shard(start, stop - start, total)

    def share(self, model: nn.Module, batch: Batch) -> Batch:
        """The columns of a batch that belong to this process."""
        if batch.x.shape[1] != self._shard.total:
            self.split(model, batch)
        return _columns(batch, self._shard)

    def shares(self, model: nn.Module, batches: Iterable[Batch]) -> Generator[Batch]:
        """The columns of each batch that this process scores, of any number of columns.

        Where there are fewer columns than processes, those without one are given the first, of
        which nothing is scored: so they carry a state and draw as many random numbers as the rest.
        Afterwards the model has its share of a training batch again.
        """
        try:
            for batch in batches:
                part = self._part(batch)
                shard = part if part.size else Shard(0, 1, part.total)
                set_shard(model, shard)
                own = _columns(batch, shard)
                yield own if part.size else _unscored(own)
        finally:
            set_shard(model, self._shard if self._shard.total else None)

    def weight(self, own: int, total: int) -> float:
        """The weight of this process's mean over ``own`` targets in the mean over all."""
        return own * self.count / total

    def average(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by their means over the processes."""
        with _together():
            works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
            for work in works:
                work.wait()
        torch._foreach_div_(list(tensors), self.count)

    def gather(self, carried: Any) -> Any:
        """The carried state of all columns, in order; K samples side by side."""

        def gathered(state: Tensor) -> Tensor:
            parts = [torch.empty_like(state) for _ in range(self.count)]
            with _together():
                dist.all_gather(parts, state.contiguous())
            joined: Tensor = states.join(parts, self._shard.size)
            return joined

        return states.map(gathered, carried)

    def scatter(self, carried: Any) -> Any:
        """This process's part of the carried state of all columns."""
        own = slice(self._shard.start, self._shard.start + self._shard.size)
        return states.columns(carried, own, self._shard.total)

    def agree(self, request: int) -> int:
        """The maximum over all processes."""
        shared = torch.tensor(request, device=self.device)
        with _together():
            dist.all_reduce(shared, dist.ReduceOp.MAX)
        return int(shared)

    def sum(self, values: Sequence[float]) -> list[float]:
        """The sums of some numbers over the processes: the same bits in all of them."""
        own = torch.tensor(values, dtype=torch.float64, device=self.device)
        parts = [torch.empty_like(own) for _ in range(self.count)]
        with _together():
            dist.all_gather(parts, own)
        return [sum(each) for each in zip(*(part.tolist() for part in parts), strict=True)]

    def tell_text(self, text: str) -> str:
        """Broadcast a text of the main process."""
        shared = [text]
        with _together():
            dist.broadcast_object_list(shared, src=0, device=self.device)
        return shared[0]

    @contextmanager
    def main_first(self) -> Iterator[None]:
        """Run a block in the main process, then in the others; if it fails, all of them stop."""
        if not self.main:
            if self.agree(0):
                raise Unsupported(
                    f"training: process {self.rank} stopped because the main process failed. See "
                    f"its message for the reason."
                )
            yield
            return
        try:
            yield
        except BaseException:
            self.agree(1)
            raise
        self.agree(0)


def _columns(batch: Batch, shard: Shard) -> Batch:
    return batch.columns(slice(shard.start, shard.start + shard.size))


def _unscored(batch: Batch) -> Batch:
    rows, columns = batch.x.shape[:2]
    return replace(batch, scored=torch.zeros(rows, columns, dtype=torch.bool))


@contextmanager
def _together() -> Iterator[None]:
    """Explain the error if another process has died."""
    try:
        yield
    except RuntimeError as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise Unsupported(
            f"training: another process died ({first}). Run the same command again to continue "
            f"from the last checkpoint; torchrun --max-restarts 3 does so automatically."
        ) from error
