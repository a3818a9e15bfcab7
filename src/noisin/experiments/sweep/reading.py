"""Read a sweep from TOML: settings as in a preset, and what to vary.

``[grid]`` contains lists by dotted name and means every combination; ``base`` may be one of them.
``[[points]]`` are tables of settings, one for each point, each optionally with its own ``base``;
with both, every point is combined with every value. ``[search]`` contains ranges, from which
``trials`` points are drawn while the sweep runs. Each point is run with every seed of ``seeds``.
``[pruning]`` ends runs early that are worse than others.

>>> sweep = read("manual-families")
>>> len(sweep.points), len(sweep.tasks)
(16, 48)
>>> sweep.tasks[0].runs[0].name
'gaussian-std-0.5-seed-1111'
"""

from __future__ import annotations

import itertools
import math
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from noisin._util.regular import read_regular
from noisin._util.settings import flat, merge, nest
from noisin.errors import InvalidValue, Unavailable
from noisin.experiments import presets
from noisin.experiments.sweep.definition import LONGEST, Sweep, SweepPoint, describe
from noisin.experiments.sweep.space import MOST, Search, is_distribution, product

FOLDER = Path(__file__).parents[1] / "sweeps"
RANGE = "{low = 0.1, high = 2.0}"  # as an example
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}"


