"""A public call with right arguments, and the judgement of one with wrong arguments."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from noisin.errors import NoisinError
from tests.calls import wrong
from tests.calls.wrong import Make


@dataclass(frozen=True)
class Call:
    """A function and what makes its right arguments.

    Attributes:
        torch: torch's own counterpart, where the function is a drop-in for it. What torch refuses
            with an error of its own, the drop-in may refuse with the same error.
        patient: arguments for which a large number only takes long.
    """

    name: str
    run: Callable[..., Any]
    arguments: Mapping[str, Make]
    torch: Callable[..., Any] | None = None
    patient: tuple[str, ...] = ()

    def right(self) -> dict[str, Any]:
        """Right arguments."""
        return {name: make() for name, make in self.arguments.items()}


@dataclass(frozen=True)
class Change:
    """An argument, and which wrong value it gets."""

    argument: str
    value: str


def random_changes(draw: random.Random, call: Call, count: int) -> tuple[Change, ...]:
    """Wrong values for ``count`` arguments of a call, or for all that it has."""
    names = sorted(call.arguments)
    changes = []
    for name in draw.sample(names, min(count, len(names))):
        near = wrong.relatives(call.arguments[name]())
        pool = near if near and draw.random() < 0.5 else wrong.ANY
        large = wrong.LARGE if name in call.patient else ()
        changes.append(Change(name, draw.choice([value for value in pool if value not in large])))
    return tuple(changes)


def apply(call: Call, changes: tuple[Change, ...]) -> dict[str, Any]:
    """The arguments of a call, some of them wrong."""
    arguments = call.right()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch calls some kinds of tensors experimental
        for change in changes:
            if change.value in wrong.ANY:
                arguments[change.argument] = wrong.ANY[change.value]()
            else:
                right = arguments[change.argument]
                arguments[change.argument] = wrong.relatives(right)[change.value](right)
    return arguments


def fault(call: Call, changes: tuple[Change, ...]) -> str | None:
    """What is wrong with how a call takes wrong arguments, or None.

    It may succeed, or raise one of noisin's errors, or that of torch's counterpart.
    """
    error = raised(call.run, apply(call, changes))
    if error is None or isinstance(error, MemoryError) or _out_of_memory(error):
        return None
    if isinstance(error, NoisinError):
        return None if str(error) else "an empty message"
    if call.torch is not None and _can_be_torchs(error):
        theirs = raised(call.torch, apply(call, changes))
        if type(theirs) is type(error) and str(theirs) == str(error):
            return None
    return f"{type(error).__name__}: {error}"


def raised(function: Callable[..., Any], arguments: Mapping[str, Any]) -> Exception | None:
    """The error that a call ends in, or None."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            function(**arguments)
        except Exception as error:
            return error
    return None


def _can_be_torchs(error: Exception) -> bool:
    """Whether it is an error that torch raises on purpose."""
    kinds = (RuntimeError, ValueError, AssertionError)  # the last where torch has no CUDA
    return type(error) in kinds or "should be of type" in str(error)


def _out_of_memory(error: Exception) -> bool:
    """Whether a size was too large; torch's message says how large."""
    words = ("can't allocate memory", "calculation overflowed", "multiplication overflow")
    return isinstance(error, RuntimeError) and any(w in str(error) for w in words)
