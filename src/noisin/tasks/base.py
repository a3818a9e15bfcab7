"""A task: data in batches, and the unit of its score.

Nothing here needs torch, so that settings and records can name tasks without it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from noisin.errors import InvalidType, InvalidValue
from noisin.tasks.unit import Unit

if TYPE_CHECKING:
    from noisin.data.batch import Batch

Split = Literal["train", "valid", "test", "train_clean"]


@runtime_checkable
class Task(Protocol):
    """The interface of data for the trainer: any object with ``unit`` and ``batches``.

    ``batches("train", epoch=e, start=s)`` yields the batches of an epoch from position s, which is
    0 or the ``stop`` of a batch; the same arguments must yield the same batches. The split
    ``"valid"`` selects the best epoch, and ``"test"`` is scored at the end.

    Optional attributes:

    ``name``
        The name of the task; by default the name of its class.
    ``splits``
        The available splits; by default ``("train", "valid", "test")``. With ``"train_clean"``, a
        part of the training data, the score without noise is measured after every epoch.
    ``extent``
        The ``stop`` of an epoch's last batch, to show progress.
    ``sha256``
        A hash of the data, so that a run is only continued on the same data; by default computed
        from the batches of all splits.
    ``observation``
        What a model that is built from settings predicts: see :class:`Observation`.
    """

    @property
    def unit(self) -> Unit:
        """The unit of the scores."""
        ...

    def batches(self, split: Split, *, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        """The batches of a split."""
        ...


@dataclass(frozen=True)
class Observation:
    """The observations of a task.

    Attributes:
        likelihood: one of ``noisin.likelihoods.LIKELIHOODS`` or ``SCALED``.
        size: the number of words for ``"categorical"``; otherwise the number of values per step.
        bias: initial natural parameters, such as those of the mean of the training data.
        inputs: the number of input values per step, if it is not ``size``: with covariates.

    >>> Observation("categorical", 10_000).to_json()
    {'likelihood': 'categorical', 'size': 10000}
    """

    likelihood: str
    size: int
    bias: Sequence[float] | None = field(default=None, compare=False)
    inputs: int | None = None

    def to_json(self) -> dict[str, Any]:
        """The entry in the record of a run, from which the model is rebuilt."""
        known = {name: value for name, value in asdict(self).items() if name != "bias"}
        return {name: value for name, value in known.items() if value is not None}


def name_of(task: Task) -> str:
    """The name of a task."""
    return str(getattr(task, "name", type(task).__name__))


def first_batch(task: Task) -> Batch:
    """The first batch to train on, or raise where there is none."""
    batch = next(iter(task.batches("train")), None)
    if batch is None:
        raise InvalidValue(
            f"{name_of(task)}: batches('train') yields nothing to train on. Yield at least one "
            f"data.Batch."
        )
    return batch


def splits_of(task: Task) -> Sequence[Split]:
    """The splits of a task."""
    splits: Sequence[Split] = getattr(task, "splits", ("train", "valid", "test"))
    return splits


def observation_of(task: Task) -> Observation:
    """The observations that a model built from settings predicts."""
    found = getattr(task, "observation", None)
    if not isinstance(found, Observation):
        raise InvalidType(
            f"{type(task).__name__}: a model built from settings needs to know what to predict. "
            f"Give the task an attribute observation, such as Observation('bernoulli', 88)."
        )
    return found


def facts_of(task: Task) -> Mapping[str, Any]:
    """The entries of a task in the record of a run; each has a ``sha256``."""
    facts: Mapping[str, Any] | None = getattr(task, "facts", None)
    if facts is not None:
        return facts
    return {"data": {"name": name_of(task), "sha256": sha256_of(task)}}


def sha256_of(task: Task) -> str:
    """The hash of a task's data: its attribute, or that of all batches of the first epoch."""
    given = getattr(task, "sha256", None)
    if given is not None:
        return str(given)
    from noisin.tasks.hashing import batches_sha256

    return batches_sha256(task.batches(split) for split in splits_of(task))
