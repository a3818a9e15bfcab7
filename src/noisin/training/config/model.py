"""The settings of the model."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from noisin.models.names import HEADS
from noisin.models.sizes import Reads, size_problem
from noisin.noise import ranges
from noisin.recurrent.names import AFFINE_NAMES, CELL_NAMES, KERNEL_NAMES, WITHOUT_MEMORY
from noisin.training.config.choice import Frozen, OneOf, json_problems, json_values
from noisin.training.config.latent import LatentConfig, latent_problems
from noisin.training.config.section import InvalidConfig, Number, Problem, Section, Whole
from noisin.training.config.structure import ProjectionConfig
from noisin.training.config.weights import WeightDropConfig, WeightNoiseConfig, weight_problems

LARGEST = 10**6  # size; a smaller one may still exceed the memory of the machine


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
    words: Number = Field(
        default=0.0, ge=0, lt=1, description="Of word types: everywhere in a window, or nowhere."
    )
    words_shared: bool = Field(
        default=False, description="Drop a word type in all columns of a batch at once."
    )
    law: Annotated[str, AfterValidator(OneOf(ranges.LAWS))] = Field(
        default="bernoulli",
        description="Of all masks but those of words: noise of this law, of the same variance, "
        "p / (1 - p), instead of zeros and ones.",
    )

    @field_validator("words_shared")
    @classmethod
    def _needs_words(cls, shared: bool, info: ValidationInfo) -> bool:
        """Without effect, it is off and has the same hash."""
        return shared and bool(info.data.get("words"))


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

    By default each of the eight products ``W_x x`` and ``W_h h`` of the four gates has its own
    mask, fresh at every step. Gal's variational LSTM has site = "before" and locked = true.
    """

    x: Number = Field(
        default=0.0, ge=0, lt=1, description="Drop probability of the products with the input x."
    )
    h: Number = Field(
        default=0.0, ge=0, lt=1, description="Drop probability of the products with the state h."
    )
    locked: bool = Field(
        default=False, description="One mask for all steps of a window, not a fresh one per step."
    )
    site: Literal["after", "before"] = Field(
        default="after", description="Masks after the products, or before: on x and h themselves."
    )
    shared: bool = Field(default=False, description="One mask for all four gates, not one each.")


