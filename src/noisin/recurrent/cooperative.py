"""Noise in subclasses of torch's RNNs and cells, by a class that is both theirs and ours.

Of ``class LSTM(TheirMixin, nn.LSTM)``, the class with the bases ``(Theirs, noisin.LSTM)`` has their
methods first and ours in place of torch's, so that their ``super().forward(...)`` is noisy. That
holds for methods that cooperate: a class that computes its steps in another way is found by a trial
and refused.
"""

from __future__ import annotations

import copy
import types
from typing import Any

import torch
from torch import nn

from noisin.errors import Unsupported
from noisin.noise import Gaussian
from noisin.recurrent import reach
from noisin.recurrent.injection import Injected, Injection

_LARGE = Gaussian(10.0)
_THEIRS = "_converted_from"  # the attribute of a class that was made here
_COOPERATIVE = {"forward", "extra_repr"}  # methods that theirs may extend
_combined: dict[tuple[type[nn.Module], type[Injected]], type[Injected]] = {}
_ADVICE = (
    "Derive it from noisin's class instead of torch's, wrap a cell with noisin.Noisy, or exclude "
    "it by where=."
)


def converted_from(kind: type[nn.Module]) -> type[nn.Module] | None:
    """The class that was combined with one of ours, or None."""
    theirs: type[nn.Module] | None = getattr(kind, _THEIRS, None)
    return theirs


def combined(theirs: type[nn.Module], ours: type[Injected]) -> type[Injected]:
    """The class of both, under the name of theirs. Its instances can be copied and pickled."""
    if (theirs, ours) not in _combined:
        _combined[theirs, ours] = _combine(theirs, ours)
    return _combined[theirs, ours]


def _combine(theirs: type[nn.Module], ours: type[Injected]) -> type[Injected]:
    def reduced(self: Any) -> Any:
        return _blank, (theirs, ours), self.__getstate__()

    named = {name: getattr(theirs, name) for name in ("__module__", "__qualname__", "__doc__")}
    body = {**named, _THEIRS: theirs, "__reduce__": reduced}
    return types.new_class(theirs.__name__, (theirs, ours), {}, lambda space: space.update(body))


def _blank(theirs: type[nn.Module], ours: type[Injected]) -> Injected:
    kind = combined(theirs, ours)
    return kind.__new__(kind)


def subclass_of(name: str, module: nn.Module, ours: type[Injected] | None) -> type[Injected]:
    """The class to give a module of a subclass of torch's, or raise."""
    theirs = type(module)
    what = f"convert: {name!r} is a {theirs.__name__}"
    if ours is None or _is_another_of_ours(theirs):
        raise Unsupported(f"{what}, a subclass whose behaviour noisin cannot know. {_ADVICE}")
    taken = _names(ours, nn.Module) & (_names(theirs, ours) | set(vars(module)))
    if taken:
        raise Unsupported(
            f"{what}, a subclass that has attributes of noisin's: {', '.join(sorted(taken))}. "
            f"{_ADVICE}"
        )
    try:
        return combined(theirs, ours)
    except TypeError as error:  # no order of their bases and ours
        raise Unsupported(
            f"{what}, a subclass that cannot be combined: {error}. {_ADVICE}"
        ) from None


def _is_another_of_ours(theirs: type[nn.Module]) -> bool:
    """Whether it derives from a cell of noisin's that has no noise, such as a regularizer."""
    ours = [base for base in theirs.__mro__ if base.__module__.partition(".")[0] == "noisin"]
    return bool(ours)


def _names(kind: type, without: type) -> set[str]:
    """What the classes of ``kind`` define that are not among those of ``without``, or torch's."""
    bases = [
        base
        for base in kind.__mro__
        if base not in without.__mro__ and base.__module__.partition(".")[0] != "torch"
    ]
    names = {name for base in bases for name in vars(base) if not name.startswith("__")}
    return names - _COOPERATIVE


def require_noise(name: str, twin: Injected) -> None:
    """Raise unless large noise moves what a converted subclass returns, in train() and eval()."""
    what = f"convert: {name!r} is a {type(twin).__name__}, a subclass"
    for training in (True, False):
        try:
            trial = copy.deepcopy(twin).train(training)
            trial._configure(Injection(_LARGE, "additive"))
            x = _example(trial)
            clean, noisy = (
                reach.outputs(trial, lambda: trial.forward(x), modules)  # noqa: B023
                for modules in ((), (trial,))
            )
        except Exception as error:
            raise Unsupported(
                f"{what} that could not be tried on an input of its size "
                f"({type(error).__name__}: {error}). {_ADVICE}"
            ) from error
        if not reach.moved(clean, noisy):
            raise Unsupported(
                f"{what} whose forward does not return what super().forward computes, so noise "
                f"would not reach its output. {_ADVICE}"
            )


def _example(module: Any) -> torch.Tensor:
    weight = next(module.parameters())
    lead = (2,) if isinstance(module, nn.RNNCellBase) else (3, 2)
    return torch.ones(*lead, module.input_size, dtype=weight.dtype, device=weight.device)
