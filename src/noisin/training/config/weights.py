"""The settings of random weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from noisin.recurrent.names import KERNEL_NAMES
from noisin.training.config.section import Number, Problem, Section

if TYPE_CHECKING:
    from noisin.training.config.model import ModelConfig


class WeightDropConfig(Section):
    """Weight drop: dropout of the recurrent weights, one mask per window. Off by default."""

    p: Number = Field(
        default=0.0, ge=0, lt=1, description="Probability that a recurrent weight is dropped."
    )
    inputs: bool = Field(default=False, description="Drop the weights of the input, too.")

    @property
    def is_on(self) -> bool:
        """Whether it has any effect."""
        return self.p > 0


class WeightNoiseConfig(Section):
    """Weight noise: Gaussian noise on the weights of the layers. Off by default."""

    std: Number = Field(default=0.0, ge=0, description="Standard deviation of the noise.")
    mode: Literal["additive", "multiplicative"] = Field(
        default="additive", description="W + eps, or W (1 + eps)."
    )
    per: Literal["sequence", "step"] = Field(
        default="sequence",
        description="One draw per window for all rows, or one for each row and step.",
    )

    @property
    def is_on(self) -> bool:
        """Whether it has any effect."""
        return self.std > 0


def weight_problems(model: ModelConfig) -> list[Problem]:
    """What random weights cannot be combined with."""
    drop, noise = model.weight_drop, model.weight_noise
    per_step = noise is not None and noise.per == "step"
    by_step = ["gate_dropout"] if model.gate_dropout is not None else []
    by_step += ["weight_noise.per = 'step'"] if per_step else []
    by_step += [f"cell = {model.cell!r}"] if model.cell not in KERNEL_NAMES else []
    found: list[Problem] = []
    for name, given in (
        ("weight_drop", drop),
        ("weight_noise", None if per_step else noise),
        ("update_dropout", model.update_dropout if per_step else None),
    ):
        if given is not None and by_step:
            found.append(
                (
                    name,
                    f"must be left out together with {by_step[0]}: it needs layers with kernels, "
                    f"and these layers run step by step.",
                )
            )
    if per_step and model.gate_dropout is not None:
        what = "must be 'sequence' or left out together with gate_dropout: use one of them."
        found.append(("weight_noise.per", what))
    if per_step and model.dropout.recurrent:
        found.append(
            (
                "dropout.recurrent",
                f"must be 0 together with weight_noise.per = 'step', got "
                f"{model.dropout.recurrent:g}: it needs layers with kernels, and these layers run "
                f"step by step.",
            )
        )
    return found