class UpdateDropoutConfig(Section):
    """Dropout of what a step adds to the state of an LSTM or GRU. Off by default."""

    p: Number = Field(default=0.0, ge=0, lt=1, description="Drop probability of the update.")
    locked: bool = Field(
        default=False, description="One mask for all steps of a window, not a fresh one per step."
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
        if found := json_problems(self.arguments):
            raise InvalidConfig(found)
        return self


class ModelConfig(Section):
    """The model."""

    cell: Annotated[str, AfterValidator(OneOf(CELL_NAMES))] = Field(
        default="lstm", description="The transition function."
    )
    cell_arguments: dict[str, Any] = Field(
        default=Frozen(), description="Arguments of the constructor of the cell, such as depth."
    )
    hidden_size: Whole = Field(default=650, ge=1, le=LARGEST, description="Units of each layer.")
    num_layers: Whole = Field(default=2, ge=1, le=1000, description="Layers.")
    embedding_size: Whole | None = Field(
        default=None,
        ge=1,
        le=LARGEST,
        description="Units of a word's embedding; by default hidden_size.",
    )
    last_size: Whole | None = Field(
        default=None,
        ge=1,
        le=LARGEST,
        description="Units of the last layer; by default those of the embedding if tied, else "
        "hidden_size.",
    )
    tied: bool = Field(default=True, description="The softmax shares the weights of the embedding.")
    output_bias: bool = Field(default=True, description="The linear head has a bias.")
    skip: bool = Field(
        default=False, description="The head reads the sum of all layers, not the last one alone."
    )
    projection: ProjectionConfig | None = Field(
        default=None, description="The projection before the head; off by default."
    )
    initialization: Literal["uniform", "truncated-normal"] = Field(
        default="uniform",
        description="How weights start: uniform as in the paper, or normal by what they read.",
    )
    dropout: DropoutConfig = DropoutConfig()
    zoneout: ZoneoutConfig | None = Field(default=None, description="Zoneout; off by default.")
    gate_dropout: GateDropoutConfig | None = Field(
        default=None, description="Dropout in the gates; off by default."
    )
    weight_drop: WeightDropConfig | None = Field(
        default=None, description="Dropout of recurrent weights; off by default."
    )
    weight_noise: WeightNoiseConfig | None = Field(
        default=None, description="Noise on the weights; off by default."
    )
    update_dropout: UpdateDropoutConfig | None = Field(
        default=None, description="Dropout of updates; off by default."
    )
    head: HeadConfig | None = Field(default=None, description="The head; by default linear.")
    latent: LatentConfig | None = Field(
        default=None, description="The latent variable of a stochastic RNN; off by default."
    )

    @field_validator("zoneout", "gate_dropout", "update_dropout")
    @classmethod
    def _off_is_absent(cls, rates: Section | None) -> Section | None:
        """Probabilities of zero mean off, and have the same hash."""
        given = {} if rates is None else rates.model_dump(exclude={"locked", "site", "shared"})
        return rates if any(given.values()) else None

    @field_validator("cell_arguments")
    @classmethod
    def _is_json(cls, values: dict[str, Any]) -> dict[str, Any]:
        return json_values(values, "arguments")

    @field_validator("weight_drop")
    @classmethod
    def _drops_some(cls, drop: WeightDropConfig | None) -> WeightDropConfig | None:
        return drop if drop is not None and drop.is_on else None

    @field_validator("weight_noise")
    @classmethod
    def _has_spread(cls, noise: WeightNoiseConfig | None) -> WeightNoiseConfig | None:
        return noise if noise is not None and noise.is_on else None

    @field_validator("head")
    @classmethod
    def _linear_is_absent(cls, head: HeadConfig | None) -> HeadConfig | None:
        return None if head is not None and head == HeadConfig(kind="linear") else head

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        reads = Reads(self.tied, self.head is None, self.skip, self.projection is not None)
        embedding_size = self.embedding_size or self.hidden_size
        sizes = embedding_size, self.hidden_size, self.num_layers, self.last_size
        found = [*weight_problems(self), *filter(None, [size_problem(*sizes, reads)])]
        if self.head is not None and not self.output_bias:
            found.append(("output_bias", "must be true with a head that is not linear."))
        if self.gate_dropout is not None and self.cell != "lstm":
            found.append(
                (
                    "gate_dropout",
                    f"must be left out for cell = {self.cell!r}: only the lstm cell has it.",
                )
            )
        found += self._cell_problems()
        found += latent_problems(self)
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

    def _cell_problems(self) -> list[Problem]:
        found: list[Problem] = []
        if self.cell_arguments and self.cell in KERNEL_NAMES:
            given = ", ".join(self.cell_arguments)
            found.append(
                ("cell_arguments", f"must be left out for cell = {self.cell!r}, got {given}.")
            )
        if self.dropout.recurrent and self.cell in AFFINE_NAMES:
            found.append(
                (
                    "dropout.recurrent",
                    f"must be 0 for cell = {self.cell!r}, whose gates do not read the state, got "
                    f"{self.dropout.recurrent:g}.",
                )
            )
        if self.update_dropout is not None and self.cell not in ("lstm", "gru"):
            found.append(
                (
                    "update_dropout",
                    f"must be left out for cell = {self.cell!r}: only lstm and gru have it.",
                )
            )
        if self.update_dropout is not None and self.gate_dropout is not None:
            found.append(
                ("update_dropout", "must be left out together with gate_dropout: use one of them.")
            )
        return found
