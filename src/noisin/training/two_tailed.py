r"""Two-tailed averaging: the mean of as many of the last iterates as validation prefers.

Two running means are updated at every step. After an evaluation on valid, if the shorter one is at
least as good as the longer one, the longer one is discarded, the shorter one takes its place, and a
new one starts from nothing. So the length of the longer one, which is the result, follows the
optimal length without a setting for it (Melis, 2022, arXiv 2209.12581, algorithm 1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor

from noisin._util import arguments
from noisin.errors import InvalidType
from noisin.tasks import Score
from noisin.training.averaging import Average


class TwoTailedAverage:
    """A short and a long running mean of parameters; the long one is the average.

    >>> import torch
    >>> weight = torch.nn.Parameter(torch.zeros(1))
    >>> average = TwoTailedAverage([weight])
    >>> for step, value in enumerate((9.0, 4.0, 2.0, 0.0)):
    ...     _ = weight.data.fill_(value)
    ...     average.update()
    ...     if step % 2:  # the loss is the distance from 1
    ...         measure = lambda: Score(abs(weight.item() - 1), 1)
    ...         average.scored(measure, Score(99.0, 1)).nats
    5.5
    0.0
    >>> average.count  # the last two steps
    2
    """

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        self._parameters = list(parameters)
        self._restart()

    def _restart(self) -> None:
        self._long, self._short = Average(self._parameters), Average(self._parameters)
        self._since = 0  # updates since the last evaluation

    @property
    def count(self) -> int:
        """The number of iterates in the long mean."""
        return self._long.count

    def update(self) -> None:
        """Add the current parameters to both means."""
        self._long.update()
        self._short.update()
        self._since += 1

    def applied(self) -> AbstractContextManager[None]:
        """A context in which the parameters are the long mean."""
        return self._long.applied()

    def scored(self, measure: Callable[[], Score], raw: Score) -> Score | None:
        """Score both means, keep the right one, and return its score.

        None if there is no average now: as long as one period of averaging is no better than
        ``raw``, the current parameters, it is discarded, because the iterates still move too fast
        (part of algorithm 2 of the paper; its reset of means that stagnate is left out).
        """
        long = self._long.scored(measure, raw)
        alike = self._short.count == self._long.count
        short = long if alike else self._short.scored(measure, raw)
        assert long is not None
        assert short is not None
        period, self._since = self._since, 0
        if short.nats <= long.nats:
            self._long, self._short = self._short, Average(self._parameters)
            long = short
        if 1 < self._long.count == period and raw.nats <= long.nats:
            self._restart()
            return None
        return long

    def state_dict(self) -> dict[str, Any]:
        """The state of the long mean, and that of the short one, as plain types."""
        tail = {"short": self._short.state_dict(), "since": self._since}
        return {**self._long.state_dict(), **tail}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state that ``state_dict`` returned for the same parameters."""
        if not isinstance(state, Mapping) or not {"short", "since"} <= state.keys():
            raise InvalidType(
                f"TwoTailedAverage: expected a state with count, means, short and since, got "
                f"{state!r:.60}. Pass what state_dict() returned."
            )
        since = arguments.whole("TwoTailedAverage: since", state["since"], 0)
        self._long.load_state_dict(state)
        self._short.load_state_dict(state["short"])
        self._since = since
