"""Every setting of a run as a flag: ``--train.epochs 40``, made from the config itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from cyclopts import Group, Parameter
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from noisin._util.settings import nest
from noisin.training.config import RunConfig

Command = TypeVar("Command", bound=Callable[..., Any])

_ALIASES = {"data.folder": ("--data",)}
_METAVARS = {int: "NUMBER", float: "NUMBER"}


def with_settings(command: Command) -> Command:
    """Give a command that takes ``**flags`` a flag for each setting of a run.

    The values come as text, by dotted name and None where not given; the config reads them.
    """
    signature = inspect.signature(command)
    kept = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    command.__signature__ = signature.replace(parameters=[*kept, *_parameters()])  # type: ignore[attr-defined]
    return command


def nested(flags: Mapping[str, str | None]) -> dict[str, Any]:
    """The flags that were given, as a file would have them.

    >>> nested({"train__epochs": "40", "noise__gamma": "0.5", "seed": None})
    {'train': {'epochs': '40'}, 'noise': {'gamma': '0.5'}}
    """
    given = {name: text for name, text in flags.items() if text is not None}
    return nest({name.replace("__", "."): text for name, text in given.items()})


def _parameters() -> Iterator[inspect.Parameter]:
    groups: dict[type[BaseModel], Group] = {}
    for name, section, field in _leaves(RunConfig):
        title = inspect.cleandoc(section.__doc__ or "").split(".")[0] if "." in name else "The run"
        group = groups.setdefault(section, Group(title, sort_key=len(groups) + 1))
        yield inspect.Parameter(
            name.replace(".", "__"),
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[
                _choices(field) | None,
                Parameter(
                    name=(f"--{name}", *_ALIASES.get(name, ())),
                    help=field.description,
                    group=group,
                    metavar=_METAVARS.get(_kind(field)),
                    show_default=_default(field),
                ),
            ],
        )


def _leaves(
    section: type[BaseModel], prefix: str = ""
) -> Iterator[tuple[str, type[BaseModel], FieldInfo]]:
    for name, field in section.model_fields.items():
        inner = _kind(field)
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _leaves(inner, f"{prefix}{name}.")
        else:
            yield prefix + name, section, field


def _kind(field: FieldInfo) -> Any:
    """The type of a setting, but for its being optional."""
    parts = [part for part in get_args(field.annotation) if part is not type(None)]
    if get_origin(field.annotation) is Literal or not parts:
        return field.annotation
    return get_args(parts[0])[0] if get_origin(parts[0]) is Annotated else parts[0]


def _choices(field: FieldInfo) -> Any:
    kind = _kind(field)
    if kind is bool:
        return Literal["true", "false"]
    return kind if get_origin(kind) is Literal else str


def _default(field: FieldInfo) -> Any:
    value = field.default
    if value is None:
        return False
    return lambda _: str(value).lower() if isinstance(value, bool) else str(value)
