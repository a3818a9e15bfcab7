"""The settings of the model."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import AfterValidator, ConfigDict, Field, field_validator, model_validator

from noisin.models.names import HEADS
from noisin.recurrent.names import CELL_NAMES
from noisin.training.config.choice import OneOf, json_values
from noisin.training.config.section import InvalidConfig, Number, Section, Whole

LARGEST = 10**6  # size; a smaller one may still exceed the memory of the machine
WITHOUT_MEMORY = ("gru", "elman-tanh", "elman-sigmoid", "elman-relu")


class DropoutConfig(Section):
    """Dropout, in addition to the noise or instead of it: drop probabilities."""

    input: Number = Field(
        default=0.0, ge=0, lt=1, description="Of the embedding, into the first layer."
    )
    between: Number = Field(default=0.0, ge=0, lt=1, description="Between the layers.")
    output: Number = Field(
        default=0.0, ge=0, lt=1, description="Of the last layer, into the softmax."
    )
    recurrent: Number = Field(default=0.0, ge=0, lt=1, description="Of the state that is fed back.")
    locked: bool = Field(
        default=False, description="One mask for all steps of a window, not a fresh one per step."
    )


class ZoneoutConfig(Section):
    """Zoneout: units keep their previous value at random. Off by default."""

    p_h: Number = Field(
        default=0.0, ge=0, lt=1, description="Probability that a unit of h keeps its value."
    )
    p_c: Number = Field(
        default=0.0, ge=0, lt=1, description="Probability that a unit of the memory c does."
    )


class GateDropoutConfig(Section):
    """Dropout in the gates of the LSTM, as in the paper's equations. Off by default.

    Each of the eight products ``W_x x`` and ``W_h h`` of the four gates has its own mask, fresh at
    every step.
    """

    x: Number = Field(
        default=0.0, ge=0, lt=1, description="Drop probability of the products with the input x."
    )
    h: Number = Field(
        default=0.0, ge=0, lt=1, description="Drop probability of the products with the state h."
    )


class HeadConfig(Section):
    """The head, which maps the state to a prediction. By default a linear layer.

    The other settings of the section are arguments of the constructor.
    """

    model_config = ConfigDict(extra="allow")

    kind: Annotated[str, AfterValidator(OneOf(HEADS))] = Field(description="The kind of head.")

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of the constructor."""
        return dict(self.model_extra or {})

    @model_validator(mode="after")
    def _has_json_arguments(self) -> Self:
        json_values(self.arguments, "arguments")
        return self


class ModelConfig(Section):
    """The model."""

    cell: Annotated[str, AfterValidator(OneOf(CELL_NAMES))] = Field(
        default="lstm", description="The transition function."
    )
    hidden_size: Whole = Field(default=650, ge=1, le=LARGEST, description="Units of each layer.")
    num_layers: Whole = Field(default=2, ge=1, le=1000, description="Layers.")
    embedding_size: Whole | None = Field(
        default=None,
        ge=1,
        le=LARGEST,
        description="Units of a word's embedding; by default hidden_size.",
    )
    tied: bool = Field(default=True, description="The softmax shares the weights of the embedding.")
    dropout: DropoutConfig = DropoutConfig()
    zoneout: ZoneoutConfig | None = Field(default=None, description="Zoneout; off by default.")
    gate_dropout: GateDropoutConfig | None = Field(
        default=None, description="Dropout in the gates; off by default."
    )
    head: HeadConfig | None = Field(default=None, description="The head; by default linear.")

    @field_validator("zoneout", "gate_dropout")
    @classmethod
    def _off_is_absent(cls, rates: Section | None) -> Section | None:
        """Probabilities of zero mean off, and have the same hash."""
        return rates if rates is not None and any(rates.model_dump().values()) else None

    @field_validator("head")
    @classmethod
    def _linear_is_absent(cls, head: HeadConfig | None) -> HeadConfig | None:
        return None if head is not None and head == HeadConfig(kind="linear") else head

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        found = []
        if (
            self.tied
            and self.num_layers == 1
            and self.embedding_size not in (None, self.hidden_size)
        ):
            found.append(
                (
                    "embedding_size",
                    f"must be hidden_size ({self.hidden_size}) for one layer with tied "
                    f"weights, got {self.embedding_size}. Leave it out, or set tied = false.",
                )
            )
        if self.gate_dropout is not None and self.cell != "lstm":
            found.append(
                (
                    "gate_dropout",
                    f"must be left out for cell = {self.cell!r}: only the lstm cell has it.",
                )
            )
        if self.zoneout is not None and self.zoneout.p_c and self.cell in WITHOUT_MEMORY:
            found.append(
                (
                    "zoneout.p_c",
                    f"must be 0 for cell = {self.cell!r}, which has no memory c, got "
                    f"{self.zoneout.p_c:g}. Use zoneout.p_h.",
                )
            )
        if self.dropout.recurrent and self.gate_dropout is not None:
            found.append(
                (
                    "dropout.recurrent",
                    f"must be 0 together with gate_dropout, got {self.dropout.recurrent:g}. Both "
                    f"regularize the recurrent connection: use one of them.",
                )
            )
        if found:
            raise InvalidConfig(found)
        return self
