"""The settings of training."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from noisin.models.names import TERMS
from noisin.training.config.choice import Frozen, OneOf
from noisin.training.config.model import LARGEST
from noisin.training.config.section import InvalidConfig, Number, Section, Whole

_TERM = OneOf(TERMS)


class TrainConfig(Section):
    """The training recipe, its limits, and how often to save. The defaults are the paper's."""

    batch_size: Whole = Field(
        default=80, ge=1, le=LARGEST, description="Columns of text read side by side."
    )
    bptt: Whole = Field(
        default=35, ge=1, le=LARGEST, description="Steps of a window of truncated backpropagation."
    )
    variable_length: bool = Field(
        default=False, description="Windows of random length around bptt, the step in proportion."
    )
    optimizer: Literal["sgd", "adamw"] = Field(default="sgd", description="The optimizer.")
    lr: Number = Field(
        default=30.0, gt=0, description="Its first step size, on the mean loss of a word."
    )
    lr_decay: Number = Field(
        default=1.2,
        ge=1,
        description="lr is divided by this after an epoch that is not the best so far.",
    )
    weight_decay: Number = Field(default=0.0, ge=0, description="Decay of the weights.")
    clip: Number = Field(
        default=0.25, ge=0, description="Largest norm of the gradient; 0 is no limit."
    )
    averaging: Literal["none", "from_start", "nt"] = Field(
        default="from_start",
        description="Average of the weights over the steps: none, from the first step, or from "
        "when validation stops improving (nt, the non-monotone trigger).",
    )
    nt_window: Whole = Field(
        default=5, ge=1, description="Epochs that the trigger of nt looks back."
    )
    objective: Literal["noise", "penalty"] = Field(
        default="noise",
        description="Train with noise, or without it and with its explicit regularizer added.",
    )
    terms: dict[str, Annotated[Number, Field(ge=0)]] = Field(
        default=Frozen(),
        description="Penalties added to the loss, each with its weight.",
    )
    K: Whole = Field(default=1, ge=1, le=LARGEST, description="Noise samples per word and step.")
    epochs: Whole = Field(default=200, ge=1, description="End after so many epochs.")
    tokens: Whole | None = Field(default=None, ge=1, description="End after so many tokens.")
    minutes: Number | None = Field(default=None, gt=0, description="End after so many minutes.")
    patience: Whole | None = Field(
        default=None,
        ge=1,
        description="End after so many epochs without a new best, of raw or averaged weights.",
    )
    eval_batch_size: Whole = Field(
        default=10, ge=1, le=LARGEST, description="Columns in evaluation."
    )
    clean_tokens: Whole = Field(
        default=100_000,
        ge=0,
        description="Training perplexity without noise is that of the first so many tokens.",
    )
    save_minutes: Number = Field(default=10.0, gt=0, description="Save at least this often.")
    save_steps: Whole | None = Field(
        default=None, ge=1, description="Save also after so many steps."
    )
    tensorboard: bool = Field(default=False, description="Write for TensorBoard as well.")

    @field_validator("terms")
    @classmethod
    def _are_known(cls, terms: dict[str, float]) -> dict[str, float]:
        """A term of weight zero is off, and so it is absent."""
        return Frozen({_TERM(name): weight for name, weight in terms.items() if weight})

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.optimizer == "adamw" and self.lr > 1:
            raise InvalidConfig(
                [("lr", f"must be 1 or less with adamw, got {self.lr:g}. 0.001 is common.")]
            )
        if self.objective == "penalty" and self.K > 1:
            raise InvalidConfig([("K", f"must be 1 where no noise is drawn, got {self.K}.")])
        return self
