"""The sizes of the layers of a language model. Nothing here needs torch."""

from __future__ import annotations

from dataclasses import dataclass

from noisin.errors import InvalidValue


@dataclass(frozen=True)
class Reads:
    """What reads the last layer.

    Attributes:
        tied: whether the head shares the weights of the embedding.
        linear: whether the head is linear. Others can have sizes of their own inside.
        skip: whether the head reads the sum of all layers.
        projection: whether a projection to the size of the embedding comes first.
    """

    tied: bool = True
    linear: bool = True
    skip: bool = False
    projection: bool = False


def layer_sizes(
    embedding_size: int, hidden_size: int, num_layers: int, last_size: int | None, reads: Reads
) -> list[int]:
    """The input sizes of the layers, and the output size of the last one.

    >>> layer_sizes(400, 1150, 3, None, Reads())
    [400, 1150, 1150, 400]
    >>> layer_sizes(280, 960, 3, 620, Reads(linear=False))
    [280, 960, 960, 620]
    """
    problem = size_problem(embedding_size, hidden_size, num_layers, last_size, reads)
    if problem is not None:
        raise InvalidValue(f"LanguageModel: {problem[0]} {problem[1]}")
    last = _last(embedding_size, hidden_size, last_size, reads)
    return [embedding_size, *[hidden_size] * (num_layers - 1), last]


def size_problem(
    embedding_size: int, hidden_size: int, num_layers: int, last_size: int | None, reads: Reads
) -> tuple[str, str] | None:
    """The size that does not fit the others, and why; None if they fit."""
    last = _last(embedding_size, hidden_size, last_size, reads)
    if reads.projection and embedding_size == last:
        return "projection", (
            f"must be left out if the last layer has the size of the embedding, {embedding_size}."
        )
    if num_layers == 1 and last_size is None and last != hidden_size:
        return "embedding_size", (
            f"must be hidden_size ({hidden_size}) for one layer with tied weights, got "
            f"{embedding_size}. Leave it out, or set tied = false."
        )
    if (num_layers == 1 or reads.skip) and last != hidden_size:
        why = "the layers that are summed" if reads.skip else "one layer"
        name = "embedding_size" if last_size is None else "last_size"
        advice = "Add a projection." if last_size is None else "Leave it out."
        return name, f"must be hidden_size ({hidden_size}) for {why}, got {last}. {advice}"
    if reads.tied and reads.linear and not reads.projection and last != embedding_size:
        return "last_size", (
            f"must be the size of the embedding ({embedding_size}) for a linear head with tied "
            f"weights, got {last}. Leave it out, add a projection, or set tied = false."
        )
    return None


def _last(embedding_size: int, hidden_size: int, last_size: int | None, reads: Reads) -> int:
    if last_size is not None:
        return last_size
    return embedding_size if reads.tied and not reads.projection else hidden_size