def names() -> list[str]:
    """The sweeps that come with noisin."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def read(name: str, flags: Mapping[str, Any] | None = None) -> Sweep:
    """A sweep by name or from a TOML file; ``flags`` override the settings that do not vary."""
    if name in names():
        path = FOLDER / f"{name}.toml"
    elif name.endswith(".toml") or Path(name).exists():
        path = Path(name)
    else:
        close = get_close_matches(name, names(), n=1)
        hint = f"Did you mean {close[0]!r}?" if close else f"Available: {', '.join(names())}."
        raise InvalidValue(f"There is no sweep or TOML file {name!r:.60}. {hint}")
    content = _parse(path)
    try:
        sweep = _sweep(path, content, flags or {})
        _check(sweep)
    except InvalidValue as error:
        message = str(error)
        where = "" if message.startswith(f"{path}: ") else f"{path}: "
        raise InvalidValue(f"{where}{message}") from None
    return sweep


def _parse(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_regular(path).decode())
    except OSError as error:
        raise Unavailable(f"{path}: cannot be read: {error.strerror}.") from None
    except (ValueError, RecursionError) as error:
        raise InvalidValue(f"{path}: is not TOML: {error}.") from None


def _sweep(path: Path, content: dict[str, Any], flags: Mapping[str, Any]) -> Sweep:
    base = content.pop("base", None)
    grid, points = content.pop("grid", None), content.pop("points", None)
    search, pruning = content.pop("search", None), content.pop("pruning", None)
    seeds = content.pop("seeds", None)
    if (search is None) == (grid is None and points is None):
        raise InvalidValue("a sweep needs [grid], [[points]] or both, or else [search].")
    if seeds is not None and (not isinstance(seeds, list) or not seeds):
        raise InvalidValue(f"seeds must be a list of whole numbers, got {seeds!r:.60}.")
    above = merge(content, flags)
    lists, tables = _lists(grid), _tables(points)
    space = _search(search)
    varied = [*lists, *(space["space"] if space else ()), *_varied(tables)]
    _refuse_twice(varied, flags)
    if seeds and ("seed" in above or "seed" in varied):
        raise InvalidValue("seeds are given, and so is seed. Leave one of them out.")
    values: dict[str, Any] = {
        "name": _named(path.stem),
        "seeds": seeds or (),
        "points": tuple(_points(base, above, tables, lists)) if space is None else (),
        "settings": merge(_base(base), above) if space is not None else {},
        "search": space,
        "pruning": pruning,
    }
    return Sweep(**values)


def _points(
    base: Any, above: Mapping[str, Any], tables: Sequence[Any], lists: Mapping[str, list[Any]]
) -> Iterator[SweepPoint]:
    """Every table with every combination of the lists."""
    many = max(1, len(tables)) * math.prod(len(values) for values in lists.values())
    if many > MOST:
        raise InvalidValue(f"a sweep has {MOST} points at most, got {many}.")
    for table, values in itertools.product(tables or [{}], product(lists)):
        own = flat(table, is_distribution)
        if "base" in own and "base" in values:
            raise InvalidValue("[grid] has a list of bases, and a point also has a base.")
        own |= values
        name, its_base = own.pop("name", None), own.pop("base", base)
        if name is not None and not (isinstance(name, str) and re.fullmatch(NAME, name)):
            raise InvalidValue(
                f"the name of a point becomes a folder and must consist of letters, digits, '.', "
                f"'-' and '_', got {name!r:.60}."
            )
        settings = merge(merge(_base(its_base), above), nest(own))
        if name is not None:
            words = [name, describe({key: own[key] for key in values if key != "base"})]
        else:
            words = ["" if its_base == base else its_base, describe(own)]
        called = "-".join(word for word in words if word)[:LONGEST].rstrip("-.")
        yield SweepPoint(name=called or its_base or "defaults", settings=settings)


def _base(name: Any) -> Mapping[str, Any]:
    """The settings of a preset."""
    if name is None:
        return {}
    if name not in presets.names():
        raise InvalidValue(
            f"base must be a preset, got {name!r:.60}. Available: {presets.known()}."
        )
    preset = presets.read(name)
    if preset.variants:
        raise InvalidValue(f"base must be one run, and {name} is several.")
    return preset.settings


def _varied(tables: Sequence[Mapping[str, Any]]) -> list[str]:
    return [name for table in tables for name in flat(table, is_distribution)]


def _lists(grid: Any) -> dict[str, list[Any]]:
    if grid is not None and not isinstance(grid, dict):
        raise InvalidValue(f"[grid] must contain lists by name, got {grid!r:.60}.")
    lists = flat(grid or {}, is_distribution)
    for name, values in lists.items():
        if not isinstance(values, list) or not values:
            raise InvalidValue(f"[grid]: {name} must be a list of values, got {values!r:.60}.")
    return lists


def _tables(points: Any) -> list[dict[str, Any]]:
    if points is None:
        return []
    if not isinstance(points, list) or not points or not all(isinstance(p, dict) for p in points):
        raise InvalidValue(f"[[points]] must be tables of settings, got {points!r:.60}.")
    return points


def _search(search: Any) -> dict[str, Any] | None:
    if search is None:
        return None
    if not isinstance(search, dict):
        raise InvalidValue(f"[search] must contain ranges by name, got {search!r:.60}.")
    own = {name: search[name] for name in Search.model_fields if name in search and name != "space"}
    others = {name: value for name, value in search.items() if name not in own}
    space = flat(others, is_distribution)
    if not space:
        raise InvalidValue(f"[search] must contain a setting, such as noise.std = {RANGE}.")
    for name, distribution in space.items():
        if not isinstance(distribution, Mapping):
            raise InvalidValue(
                f"[search]: {name} must be a range such as {RANGE} or {{choices = [1, 2]}}, got "
                f"{distribution!r:.60}."
            )
    return {**own, "space": space}


def _refuse_twice(varied: Sequence[str], flags: Mapping[str, Any]) -> None:
    """Refuse flags for settings that the sweep varies."""

    def alike(name: str) -> str:
        return "noise.std" if name == "noise.gamma" else name  # one stands for the other

    both = {alike(name) for name in varied} & {alike(name) for name in flat(flags)}
    if both:
        raise InvalidValue(f"{min(both)} is varied by this sweep and cannot be set for all points.")


def _check(sweep: Sweep) -> None:
    """Check that the settings of every run are valid, and that no run occurs twice."""
    if sweep.search is not None:
        for values in sweep.search.examples():
            sweep.searched(values)
        return
    if len(sweep.points) * max(1, len(sweep.seeds)) > MOST:
        raise InvalidValue(f"a sweep has {MOST} runs at most: points times seeds.")
    seen: dict[str, str] = {}
    for task in sweep.tasks:
        for run in task.runs:
            other = seen.setdefault(run.digest, run.name)
            if other is not run.name:
                raise InvalidValue(f"two points are the same run: {other} and {run.name}.")


def _named(stem: str) -> str:
    """A folder name made from the name of a file."""
    text = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-.")[:60]
    return text or "sweep"
