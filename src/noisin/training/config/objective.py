"""The settings of objectives other than the noise itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from noisin.training.config.section import Number, Problem, Section

ObjectiveName = Literal["noise", "penalty", "importance", "fraternal"]
Group = Literal["window", "token"]
FraternalMode = Literal["fraternal", "expectation-linear", "pi"]
SECTIONS: tuple[ObjectiveName, ...] = ("importance", "fraternal")  # that have settings


class ImportanceConfig(Section):
    """The importance-weighted objective, with K noise samples. Off by default."""

    group: Group = Field(
        default="window",
        description="What a weight is given to: a column of the window, or each target.",
    )


class FraternalConfig(Section):
    """Fraternal dropout: two passes whose logits should agree. Off by default."""

    kappa: Number = Field(
        default=0.15, ge=0, description="Weight of the mean squared difference of the logits."
    )
    mode: FraternalMode = Field(
        default="fraternal",
        description="The second pass: scored as the first; without noise and dropout, and not "
        "scored (expectation-linear); or with them, and not scored (pi).",
    )


def completed(values: Any) -> Any:
    """The settings of training, with the section of their objective if it is left out."""
    name = values.get("objective") if isinstance(values, Mapping) else None
    if name in SECTIONS and values.get(name) is None:
        return {**values, name: {}}
    return values


def objective_problems(objective: ObjectiveName, given: Mapping[str, Any], K: int) -> list[Problem]:
    """What is wrong with an objective, its section and the number of noise samples."""
    found: list[Problem] = [
        (name, f"must be left out with objective = {objective!r}. Set objective = {name!r}.")
        for name in SECTIONS
        if given[name] is not None and name != objective
    ]
    if objective == "penalty" and K > 1:
        found.append(("K", f"must be 1 if no noise is drawn, got {K}."))
    if objective == "importance" and K == 1:
        found.append(("K", "must be 2 or more with objective = 'importance': one sample has all "
                      "of the weight, which is objective = 'noise'. Got 1."))  # fmt: skip
    return found
