"""The settings of training."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from noisin.models.names import TERMS
from noisin.training.config.choice import Frozen, OneOf
from noisin.training.config.model import LARGEST
from noisin.training.config.section import InvalidConfig, Number, Section, Whole
from noisin.training.config.structure import AugmentedLossConfig

_TERM = OneOf(TERMS)


class TrainConfig(Section):
    """The training recipe, its limits, and how often to save. The defaults are the paper's."""

    batch_size: Whole = Field(
        default=80, ge=1, le=LARGEST, description="Columns of text in a batch."
    )
    bptt: Whole = Field(
        default=35, ge=1, le=LARGEST, description="Steps of truncated backpropagation."
    )
    variable_length: bool = Field(
        default=False,
        description="Windows of random length around bptt; lr is scaled in proportion.",
    )
    optimizer: Literal["sgd", "adamw"] = Field(default="sgd", description="The optimizer.")
    lr: Number = Field(
        default=30.0, gt=0, description="The initial learning rate, for the mean loss per word."
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
    augmented_loss: AugmentedLossConfig | None = Field(
        default=None, description="The augmented loss; off by default."
    )
    K: Whole = Field(default=1, ge=1, le=LARGEST, description="Noise samples per word and step.")
    epochs: Whole = Field(default=200, ge=1, description="Stop after this many epochs.")
    tokens: Whole | None = Field(default=None, ge=1, description="Stop after this many tokens.")
    minutes: Number | None = Field(default=None, gt=0, description="Stop after this many minutes.")
    patience: Whole | None = Field(
        default=None,
        ge=1,
        description="Stop after this many epochs without a new best, of raw or averaged weights.",
    )
    eval_batch_size: Whole = Field(
        default=10, ge=1, le=LARGEST, description="Columns in evaluation."
    )
    clean_tokens: Whole = Field(
        default=100_000,
        ge=0,
        description="Training tokens to score without noise after every epoch; 0 is none.",
    )
    save_minutes: Number = Field(default=10.0, gt=0, description="Save at least this often.")
    save_steps: Whole | None = Field(
        default=None, ge=1, description="Also save after every so many steps."
    )
    tensorboard: bool = Field(default=False, description="Also write metrics for TensorBoard.")

    @field_validator("terms")
    @classmethod
    def _are_known(cls, terms: dict[str, float]) -> dict[str, float]:
        """Leave out terms of weight zero, which have no effect."""
        return Frozen({_TERM(name): weight for name, weight in terms.items() if weight})

    @field_validator("augmented_loss")
    @classmethod
    def _no_weight_is_absent(cls, loss: AugmentedLossConfig | None) -> AugmentedLossConfig | None:
        return loss if loss is not None and loss.gamma else None

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.optimizer == "adamw" and self.lr > 1:
            raise InvalidConfig(
                [("lr", f"must be 1 or less with adamw, got {self.lr:g}. 0.001 is common.")]
            )
        if self.objective == "penalty" and self.K > 1:
            raise InvalidConfig([("K", f"must be 1 if no noise is drawn, got {self.K}.")])
        return self
