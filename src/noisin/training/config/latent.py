"""The settings of stochastic RNNs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from noisin.models.names import LATENT
from noisin.recurrent.names import KERNEL_NAMES
from noisin.training.config.choice import OneOf
from noisin.training.config.section import InvalidConfig, Number, Problem, Section, Whole

if TYPE_CHECKING:
    from noisin.training.config.model import ModelConfig
    from noisin.training.config.run import RunConfig

LARGEST_SIZE = 10**6
# The optional settings of each kind; a class of your own takes those that are given.
OPTIONS = {
    "storn": (),
    "vrnn": ("res_q",),
    "srnn": ("smoothing", "res_q"),
    "srnn-independent": (),
    "z-forcing": ("auxiliary", "backward"),
}
_ALL_OPTIONS = ("smoothing", "res_q", "auxiliary", "backward")
# Settings of the model that a stochastic RNN does not have.
_WITHOUT = (
    *("cell_arguments", "embedding_size", "last_size", "skip", "projection", "zoneout"),
    *("gate_dropout", "weight_drop", "weight_noise", "update_dropout"),
)


class LatentConfig(Section):
    """The latent variable of a stochastic RNN. Off by default."""

    kind: Annotated[str, AfterValidator(OneOf(LATENT))] = Field(
        description="The kind of stochastic RNN."
    )
    z_size: Whole = Field(
        default=64, ge=1, le=LARGEST_SIZE, description="Units of the latent variable."
    )
    mlp_size: Whole | None = Field(
        default=None,
        ge=1,
        le=LARGEST_SIZE,
        description="Units of the hidden layers of its networks; by default hidden_size.",
    )
    smoothing: bool | None = Field(
        default=None,
        description="Of srnn: the posterior reads the future; by default true.",
    )
    res_q: bool | None = Field(
        default=None,
        description="The mean of the posterior is relative to the prior's; by default true for "
        "srnn and false for vrnn.",
    )
    auxiliary: Number | None = Field(
        default=None, ge=0, description="Of z-forcing: weight of the auxiliary cost; by default 0."
    )
    backward: Number | None = Field(
        default=None, ge=0, description="Of z-forcing: weight of the backward cost; by default 0."
    )

    @property
    def options(self) -> dict[str, Any]:
        """The optional settings that are given: arguments of the constructor."""
        given = {name: getattr(self, name) for name in _ALL_OPTIONS}
        return {name: value for name, value in given.items() if value is not None}

    @model_validator(mode="after")
    def _are_options_of_the_kind(self) -> Self:
        known = OPTIONS.get(self.kind, _ALL_OPTIONS)
        what = f"must be left out for kind = {self.kind!r}."
        if wrong := [(name, what) for name in self.options if name not in known]:
            raise InvalidConfig(wrong)
        return self


class AnnealingConfig(Section):
    """Annealing: the weight of the KL divergence grows linearly to one. Off by default."""

    start: Number = Field(default=0.2, ge=0, le=1, description="The weight at the beginning.")
    epochs: Whole | None = Field(default=None, ge=1, description="The epochs that it takes.")
    steps: Whole | None = Field(
        default=None, ge=1, description="The steps that it takes, instead of epochs."
    )

    @model_validator(mode="after")
    def _has_a_length(self) -> Self:
        if (self.epochs is None) == (self.steps is None):
            got = "neither" if self.epochs is None else "both"
            what = f"annealing needs epochs or steps, exactly one of them, got {got}."
            raise InvalidConfig([("", what)])
        return self

    def weight(self, epoch: int, step: int) -> float:
        """The weight in an epoch and at a step, both counted from 0 over the whole run.

        >>> [round(AnnealingConfig(epochs=4).weight(epoch, 0), 2) for epoch in range(6)]
        [0.2, 0.4, 0.6, 0.8, 1.0, 1.0]
        >>> AnnealingConfig(start=0.0, steps=10).weight(0, 5)
        0.5
        """
        done = epoch / self.epochs if self.epochs is not None else step / (self.steps or 1)
        return self.start + (1 - self.start) * min(1.0, done)


def latent_problems(model: ModelConfig) -> list[Problem]:
    """What a stochastic RNN cannot be combined with, in the model."""
    if model.latent is None:
        return []
    usual = type(model).model_fields
    what = "must be left out with model.latent: a stochastic RNN does not have it."
    found = [(name, what) for name in _WITHOUT if getattr(model, name) != usual[name].default]
    found += [
        (f"dropout.{name}", f"must be 0 with model.latent, got {rate:g}.")
        for name in ("recurrent", "words")
        if (rate := getattr(model.dropout, name))
    ]
    if model.cell not in KERNEL_NAMES:
        known = ", ".join(KERNEL_NAMES)
        found.append(("cell", f"must be one of {known} with model.latent, got {model.cell!r}."))
    return found


def stochastic_problems(config: RunConfig) -> list[Problem]:
    """What a stochastic RNN cannot be combined with, in the run."""
    train, found = config.train, list[Problem]()
    if config.own is not None:
        return found
    if config.model.latent is None:
        if train.annealing is not None:
            what = "must be left out without model.latent: only a latent variable has a KL."
            found.append(("train.annealing", what))
        return found
    if (row := config.data.task_row) is not None and row.words:
        what = f"must be left out for {config.data.name!r}: words have no stochastic RNN here."
        found.append(("model.latent", what))
    if config.data.learns_scale:
        what = "must be gaussian with model.latent: a stochastic RNN does not learn a scale."
        found.append(("data.likelihood", what))
    if train.objective != "noise":
        what = f"must be noise with model.latent, got {train.objective!r}."
        found.append(("train.objective", what))
    if train.terms:
        what = "must be left out with model.latent: its layers do not show their activations."
        found.append(("train.terms", what))
    return found
