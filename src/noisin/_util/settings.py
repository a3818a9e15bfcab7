"""Settings by dotted name, and objects by the name ``package.module:Class``.

A dotted name such as ``noise.std`` is the path of a setting through the sections of a config. As in
TOML, a part that has a dot itself is quoted: ``train.terms."package.module:Class"``.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from noisin._util.wording import shown
from noisin.errors import InvalidValue, NoisinError

Nested = Mapping[str, Any]
# Two ways to state the same thing: whichever is given replaces the other.
_ALTERNATIVES = {"gamma": "std", "std": "gamma"}
_PARTS = re.compile(r'(?:"[^"]*"|[^."]*)(?:\.(?:"[^"]*"|[^."]*))*')


def flat(
    values: Nested, is_value: Callable[[Nested], bool] = lambda _: False, prefix: str = ""
) -> dict[str, Any]:
    """Nested settings by dotted name. A mapping for which ``is_value`` is true is not a section.

    >>> flat({"noise": {"std": [0.5, 1.0], "mode": "additive"}, "train.lr": 20})
    {'noise.std': [0.5, 1.0], 'noise.mode': 'additive', 'train.lr': 20}
    >>> flat({"train": {"terms": {"mine.terms:Term": 2.0}}})
    {'train.terms."mine.terms:Term"': 2.0}
    """
    found: dict[str, Any] = {}
    for name, value in values.items():
        part = f'"{name}"' if is_object_name(name) else name
        if isinstance(value, Mapping) and not is_value(value):
            found |= flat(value, is_value, f"{prefix}{part}.")
        else:
            found[prefix + part] = value
    return found


def nest(values: Nested) -> dict[str, Any]:
    """Settings by dotted name as a file has them, in sections: the inverse of :func:`flat`.

    >>> nest({"noise.std": 0.5, "noise.mode": "additive", "seed": 3})
    {'noise': {'std': 0.5, 'mode': 'additive'}, 'seed': 3}
    """
    nested: dict[str, Any] = {}
    for name, value in values.items():
        *sections, last = split(name)
        section = nested
        for part in sections:
            section = section.setdefault(part, {})
            if not isinstance(section, dict):
                raise InvalidValue(f"{name} is within {part}, which has a value itself.")
        if last in section:
            raise InvalidValue(f"{name} has a value and settings within it.")
        section[last] = value
    return nested


def split(name: str) -> list[str]:
    """The parts of a dotted name.

    >>> split('train.terms."mine.terms:Term"')
    ['train', 'terms', 'mine.terms:Term']
    """
    if '"' not in name:
        return name.split(".")
    if not _PARTS.fullmatch(name):
        raise InvalidValue(
            f"{shown(name, 80)} is not a dotted name: a quote is missing or misplaced. Quote a "
            f'part that contains a dot, as in train.terms."package.module:Class".'
        )
    return [part.strip('"') for part in re.findall(r'"[^"]*"|[^."]+', name)]


def merge(below: Nested, above: Nested) -> dict[str, Any]:
    """Nested settings with others laid over them. Of gamma and std, the upper one replaces both.

    >>> merge({"noise": {"gamma": 0.5, "mode": "additive"}}, {"noise": {"std": 1}})
    {'noise': {'mode': 'additive', 'std': 1}}
    """
    merged = dict(below)
    for name, other in _ALTERNATIVES.items():
        if name in above and other not in above:
            merged.pop(other, None)
    for name, value in above.items():
        under = merged.get(name)
        both = isinstance(value, Mapping) and isinstance(under, Mapping)
        merged[name] = merge(under, value) if both else value  # type: ignore[arg-type]
    return merged


def leave_out(settings: dict[str, Any], name: str, value: Any) -> None:
    """Remove the setting of this dotted name if it has this value.

    >>> settings = {"model": {"zoneout": None, "cell": "lstm"}}
    >>> leave_out(settings, "model.zoneout", None)
    >>> settings
    {'model': {'cell': 'lstm'}}
    """
    *sections, last = split(name)
    section: Any = settings
    for part in sections:
        section = section.get(part) if isinstance(section, dict) else None
    if isinstance(section, dict) and last in section and section[last] == value:
        del section[last]


def sections(settings: Nested) -> list[str]:
    """The dotted name of the section of each setting; of one outside any section, its own name.

    >>> sections({"noise": {"std": 1, "schedule": {"kind": "linear"}}, "seed": 3})
    ['noise', 'noise.schedule', 'seed']
    """
    return [".".join(split(name)[:-1]) or name for name in flat(settings)]


def is_object_name(name: str) -> bool:
    """Whether a name has the form ``package.module:Class``. Nothing is loaded.

    >>> is_object_name("mine.noises:Uniform"), is_object_name("gaussian"), is_object_name("a:b:c")
    (True, False, False)
    """
    module, colon, attribute = name.partition(":")
    parts = [*module.split("."), attribute]
    return bool(colon) and len(name) <= 200 and all(part.isidentifier() for part in parts)


def load_object(name: str, setting: str = "", members: Sequence[str] = ()) -> type[Any]:
    """The class that ``package.module:Class`` names.

    Modules are searched where Python searches them (``PYTHONPATH`` included), and last in the
    current folder, which is not on Python's path for a console script such as ``noisin``.

    Args:
        name: the name.
        setting: the setting that has the name, for messages.
        members: what the class must have, such as ``("variance", "sample")``. A class without them
            is refused before it is called: a config may come from elsewhere.
    """
    given = f"{setting} = {shown(name)}" if setting else shown(name)
    if not is_object_name(name):
        raise InvalidValue(f"{given}: expected package.module:Class, such as mine.noises:Uniform.")
    module, _, attribute = name.partition(":")
    found = getattr(_load_module(module, given), attribute, None)
    if found is None:
        raise InvalidValue(f"{given}: the module {module} has no {attribute}. Check its spelling.")
    if not isinstance(found, type):
        raise InvalidValue(
            f"{given}: expected a class, and {attribute} is of type {type(found).__name__}."
        )
    missing = [member for member in members if member not in _members(found)]
    if missing:
        raise InvalidValue(
            f"{given}: the class needs {' and '.join(members)}, and has no {missing[0]}. "
            f"Define it, or name another class."
        )
    return found


def construct(setting: str, make: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call what a setting names; arguments that it refuses are one clear message."""
    try:
        return make(*args, **kwargs)
    except NoisinError:
        raise
    except Exception as error:  # code of the user's may raise any
        name = getattr(make, "__qualname__", repr(make))
        what = f"{type(error).__name__}: {error}"
        raise InvalidValue(
            f"{setting}: {name} failed: {what}. Check its arguments, or name another class."
        ) from error


def _members(found: type) -> set[str]:
    """The attributes and methods of a class, and the fields of a dataclass."""
    return {*dir(found), *getattr(found, "__dataclass_fields__", ())}


def _load_module(module: str, given: str) -> Any:
    try:
        with _current_folder_last():
            return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            raise InvalidValue(
                f"{given}: there is no module {error.name}. It is searched on PYTHONPATH, among "
                f"the installed packages and in the current folder, {Path.cwd()}."
            ) from None
        raise InvalidValue(f"{given}: loading {module} failed: {error}.") from error
    except Exception as error:  # code of the user's may raise any
        what = f"{type(error).__name__}: {error}"
        raise InvalidValue(f"{given}: loading {module} failed: {what}.") from error


@contextmanager
def _current_folder_last() -> Iterator[None]:
    folder = str(Path.cwd())
    if folder in sys.path or "" in sys.path:
        yield
        return
    sys.path.append(folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
