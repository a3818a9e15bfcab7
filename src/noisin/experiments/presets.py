"""Settings by name, and settings from a TOML file with the sections of a config.

The names are those of the files in this package, of the paper's :mod:`~.recipes`, and of its
:mod:`~.zoo` of other systems.
With ``base = "ptb-medium"`` the settings of a file override those of a preset. A section
``[compare]`` has a sub-section for each of several runs, with the settings that only it has.

>>> read("ptb-medium-gaussian").configs()["ptb-medium-gaussian"].noise.gamma
1.1
>>> list(read("compare").configs())
['no-noise', 'noise', 'dropout']
"""

from __future__ import annotations

import hashlib
import os
import re
import tomllib
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic.json_schema import PydanticJsonSchemaWarning

from noisin._util import toml
from noisin._util.settings import flat, merge, nest, sections
from noisin._util.wording import shown
from noisin.data.text import TextStream
from noisin.errors import InvalidValue
from noisin.experiments.paper import recipes, zoo
from noisin.training.config import RunConfig
from noisin.training.config.hash import dump

FOLDER = Path(__file__).parent / "presets"
MAIN_JOB = "compare"
LIMITS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
}
RECIPES: Mapping[str, Mapping[str, Any]] = {**recipes.RECIPES, **zoo.RECIPES}


@dataclass(frozen=True)
class Preset:
    """Settings by name, and those of the runs to compare, if any."""

    name: str
    settings: Mapping[str, Any]
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def configs(self, flags: Mapping[str, Any] | None = None) -> dict[str, RunConfig]:
        """The runs by name, with ``flags`` over the settings."""
        flags = flags or {}
        self._refuse_what_differs(flags)
        settings = merge(self.settings, flags)
        if not self.variants:
            return {self.name: RunConfig.parse(settings)}
        return {
            name: RunConfig.parse(merge(settings, own), f"{self.name}: {name}")
            for name, own in self.variants.items()
        }

    def resolved(self, flags: Mapping[str, Any] | None = None) -> str:
        """All settings as TOML: the same runs, whatever the presets will be in later versions."""
        configs = self.configs(flags)
        if not self.variants:
            return toml.dumps(dump(configs[self.name]))
        runs = {name: flat(dump(config)) for name, config in configs.items()}
        first = next(iter(runs.values()))
        shared = {
            name: value
            for name, value in first.items()
            if all(name in run and run[name] == value for run in runs.values())
        }
        own = {
            run: nest({name: value for name, value in some.items() if name not in shared})
            for run, some in runs.items()
        }
        return toml.dumps({**nest(shared), "compare": own})

    def _refuse_what_differs(self, flags: Mapping[str, Any]) -> None:
        theirs = {section for own in self.variants.values() for section in sections(own)}
        both = sorted(theirs & set(sections(flags)))
        if both:
            raise InvalidValue(
                f"{self.name}: {both[0]} is what its runs differ in, and cannot be set for all. "
                f"Train one run, such as noisin train manual --noise.gamma 0.5, or write your own "
                f"file with [compare]."
            )


def names() -> list[str]:
    """The presets: the files in this package, and the recipes."""
    return sorted([*_files(), *RECIPES])


def known() -> str:
    """The names of the presets, in a few lines: most of them by their pattern."""
    others = [name for name in recipes.RECIPES if name.split("-")[0] not in recipes.CORPORA]
    parts = "; ".join(f"{part}: {', '.join(kinds)}" for part, kinds in recipes.PARTS.items())
    return (
        f"{', '.join([*_files(), *others])}, for the cells of the paper's tables, "
        f"{recipes.PATTERN} ({parts}), and, for other systems, {', '.join(zoo.RECIPES)}"
    )


def read(name: str) -> Preset:
    """A preset by its name, or a TOML file by its path."""
    if name in RECIPES:
        return Preset(name, RECIPES[name])
    if name in _files():
        return _read(FOLDER / f"{name}.toml")
    if name.endswith(".toml") or os.path.lexists(name):
        return _read(Path(name))
    raise InvalidValue(f"There is no preset or TOML file {shown(name, 60)}. {_hint(name)}")


def base(name: str) -> Preset:
    """A preset by its name, a TOML file by its path, or a run by its folder or its config.json."""
    path = Path(name)
    if name in names() or not (path.is_dir() or path.suffix == ".json"):
        return read(name)
    file = path / "config.json" if path.is_dir() else path
    if path.is_dir() and not file.exists():
        raise InvalidValue(
            f"{shown(name, 200)} is not a run: it has no config.json. Name the folder of a run, a "
            f"preset or a TOML file."
        )
    settings = dump(RunConfig.from_json(file))
    settings.pop("own", None)  # the code of custom classes is recorded anew
    return Preset(file.absolute().parent.name, settings)


def schema() -> dict[str, Any]:
    """The JSON schema of a file of settings: those of a run, ``base`` and ``compare``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PydanticJsonSchemaWarning)  # an empty default is left out
        found = _standard(RunConfig.model_json_schema())
    settings = {name: v for name, v in found["properties"].items() if name != "own"}
    found["$defs"].pop("OwnConfig", None)
    parts = {
        "base": {
            "description": "A preset, whose settings those of the file override.",
            "type": "string",
        },
        **settings,
        "compare": {
            "description": "Several runs: a section for each, with the settings that only it has.",
            "type": "object",
            "additionalProperties": {"type": "object"},
        },
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **found,
        "title": "Settings of noisin",
        "description": "A file for noisin train: see docs/command-line.md.",
        "properties": parts,
    }


def _standard(schema: Any) -> Any:
    """A schema with JSON's names of limits: pydantic keeps its own in some of its types."""
    if isinstance(schema, list):
        return [_standard(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        LIMITS.get(name, name) if isinstance(part, int | float) else name: _standard(part)
        for name, part in schema.items()
    }


def mark(configs: Iterable[RunConfig]) -> str:
    """The hash of settings without limits, so that other limits continue the same runs."""
    hashes = "".join(config.hash(limits=False) for config in configs)
    return hashlib.sha256(hashes.encode()).hexdigest()[:8]


def _files() -> list[str]:
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def _hint(name: str) -> str:
    close = get_close_matches(name, names(), n=1)
    return f"Did you mean {close[0]!r}?" if close else f"Available: {known()}."


def _read(path: Path) -> Preset:
    settings = _parse(path)
    variants, base = settings.pop("compare", {}), settings.pop("base", None)
    _check_variants(path, variants)
    if base is not None:
        if base not in names():
            raise InvalidValue(
                f"{path}: base must be a preset, got {shown(base, 60)}. {_hint(str(base))}"
            )
        below = read(base)
        settings, variants = merge(below.settings, settings), variants or below.variants
    return Preset(path.stem, settings, variants)


def _parse(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(b"".join(TextStream(str(path), path).blocks()).decode())
    except (ValueError, RecursionError) as error:  # not TOML, or not UTF-8
        raise InvalidValue(f"{path}: is not TOML: {error}.") from None


def _check_variants(path: Path, variants: Any) -> None:
    if not isinstance(variants, dict) or not all(isinstance(v, dict) for v in variants.values()):
        raise InvalidValue(f"{path}: [compare] must contain sections, one for each run.")
    for name in variants:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,60}", name):
            raise InvalidValue(
                f"{path}: a run of [compare] is named by letters, digits, '.', '-' and '_', "
                f"because it becomes a folder; got {shown(name, 60)}."
            )
