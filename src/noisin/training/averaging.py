r"""Averages of the iterates of SGD.

With a constant learning rate, the iterates of SGD fluctuate around the minimum; their mean,
``θ̄_n = (θ_1 + ... + θ_n) / n``, fluctuates less. The setting ``train.averaging`` decides whether
averaging starts at the first step or once validation stops improving. The mean is updated in
place, ``θ̄ += (θ - θ̄) / n``, with one call for all parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from noisin._util import arguments, checks
from noisin.errors import InvalidType, InvalidValue, Unsupported
from noisin.tasks import Score


class Average:
    """The running mean of parameters over the updates so far; a shared parameter counts once.

    >>> weight = torch.nn.Parameter(torch.tensor([1.0]))
    >>> average = Average([weight])
    >>> for value in (1.0, 2.0, 6.0):
    ...     _ = weight.data.fill_(value)
    ...     average.update()
    >>> with average.applied():
    ...     weight.item()
    3.0
    >>> weight.item()
    6.0
    """

    def __init__(self, parameters: Iterable[Tensor]) -> None:
        self._parameters = _checked(parameters)
        self._means: list[Tensor] = []  # empty until the first update, to save memory
        self._count = 0
        self._is_applied = False

    @property
    def count(self) -> int:
        """The number of iterates in the mean."""
        return self._count

    @torch.no_grad()
    def update(self) -> None:
        """Add the current parameters to the mean."""
        if self._is_applied:
            raise Unsupported(
                "Average: update() within applied() would average the average. Leave the with "
                "block first."
            )
        self._count += 1
        if self._count == 1:
            self._means = [p.detach().clone() for p in self._parameters]
        else:
            torch._foreach_lerp_(self._means, self._parameters, 1 / self._count)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """A context in which the parameters are the mean; on exit they are restored exactly.

        Before the first update there is no mean, and the parameters are unchanged.
        """
        if not self._count or self._is_applied:
            yield
            return
        before = [p.detach().clone() for p in self._parameters]
        self._is_applied = True
        try:
            self._set(self._means)
            yield
        finally:
            self._set(before)
            self._is_applied = False

    def scored(self, measure: Callable[[], Score], raw: Score) -> Score | None:  # noqa: ARG002
        """The score of the mean; ``measure`` scores the current parameters, as it did ``raw``.

        An average that adapts to its score, :class:`~.two_tailed.TwoTailedAverage`, compares both.
        """
        with self.applied():
            return measure()

    @torch.no_grad()
    def _set(self, values: list[Tensor]) -> None:
        torch._foreach_copy_(self._parameters, values)

    def state_dict(self) -> dict[str, Any]:
        """The count and the means, as plain types."""
        return {"count": self._count, "means": list(self._means)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state that ``state_dict`` returned for the same parameters."""
        if not isinstance(state, Mapping) or not {"count", "means"} <= state.keys():
            raise InvalidType(
                f"Average: expected a state with count and means, got {state!r:.60}. Pass what "
                f"state_dict() returned."
            )
        count, means = arguments.whole("Average: count", state["count"], 0), state["means"]
        if not isinstance(means, list | tuple):
            raise InvalidType(f"Average: means must be a list, got {type(means).__name__}.")
        for mean in means:
            checks.require_real("Average", mean=mean)
        expected = [tuple(p.shape) for p in self._parameters] if count else []
        given = [tuple(mean.shape) for mean in means]
        if given != expected:
            raise InvalidValue(
                f"Average: the state has means of the shapes {given} after {count} updates, "
                f"expected {expected}. Load it for the model it was saved from."
            )
        self._means = [
            mean.to(p, copy=True) for mean, p in zip(means, self._parameters, strict=bool(count))
        ]
        self._count = count


def _checked(parameters: Iterable[Tensor]) -> list[Tensor]:
    if isinstance(parameters, torch.nn.Module | Tensor):
        raise InvalidType(
            f"Average: expected parameters, got {type(parameters).__name__}. Pass "
            "model.parameters()."
        )
    arguments.items("Average: parameters", parameters, "tensors, such as model.parameters(),")
    unique = list({id(p): p for p in parameters}.values())
    if not unique:
        raise InvalidValue("Average: got no parameters. Pass model.parameters(), before using it.")
    for p in unique:
        if not isinstance(p, Tensor) or p.dtype not in checks.FLOATS:
            got = p.dtype if isinstance(p, Tensor) else type(p).__name__
            raise InvalidType(
                f"Average: expected floating-point tensors, got {got}. Pass model.parameters()."
            )
        if any(n > 1 and step == 0 for n, step in zip(p.shape, p.stride(), strict=True)):
            raise InvalidValue(
                f"Average: expected tensors that can be written, got one of shape "
                f"{tuple(p.shape)} whose entries share memory. Pass model.parameters()."
            )
    return unique
