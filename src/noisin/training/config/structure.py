"""Settings of the structure of a model beyond its layers: what lies between them and the loss."""

from __future__ import annotations

from pydantic import Field

from noisin.training.config.section import Number, Section


class ProjectionConfig(Section):
    """A projection of the last layer to the size of the embedding. Off by default.

    It has no bias. With it, wide layers share the weights of a narrow embedding.
    """

    dropout: Number = Field(
        default=0.0, ge=0, lt=1, description="Drop probability of what is projected."
    )


class AugmentedLossConfig(Section):
    """The augmented loss of tied weights. Off by default.

    ``gamma · temperature · KL(softmax(L u / temperature) ‖ softmax(s / temperature))`` is added to
    the loss, where u is the embedding of the target and L that of all words.
    """

    gamma: Number = Field(
        default=0.0, ge=0, description="Weight of the augmented loss, in units of its temperature."
    )
    temperature: Number = Field(
        default=20.0, gt=0, description="Divides the logits of both distributions."
    )
    detach: bool = Field(
        default=True, description="No gradient flows through the distribution of the embeddings."
    )
