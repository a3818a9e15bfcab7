"""The settings of your own series: what the columns of its files are."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import BeforeValidator, Field, model_validator

from noisin.training.config.section import InvalidConfig, Number, Section, Whole


def _names(value: object) -> object:
    """Text, as a flag gives it, is a list separated by commas."""
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


Names = Annotated[tuple[str, ...], BeforeValidator(_names)]


class ColumnsConfig(Section):
    """The columns of your own series. Off by default.

    Names in a flag are separated by commas. The columns of a matrix are called 0, 1, ...
    """

    targets: Names = Field(description="The columns to predict.")
    covariates: Names = Field(
        default=(), description="Columns that are known in advance of each step."
    )
    sequence: str | None = Field(
        default=None,
        description="A column that names the sequence of each row; by default a file is one.",
    )
    split: str | None = Field(
        default=None, description="A column with train, valid or test in each row."
    )
    valid: Number = Field(
        default=0.1, gt=0, lt=1, description="The share of valid, if nothing else decides it."
    )
    test: Number = Field(default=0.1, gt=0, lt=1, description="The share of test, likewise.")
    context: Whole = Field(
        default=0,
        ge=0,
        description="Steps before valid and test that are read, but not scored.",
    )
    season: Whole | None = Field(
        default=None, ge=1, description="The period of the seasonal-naive forecast, in steps."
    )
    changes: bool = Field(
        default=False,
        description="Predict the change from the step before, of real values whose level drifts.",
    )

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        found = []
        if not self.targets:
            found.append(("targets", "must name one column or more."))
        both = [name for name in self.targets if name in self.covariates]
        if both:
            what = f"must not contain the target {both[0]!r}, which is not known in advance."
            found.append(("covariates", what))
        if self.valid + self.test >= 1:
            what = f"must be less than 1 together with test, got {self.valid + self.test:g}."
            found.append(("valid", what))
        if found:
            raise InvalidConfig(found)
        return self
