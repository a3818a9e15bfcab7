"""Every setting of a run as a flag, ``--train.epochs 40``, generated from the config itself."""

from __future__ import annotations

import inspect
import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from cyclopts import Group, Parameter
from pydantic import AfterValidator, BaseModel
from pydantic.fields import FieldInfo

from noisin._util.settings import flat, nest
from noisin.training.config import OwnConfig, RunConfig
from noisin.training.config.choice import CUSTOM, OneOf

Command = TypeVar("Command", bound=Callable[..., Any])

_ALIASES = {"data.folder": ("--data",)}
_METAVARS = {int: "NUMBER", float: "NUMBER"}


def with_settings(command: Command) -> Command:
    """Give a command that takes ``**flags`` a flag for each setting of a run.

    The values arrive as text, by dotted name and None where not given; the config reads them.
    """
    signature = inspect.signature(command)
    kept = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    command.__signature__ = signature.replace(parameters=[*kept, *_parameters()])  # type: ignore[attr-defined]
    return command


def nested(flags: Mapping[str, str | Mapping[str, str] | None]) -> dict[str, Any]:
    """The flags that were given, as a file would have them.

    >>> nested({"train__epochs": "40", "noise__gamma": "0.5", "seed": None})
    {'train': {'epochs': '40'}, 'noise': {'gamma': '0.5'}}
    >>> nested({"model__head__kind": "mine:Head", "model__head": {"experts": "15"}})
    {'model': {'head': {'kind': 'mine:Head', 'experts': 15}}}
    """
    given = {name.replace("__", "."): value for name, value in flags.items() if value is not None}
    return nest(
        flat(
            {
                name: value if isinstance(value, str) else _typed(value)
                for name, value in given.items()
            }
        )
    )


def _typed(texts: Mapping[str, str]) -> dict[str, Any]:
    """Values of settings without a schema: numbers and booleans as in TOML, else text."""
    values: dict[str, Any] = {}
    for name, text in texts.items():
        try:
            values[name] = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            values[name] = text
    return values


def _parameters() -> Iterator[inspect.Parameter]:
    groups: dict[type[BaseModel], Group] = {}
    for name, section, field in _leaves(RunConfig):
        title = inspect.cleandoc(section.__doc__ or "").split(".")[0] if "." in name else "The run"
        group = groups.setdefault(section, Group(title, sort_key=len(groups) + 1))
        yield _parameter(name, field, group)
        if section.model_config.get("extra") == "allow":
            outer = name.rpartition(".")[0]
            yield _open(
                outer, f"Arguments of its constructor. --{outer}.NAME VALUE gives one.", group
            )


def _parameter(name: str, field: FieldInfo, group: Group) -> inspect.Parameter:
    if get_origin(field.annotation) is dict:
        value = "VALUE" if Any in get_args(field.annotation) else "NUMBER"
        return _open(name, f"{field.description} --{name}.NAME {value} gives one.", group)
    names = _names(field)
    return _keyword(
        name,
        _choices(field),
        Parameter(
            name=(f"--{name}", *_ALIASES.get(name, ())),
            help=f"{field.description}{names}",
            group=group,
            metavar="NAME" if names else _METAVARS.get(_kind(field)),
            show_default=_default(field),
        ),
    )


def _open(name: str, help: str, group: Group) -> inspect.Parameter:
    """A flag for a section with settings of any name, which may also be given as JSON."""
    parameter = Parameter(name=f"--{name}", help=help, group=group, json_dict=True)
    return _keyword(name, dict[str, str], parameter)


def _keyword(name: str, kind: Any, parameter: Parameter) -> inspect.Parameter:
    return inspect.Parameter(
        name.replace(".", "__"),
        inspect.Parameter.KEYWORD_ONLY,
        default=None,
        annotation=Annotated[kind | None, parameter],
    )


def _leaves(
    section: type[BaseModel], prefix: str = ""
) -> Iterator[tuple[str, type[BaseModel], FieldInfo]]:
    for name, field in section.model_fields.items():
        inner = _kind(field)
        if inner is OwnConfig:  # is recorded, and never set by hand
            continue
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _leaves(inner, f"{prefix}{name}.")
        else:
            yield prefix + name, section, field


def _kind(field: FieldInfo) -> Any:
    """The type of a setting, without ``None``."""
    parts = [part for part in get_args(field.annotation) if part is not type(None)]
    if get_origin(field.annotation) is Literal or not parts:
        return field.annotation
    return get_args(parts[0])[0] if get_origin(parts[0]) is Annotated else parts[0]


def _choices(field: FieldInfo) -> Any:
    kind = _kind(field)
    if kind is bool:
        return Literal["true", "false"]
    return kind if get_origin(kind) is Literal else str


def _names(field: FieldInfo) -> str:
    """The names that a setting accepts, in the form in which cyclopts shows other choices."""
    optional = (part for part in get_args(field.annotation) if get_origin(part) is Annotated)
    metadata = [*field.metadata, *(entry for part in optional for entry in get_args(part)[1:])]
    for entry in metadata:
        if isinstance(entry, AfterValidator) and isinstance(entry.func, OneOf):
            return f" [choices: {', '.join([*entry.func.names, CUSTOM])}]"
    return ""


def _default(field: FieldInfo) -> Any:
    value = field.default
    if value is None or field.is_required():
        return False
    return lambda _: str(value).lower() if isinstance(value, bool) else str(value)
