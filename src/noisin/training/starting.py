"""Start a run from the best weights of another one, as in fine-tuning.

The other run stays as it is. The record identifies the weights by the hash of their file, so that a
run is only continued from the weights that it started from.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from noisin.errors import InvalidValue
from noisin.tasks import Task
from noisin.tasks.base import facts_of
from noisin.training.checkpoint import Checkpoints
from noisin.training.load import read_weights
from noisin.training.record import RunRecord
from noisin.training.state import weights_of


@dataclass(frozen=True)
class InitialWeights:
    """The weights that a run starts from.

    Attributes:
        facts: what the record says of them: the run, raw or averaged, its epoch and the sha256.
            Empty if the model's own initialisation is used.
        values: the weights by name; empty if the run continues from a checkpoint of its own.
    """

    facts: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def identity(self) -> dict[str, str]:
        """The entry in the identity of the run."""
        return {"start": str(self.facts["sha256"])} if self.facts else {}

    @property
    def entry(self) -> dict[str, Any]:
        """The entry in the environment of the run."""
        return {"start": dict(self.facts)} if self.facts else {}

    @torch.no_grad()
    def load(self, model: nn.Module) -> None:
        """Copy the weights, if any, into the model."""
        if self.values:
            for name, weight in weights_of(model).items():
                weight.copy_(self.values[name])


def initial_weights(
    start: str | None, record: RunRecord, model: nn.Module, task: Task
) -> InitialWeights:
    """The weights that a run in ``record`` starts from, given its setting ``train.start``."""
    if start is None:
        return InitialWeights()
    if record.exists and Checkpoints(record.checkpoints, {}).numbers():
        return InitialWeights(record.environment.get("start", {}))
    base = RunRecord(start)
    if not base.exists:
        raise InvalidValue(
            f"train.start = {start!r} is not a run: it has no config.json. Name the folder of a "
            f"run of noisin train."
        )
    words = facts_of(task).get("vocabulary", {}).get("sha256")
    if words != base.identity.get("vocabulary"):
        raise InvalidValue(
            f"train.start = {start!r}: that run has another vocabulary. Start from a run on the "
            f"same text."
        )
    found = read_weights(base)
    _require_fit(start, weights_of(model), found.values)
    facts = {
        "name": start,
        "weights": found.kind,
        "epoch": found.epoch,
        "sha256": found.sha256,
    }
    return InitialWeights(facts, found.values)


def _require_fit(start: str, own: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> None:
    """Raise unless the weights have the names and shapes of those of the model."""
    here, there = ({n: tuple(t.shape) for n, t in some.items()} for some in (own, given))
    if here != there:
        name = min(name for name, _ in here.items() ^ there.items())
        raise InvalidValue(
            f"train.start = {start!r}: the weights of that run do not fit the model: {name} is "
            f"{there.get(name)} there and {here.get(name)} here. Use the model settings of that "
            f"run."
        )
