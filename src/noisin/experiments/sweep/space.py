"""The space of a search: for each setting a range or a list. Nothing here needs Optuna."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, Field, model_validator

from noisin._util.settings import split
from noisin.training.config import RunConfig
from noisin.training.config.section import InvalidConfig, Number, Section, Whole

MOST = 10_000  # runs of a sweep, and trials of a search


class Distribution(Section):
    """The values of one setting: from ``low`` to ``high``, or one of ``choices``."""

    low: Number | None = None
    high: Number | None = None
    log: bool = False
    step: Annotated[Number, Field(gt=0)] | None = None
    choices: tuple[bool | int | float | str, ...] | None = None

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        found = self._problem()
        if found:
            raise InvalidConfig([("", found)])
        return self

    def _problem(self) -> str:
        if self.choices is not None:
            others = self.model_fields_set - {"choices"}
            if others:
                return f"choices cannot be combined with {min(others)}."
            return "" if self.choices else "choices must contain at least one value."
        if self.low is None or self.high is None:
            return "expected low and high, or choices."
        if self.low >= self.high:
            return f"low must be less than high, got {self.low:g} and {self.high:g}."
        if self.log and self.low <= 0:
            return f"low must be more than 0 with log = true, got {self.low:g}."
        return "log and step cannot be combined." if self.log and self.step is not None else ""

    @property
    def examples(self) -> tuple[Any, ...]:
        """Both ends of the range, or all choices."""
        return self.choices if self.choices is not None else (self.low, self.high)


class Search(Section):
    """A search: the space, the sampler, and the number of trials."""

    trials: Annotated[Whole, Field(ge=1, le=MOST)]
    sampler: Literal["tpe", "random"] = "tpe"
    seed: Annotated[Whole, Field(ge=0, le=2**32 - 1)] = 0
    space: dict[str, Distribution] = Field(min_length=1)

    def examples(self) -> Iterator[dict[str, Any]]:
        """Values of all settings in which each end of a range and each choice occurs."""
        first = {name: _fit(name, d.examples[0]) for name, d in self.space.items()}
        for name, distribution in self.space.items():
            for value in distribution.examples:
                yield first | {name: _fit(name, value)}


def is_whole(name: str) -> bool:
    """Whether the setting of this dotted name takes whole numbers.

    >>> is_whole("train.bptt"), is_whole("train.tokens"), is_whole("train.lr")
    (True, True, False)
    """
    section: Any = RunConfig
    *above, last = split(name)
    for part in above:
        kinds = _kinds(_annotation(section, part))
        inner = [k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)]
        if not inner:
            return False
        section = inner[0]
    return int in _kinds(_annotation(section, last))


def _annotation(section: Any, name: str) -> Any:
    field = section.model_fields.get(name)
    return None if field is None else field.annotation


def _kinds(annotation: Any) -> list[Any]:
    """The types that an annotation is made of."""
    if get_args(annotation) and not isinstance(annotation, type):
        return [kind for part in get_args(annotation) for kind in _kinds(part)]
    return [annotation]


def _fit(name: str, value: Any) -> Any:
    """A value of a range, as an int where the setting takes whole numbers."""
    if isinstance(value, float) and is_whole(name) and value.is_integer():
        return int(value)
    return value


def is_distribution(value: Mapping[str, Any]) -> bool:
    """Whether a table describes a distribution, and so is a value rather than a section."""
    return bool(set(value) & set(Distribution.model_fields))


def product(lists: Mapping[str, list[Any]]) -> Iterator[dict[str, Any]]:
    """Every combination of one value of each list; without lists, the empty one."""
    for values in itertools.product(*lists.values()):
        yield dict(zip(lists, values, strict=True))
