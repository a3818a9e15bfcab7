"""The settings of the noise."""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from noisin.noise import ranges
from noisin.training.config.choice import OneOf
from noisin.training.config.section import InvalidConfig, Number, Section, Whole

LARGEST_STD = math.sqrt(ranges.LARGEST_SHAPE)
_SHAPED = " and ".join(name for name, law in ranges.LAWS.items() if "alpha" in ranges.RANGES[law])


class ScheduleConfig(Section):
    """How the spread of the noise changes over the epochs."""

    kind: Literal["constant", "linear", "cosine"] = Field(
        default="constant",
        description="The way from start to end; constant is the full noise throughout.",
    )
    epochs: Whole = Field(
        default=1, ge=1, description="The epochs it takes; then the noise stays at end."
    )
    start: Number = Field(
        default=0.0, ge=0, le=1, description="Share of the std in the first epoch."
    )
    end: Number = Field(default=1.0, ge=0, le=1, description="Share of the std after these epochs.")


class NoiseConfig(Section):
    """The noise on the hidden state. Its spread is given as gamma or as std."""

    family: Annotated[str, AfterValidator(OneOf(ranges.LAWS))] = Field(
        default="gaussian", description="The law of the noise."
    )
    gamma: Number | None = Field(
        default=None, description="Its spread, in the paper's meaning for this family."
    )
    std: Number | None = Field(
        default=None, ge=0, le=LARGEST_STD, description="Its standard deviation, instead of gamma."
    )
    alpha: Number | None = Field(default=None, description=f"The shape, of {_SHAPED} noise only.")
    mode: Literal["multiplicative", "additive"] = Field(
        default="multiplicative", description="z = h * (1 + eps) or z = h + eps."
    )
    feedback: bool = Field(default=True, description="The recurrence reads the noisy state.")
    noisy_layers: Literal["all", "last"] = Field(
        default="all", description="Which layers have noise."
    )
    share: Literal["step", "sequence"] = Field(
        default="step", description="A fresh draw per step, or one per window."
    )
    site: Literal["read", "increment", "output", "state"] = Field(
        default="read",
        description="Of a GRU: noise on what the gates read, or on the state itself. Of min-gru "
        "and min-lstm: on the increment (also as read), the output or the state.",
    )
    mean: Number = Field(
        default=1.0,
        gt=0,
        le=ranges.LARGEST_MEAN,
        description="The mean of 1 + eps, which multiplies h. Unless it is 1, the noise is biased: "
        "z = h * mean * (1 + eps), to find out what unbiasedness is worth.",
    )
    rescaled: bool = Field(
        default=True, description="With a mean: the RNN is evaluated with it, as z = h * mean."
    )
    schedule: ScheduleConfig = ScheduleConfig()

    @property
    def law(self) -> str | None:
        """The family's class in ``noisin.noise``; None for ``package.module:Class``."""
        return ranges.LAWS.get(self.family)

    @property
    def known_gamma(self) -> float | None:
        """Gamma, given or computed from std; None for the std of a class that is not loaded."""
        if self.std is None or self.law is None:
            return self.gamma
        return ranges.gamma(self.law, self.std)

    @property
    def known_std(self) -> float | None:
        """Std, given or computed from gamma; None for the gamma of a class that is not loaded."""
        if self.gamma is None or self.law is None:
            return self.std
        return ranges.std(self.law, self.gamma)

    @model_validator(mode="after")
    def _is_a_noise(self) -> Self:
        if (self.gamma is None) == (self.std is None):
            got = "neither" if self.gamma is None else "both"
            raise InvalidConfig(
                [("", f"noise needs gamma or std, exactly one of them, got {got}.")]
            )
        if self.mean != 1 and self.mode != "multiplicative":
            raise InvalidConfig([("mean", f"must be 1 for {self.mode} noise, got {self.mean:g}.")])
        if self.law is None:
            return self
        if self.gamma is not None:
            ranges.check(self.law, "gamma", self.gamma)
        if self.alpha is not None:
            if "alpha" not in ranges.RANGES[self.law]:
                raise InvalidConfig(
                    [("alpha", f"is the shape of {_SHAPED} noise; {self.family} has none.")]
                )
            ranges.check(self.law, "alpha", self.alpha)
        return self
