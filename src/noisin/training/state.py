"""The state of a run: everything that changes during training, and is therefore saved."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from noisin._util import states
from noisin.data import Batch
from noisin.errors import Unsupported
from noisin.models import Loss, Trainable
from noisin.recurrent.injection import as_training
from noisin.training.averaging import Average
from noisin.training.checkpoint import Checkpoint, Weights
from noisin.training.config import TrainConfig
from noisin.training.contents import Pattern
from noisin.training.optim import build_optimizer
from noisin.training.runtime.device import in_float64, random_state, rewind
from noisin.training.schedule import Schedule
from noisin.training.schedule import Weights as Kind
from noisin.training.two_tailed import TwoTailedAverage

AVERAGES = {"two_tailed": TwoTailedAverage}

MEASURED = "measured."  # before the name of a sum that is not minimised


class TrainState:
    """The state of a run at one step.

    Attributes:
        model, parameters, optimizer: what is trained; tied weights count once.
        average: the average of the weights; None before averaging starts.
        schedule: the decisions based on the scores on valid.
        carried: the model's state at the end of the last batch, or None at an epoch's start.
        epoch: the number of completed epochs.
        stop: the position in the current epoch: the ``stop`` of its last batch.
        step, tokens: the number of steps and of training targets, over all epochs.
        sums: the sums of the nats and of each term over the ``scored`` targets of this epoch.
        seconds: the time that earlier sessions took.
        cut: whether the last epoch was cut short by a limit on tokens or minutes.
        offset: the size of ``metrics.jsonl`` in bytes.
        best: the numbers of the checkpoints with the best raw weights and the best average.
    """

    def __init__(self, model: nn.Module, train: TrainConfig, device: torch.device) -> None:
        assert isinstance(model, Trainable)
        self.model: Any = model.to(device)
        self.device = device
        self.parameters: list[Tensor] = list(model.parameters())
        self._new_average = AVERAGES.get(train.averaging, Average)
        self.optimizer = build_optimizer(train, model)
        self.schedule = Schedule.start(train)
        self.average: Average | TwoTailedAverage | None = None
        self.carried: Any = None
        self.epoch = self.stop = self.step = self.tokens = self.scored = self.offset = 0
        self.best: Mapping[Kind, int] = {}
        self.sums: dict[str, Tensor] = {}
        self.seconds = 0.0
        self.cut = False
        self.next_sums()
        self.average_if_due()

    @property
    def means(self) -> dict[str, float]:
        """Nats and terms per target of this epoch so far, with noise and dropout on."""
        return {name: float(total) / max(1, self.scored) for name, total in self.sums.items()}

    def average_if_due(self) -> Average | TwoTailedAverage | None:
        """Start averaging if the schedule has decided so; return the average, if any."""
        if self.schedule.averaging and self.average is None:
            self.average = self._new_average(self.weights().values())
        return self.average

    @property
    def position(self) -> tuple[int, int]:
        """The position in the data: epoch and ``stop``."""
        return self.epoch, self.stop

    def next_sums(self) -> None:
        """Reset the sums to zero."""
        self.sums = {"nats": in_float64(torch.zeros((), device=self.device))}

    def count(self, means: Mapping[str, Tensor], targets: int) -> None:
        """Add the means of a batch to the sums, without waiting for their values."""
        for name, mean in means.items():
            self.sums.setdefault(name, torch.zeros_like(self.sums["nats"]))
            self.sums[name].add_(mean, alpha=targets)
        self.scored += targets

    def advance(self, batch: Batch) -> None:
        """Count a batch as processed."""
        self.stop = batch.stop
        self.step += 1
        self.tokens += batch.count

    def next_epoch(self) -> None:
        """Count an epoch; the next one starts at the beginning of the data, from zero states."""
        self.epoch += 1
        self.stop = self.scored = 0
        self.carried = None
        self.next_sums()
        self.average_if_due()

    # To and from a checkpoint

    def weights(self) -> dict[str, Tensor]:
        """The weights by name; tied weights appear once."""
        return weights_of(self.model)

    def average_weights(self) -> dict[str, Tensor] | None:
        """The average of the weights by name, or None."""
        if self.average is None or not self.average.count:
            return None
        return dict(zip(self.weights(), self.average.state_dict()["means"], strict=True))

    def state_dict(self, seconds: float, carried: Any) -> dict[str, Any]:
        """Everything except the weights and their average, as plain types.

        ``seconds`` is the time of all sessions, and ``carried`` the state of all columns.
        """
        counters = {name: getattr(self, name) for name in _COUNTERS}
        average = {} if self.average is None else self.average.state_dict()
        tail = {name: average[name] for name in average.keys() - {"count", "means"}}
        return {
            **counters,
            **({"tail": tail} if tail else {}),
            "seconds": seconds,
            "sums": dict(self.sums),
            "carried": states.detach(carried),
            "optimizer": self.optimizer.state_dict(),
            "average": average.get("count", 0),
            "schedule": self.schedule.state_dict(),
            "generators": random_state(self.device),
        }

    def pattern(self, batch: Batch, K: int) -> Pattern:
        """The structure that a checkpoint of this run must have, given one of its batches."""
        carried = None
        if batch.carries:
            with torch.no_grad(), as_training(self.model, on=False):
                _, carried = self.model.log_prob(batch.first_step().repeat(K).to(self.device))
        return Pattern(self.weights(), self.optimizer.state_dict(), self.parameters, carried)

    def load(self, checkpoint: Checkpoint) -> None:
        """Load the state of a checkpoint."""
        state = checkpoint.state
        load_weights(self.weights(), checkpoint.weights)
        self.optimizer.load_state_dict(state["optimizer"])
        self.schedule = Schedule.from_state_dict(state["schedule"])
        self.average = None
        if (average := self.average_if_due()) is not None:
            by_name = checkpoint.average or {}
            means = [by_name[name] for name in self.weights()] if state["average"] else []
            tail = state.get("tail", {})
            average.load_state_dict({"count": state["average"], "means": means, **tail})
        self.carried = states.to(state["carried"], self.device)
        place = self.sums["nats"].device
        self.sums = {name: total.to(place) for name, total in state["sums"].items()}
        for name in (*_COUNTERS, "seconds"):
            setattr(self, name, state[name])
        self.best = checkpoint.manifest.best
        rewind(state["generators"], self.device)


_COUNTERS = ("epoch", "stop", "step", "tokens", "scored", "offset", "cut")


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """What a checkpoint contains of a model, by name: parameters, and statistics in buffers."""
    kept = model.state_dict(keep_vars=True).keys()
    buffers = {
        name: buffer
        for name, buffer in model.named_buffers()
        if name in kept and buffer.is_floating_point()
    }
    return {**dict(model.named_parameters()), **buffers}


def means_of(loss: Loss) -> dict[str, Tensor]:
    """The nats, the terms and what else was measured of a batch, per target, detached."""
    measured = {f"{MEASURED}{name}": mean for name, mean in loss.measured.items()}
    means = {"nats": loss.mean, **loss.terms, **measured}
    return {name: in_float64(mean.detach()) for name, mean in means.items()}


def recorded_means(means: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """The terms, and what else was measured, as a line of metrics has them; not the nats.

    >>> recorded_means({"nats": 4.5, "ar": 0.1, "measured.effective_samples": 1.5})
    {'terms': {'ar': 0.1}, 'measured': {'effective_samples': 1.5}}
    """
    measured = {
        name.removeprefix(MEASURED): mean
        for name, mean in means.items()
        if name.startswith(MEASURED)
    }
    terms = {n: m for n, m in means.items() if n != "nats" and not n.startswith(MEASURED)}
    return ({"terms": terms} if terms else {}) | ({"measured": measured} if measured else {})


def load_weights(weights: Weights, saved: Weights) -> None:
    """Copy saved weights into a model's, by name."""
    shapes = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    found = {name: tuple(tensor.shape) for name, tensor in saved.items()}
    if shapes != found:
        odd = sorted(shapes.items() ^ found.items())
        raise Unsupported(
            f"training: the weights of the checkpoint do not match the model (first difference: "
            f"{odd[0][0]}). It was made by another version of noisin: use that version."
        )
    with torch.no_grad():
        for name, tensor in weights.items():
            tensor.copy_(saved[name])
