"""The settings of training."""

from __future__ import annotations

import os
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, field_validator, model_validator

from noisin.models.names import TERMS
from noisin.training.config.choice import Frozen, OneOf
from noisin.training.config.latent import AnnealingConfig
from noisin.training.config.model import LARGEST
from noisin.training.config.objective import (
    SECTIONS,
    FraternalConfig,
    ImportanceConfig,
    ObjectiveName,
    completed,
    objective_problems,
)
from noisin.training.config.section import InvalidConfig, Number, Section, Whole
from noisin.training.config.structure import AugmentedLossConfig

_TERM = OneOf(TERMS)
TRACKER_NAMES = ("tensorboard", "wandb", "mlflow", "aim")


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
    partial_shuffle: bool = Field(
        default=False,
        description="Rotate each column of text at a random row in every epoch.",
    )
    state_reset: Number = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="Probability that a batch starts from a zero state in place of the carried.",
    )
    optimizer: Literal["sgd", "adamw", "adam"] = Field(
        default="sgd",
        description="The optimizer; adam adds weight_decay to the gradient, adamw does not.",
    )
    beta1: Number = Field(
        default=0.9, ge=0, lt=1, description="Of adam and adamw; 0 is without momentum (rmsprop)."
    )
    lr: Number = Field(
        default=30.0, gt=0, description="The initial learning rate, for the mean loss per word."
    )
    lr_decay: Number = Field(
        default=1.2,
        ge=1,
        description="lr is divided by this after an epoch that is not the best so far.",
    )
    lr_patience: Whole = Field(
        default=1,
        ge=1,
        description="lr is divided after so many epochs in a row that are not the best so far.",
    )
    lr_decay_after: Whole | None = Field(
        default=None,
        ge=1,
        description="Divide lr by lr_decay after this and every later epoch, best or not.",
    )
    weight_decay: Number = Field(default=0.0, ge=0, description="Decay of the weights.")
    shrink: Number = Field(
        default=0.0,
        ge=0,
        lt=1,
        description="Share of each weight that every update subtracts, whatever lr is.",
    )
    clip: Number = Field(
        default=0.25, ge=0, description="Largest norm of the gradient; 0 is no limit."
    )
    averaging: Literal["none", "from_start", "nt", "two_tailed"] = Field(
        default="from_start",
        description="Average of the weights over the steps: none; from the first step; from when "
        "validation stops improving (nt, the non-monotone trigger); or over as many of the last "
        "steps as validation prefers (two_tailed).",
    )
    nt_window: Whole = Field(
        default=5, ge=1, description="Epochs that the trigger of nt looks back."
    )
    objective: ObjectiveName = Field(
        default="noise",
        description="Train with noise; without it and with its explicit regularizer added "
        "(penalty); on the likelihood averaged over K samples (importance); or on two passes that "
        "should agree (fraternal).",
    )
    importance: ImportanceConfig | None = Field(
        default=None, description="The importance-weighted objective; off by default."
    )
    fraternal: FraternalConfig | None = Field(
        default=None, description="Fraternal dropout; off by default."
    )
    terms: dict[str, Annotated[Number, Field(ge=0)]] = Field(
        default=Frozen(),
        description="Penalties added to the loss, each with its weight.",
    )
    augmented_loss: AugmentedLossConfig | None = Field(
        default=None, description="The augmented loss; off by default."
    )
    annealing: AnnealingConfig | None = Field(
        default=None, description="Annealing of a latent variable's KL; off by default."
    )
    K: Whole = Field(default=1, ge=1, le=LARGEST, description="Noise samples per word and step.")
    start: str | None = Field(
        default=None,
        min_length=1,
        description="The folder of a run whose best weights to start from, as in fine-tuning.",
    )
    epochs: Whole = Field(default=200, ge=1, description="Stop after this many epochs.")
    tokens: Whole | None = Field(default=None, ge=1, description="Stop after this many tokens.")
    minutes: Number | None = Field(default=None, gt=0, description="Stop after this many minutes.")
    patience: Whole | None = Field(
        default=None,
        ge=1,
        description="Stop after this many epochs without a new best, of raw or averaged weights.",
    )
    nt_patience: Whole | None = Field(
        default=None,
        ge=1,
        description="Stop once the score on valid is worse than the best of all but the last so "
        "many epochs.",
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
    tracker: Annotated[str, AfterValidator(OneOf(TRACKER_NAMES))] | None = Field(
        default=None, description="Also send metrics to a tracker of experiments."
    )

    _complete = model_validator(mode="before")(staticmethod(completed))

    @property
    def trackers(self) -> list[str]:
        """The names of the trackers, each once."""
        names = ["tensorboard"] if self.tensorboard else []
        return list(dict.fromkeys(names if self.tracker is None else [*names, self.tracker]))

    @field_validator("start")
    @classmethod
    def _is_one_folder(cls, start: str | None) -> str | None:
        """``runs/base/`` and ``./runs/base`` are the same folder, and have the same hash."""
        return None if start is None else os.path.normpath(start)

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
        sections: dict[str, Any] = {name: getattr(self, name) for name in SECTIONS}
        found = objective_problems(self.objective, sections, self.K)
        if self.optimizer != "sgd" and self.lr > 1:
            what = f"must be 1 or less with {self.optimizer}, got {self.lr:g}. 0.001 is common."
            found.append(("lr", what))
        if self.optimizer == "sgd" and self.beta1 != type(self).model_fields["beta1"].default:
            found.append(("beta1", "must be left out with sgd: it is of adam and adamw."))
        if self.lr_decay_after is not None and self.lr_patience > 1:
            found.append(
                (
                    "lr_patience",
                    f"must be 1 with lr_decay_after, got {self.lr_patience}: lr is divided after "
                    f"every epoch, best or not. Use one of them.",
                )
            )
        if found:
            raise InvalidConfig(found)
        return self
