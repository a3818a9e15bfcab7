"""The state of a run: all that changes while it goes on, and so all that a checkpoint holds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from noisin.data import Window
from noisin.errors import Unsupported
from noisin.models import detach
from noisin.recurrent.injection import as_training
from noisin.training.averaging import Average
from noisin.training.build import build_model, build_optimizer
from noisin.training.checkpoint import Checkpoint, Weights
from noisin.training.config import RunConfig
from noisin.training.contents import Pattern
from noisin.training.predictors import Score
from noisin.training.runtime.device import random_state, rewind
from noisin.training.schedule import Course
from noisin.training.schedule import Weights as Kind


class Run:
    """A run at one moment.

    Attributes:
        model, parameters, optimizer: at work; weights that are tied count once.
        average: the average of the weights, or None while there is none.
        course: what validation has decided so far.
        carried: the state of the RNN at the end of the last window, or None at an epoch's start.
        epoch: epochs that are over.
        row: rows of the columns that are done in this one.
        step, tokens: steps taken and words learnt from, over all epochs.
        sums: of the nll and the penalty over the ``scored`` words of this epoch, in nats.
        seconds: of work in earlier sessions.
        cut: whether the last epoch was cut short by a limit on tokens or minutes.
        offset: the end of ``metrics.jsonl``.
        best: the numbers of the checkpoints with the best raw weights and the best average.
    """

    def __init__(self, config: RunConfig, num_words: int, device: torch.device) -> None:
        self.config = config
        self.device = device
        self.model = build_model(config, num_words).to(device)
        self.parameters = list(self.model.parameters())
        self.optimizer = build_optimizer(config.train, self.model)
        self.course = Course.start(config.train)
        self.average: Average | None = None
        self.carried: Any = None
        self.epoch = self.row = self.step = self.tokens = self.scored = self.offset = 0
        self.best: Mapping[Kind, int] = {}
        self.sums = torch.zeros(2, dtype=torch.float64, device=device)
        self.seconds = 0.0
        self.cut = False
        self.average_if_due()

    @property
    def perplexity(self) -> float:
        """Of the training words of this epoch so far, with noise and dropout on."""
        return Score(float(self.sums[0]) / max(1, self.scored), self.scored).perplexity

    @property
    def penalty(self) -> float:
        """The mean penalty of this epoch so far, in nats a word."""
        return float(self.sums[1]) / max(1, self.scored)

    def average_if_due(self) -> None:
        """Begin the average, once the course says so."""
        if self.course.averaging and self.average is None:
            self.average = Average(self.parameters)

    @property
    def position(self) -> tuple[int, int]:
        """Where in the text the run is."""
        return self.epoch, self.row

    def count(self, losses: Tensor, tokens: int) -> None:
        """Take the mean losses of a window into the sums, without waiting for their values."""
        self.sums.add_(losses, alpha=tokens)
        self.scored += tokens

    def advance(self, window: Window) -> None:
        """A window is done."""
        self.row = window.stop
        self.step += 1
        self.tokens += window.target.numel()

    def next_epoch(self) -> None:
        """An epoch is done: the next one starts from the beginning of the text and a zero state."""
        self.epoch += 1
        self.row = self.scored = 0
        self.carried = None
        self.sums.zero_()
        self.average_if_due()

    # To and from a checkpoint

    def weights(self) -> dict[str, Tensor]:
        """The weights by name; tied ones once."""
        return dict(self.model.named_parameters())

    def average_weights(self) -> dict[str, Tensor] | None:
        """Their average by name, or None."""
        if self.average is None or not self.average.count:
            return None
        return dict(zip(self.weights(), self.average.state_dict()["means"], strict=True))

    def state_dict(self, seconds: float, carried: Any) -> dict[str, Any]:
        """All but the weights and their average, as plain types.

        ``seconds`` are those of all sessions, and ``carried`` is the state of all columns.
        """
        counters = {name: getattr(self, name) for name in _COUNTERS}
        return {
            **counters,
            "seconds": seconds,
            "sums": self.sums,
            "carried": detach(carried),
            "optimizer": self.optimizer.state_dict(),
            "average": 0 if self.average is None else self.average.count,
            "course": self.course.state_dict(),
            "generators": random_state(self.device),
        }

    def pattern(self) -> Pattern:
        """What a checkpoint of this run must be like."""
        columns = self.config.train.batch_size * self.config.train.K
        x = torch.zeros(1, columns, dtype=torch.int64, device=self.device)
        with torch.no_grad(), as_training(self.model, on=False):
            _, carried = self.model.encode(x)
        return Pattern(self.weights(), self.optimizer.state_dict(), carried)

    def load(self, checkpoint: Checkpoint) -> None:
        """Go back, or forth, to the moment of a checkpoint."""
        state = checkpoint.state
        load_weights(self.weights(), checkpoint.weights)
        self.optimizer.load_state_dict(state["optimizer"])
        self.course = Course.from_state_dict(state["course"])
        self.average = Average(self.parameters) if self.course.averaging else None
        if self.average is not None and checkpoint.average is not None:
            means = [checkpoint.average[name] for name in self.weights()]
            self.average.load_state_dict({"count": state["average"], "means": means})
        self.carried = _to_device(state["carried"], self.device)
        self.sums = state["sums"].to(self.device)
        for name in (*_COUNTERS, "seconds"):
            setattr(self, name, state[name])
        self.best = checkpoint.manifest.best
        rewind(state["generators"], self.device)


_COUNTERS = ("epoch", "row", "step", "tokens", "scored", "offset", "cut")


def load_weights(weights: Weights, saved: Weights) -> None:
    """Copy saved weights into a model's, by name."""
    shapes = {name: tuple(tensor.shape) for name, tensor in weights.items()}
    found = {name: tuple(tensor.shape) for name, tensor in saved.items()}
    if shapes != found:
        odd = sorted(shapes.items() ^ found.items())
        raise Unsupported(
            f"training: the checkpoint holds other weights than the model ({odd[0][0]} first). "
            f"It was made by another version of noisin: use that one."
        )
    with torch.no_grad():
        for name, tensor in weights.items():
            tensor.copy_(saved[name])


def _to_device(state: Any, device: torch.device) -> Any:
    if isinstance(state, Tensor):
        return state.to(device)
    return None if state is None else tuple(_to_device(part, device) for part in state)
