"""The identity of a custom model or task, so that a run is only continued with the same one.

An object can define an attribute ``identity``, a dict of plain values such as a name and a version.
Otherwise it is identified by its class and the arguments of its constructor, which are read from
attributes of the same names.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from torch import Tensor, nn

from noisin.errors import InvalidType, InvalidValue
from noisin.tasks import Task
from noisin.tasks.base import name_of, sha256_of
from noisin.training.config import RunConfig, TrainConfig

Plain = bool | int | float | str | None


def own_config(
    train: TrainConfig, model: nn.Module, task: Task, *, threads: int | None, device: str
) -> RunConfig:
    """The config that is recorded for a run of a custom model and task."""
    shapes = {name: list(p.shape) for name, p in model.named_parameters()}
    weights = hashlib.sha256(json.dumps(shapes).encode()).hexdigest()
    own = {
        "model": {"name": type(model).__name__, **identity_of(model), "weights": weights},
        "task": {**identity_of(task), "name": name_of(task), "sha256": sha256_of(task)},
    }
    return RunConfig.parse({"own": own, "train": train, "threads": threads, "device": device})


def identity_of(thing: object) -> dict[str, Any]:
    """The ``identity`` of an object, or its class and the arguments of its constructor.

    >>> class Net(nn.Module):
    ...     def __init__(self, size: int) -> None:
    ...         super().__init__()
    ...         self.size = size
    >>> identity_of(Net(3))
    {'class': 'noisin.training.identity:Net', 'arguments': {'size': 3}}
    """
    kind = type(thing)
    given = getattr(thing, "identity", None)
    if given is not None:
        if not isinstance(given, Mapping) or not _is_plain(given):
            raise InvalidType(
                f"{kind.__name__}: identity must be a dict of numbers and text, such as "
                f"{{'name': 'my model', 'version': 1}}, got {given!r:.60}."
            )
        return dict(given)
    arguments = {name: _argument(thing, name) for name in _parameters(kind)}
    return {"class": f"{kind.__module__}:{kind.__qualname__}", "arguments": arguments}


def _parameters(kind: type) -> list[str]:
    if "__init__" not in _defined(kind):
        return []
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(kind).parameters.values()
    return [parameter.name for parameter in parameters if parameter.kind in named]


def _defined(kind: type) -> set[str]:
    """The names that a class and its bases define, without those of ``object``."""
    return {name for base in kind.__mro__[:-1] for name in vars(base)}


def _argument(thing: object, name: str) -> Any:
    """An argument of the constructor: plain values as they are, arrays by their hash."""
    name_of_kind = type(thing).__name__
    if not hasattr(thing, name):
        raise InvalidValue(
            f"{name_of_kind}: the constructor's argument {name!r} is not an attribute, so the "
            f"record of the run cannot identify the object. Store it as self.{name}, or give the "
            f"class an attribute identity = {{'name': ..., 'version': ...}}."
        )
    return _described(getattr(thing, name))


def _described(value: Any) -> Any:
    if _is_plain(value):
        return value
    if isinstance(value, Tensor):
        value = value.detach().cpu().numpy()
    if isinstance(value, np.ndarray):
        content = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return f"array {value.shape} {value.dtype} {content}"
    if isinstance(value, type) or "__repr__" not in _defined(type(value)):
        kind = value if isinstance(value, type) else type(value)
        return f"{kind.__module__}:{kind.__qualname__}"
    return repr(value)


def _is_plain(value: object) -> bool:
    if isinstance(value, Mapping):
        return all(isinstance(k, str) and _is_plain(v) for k, v in value.items())
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return isinstance(value, Plain)
