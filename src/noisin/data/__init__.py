"""Text as ids: :func:`load` a corpus, and split it into :class:`Windows` for training."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from noisin.data.corpus import SPLITS as SPLITS
from noisin.data.corpus import Corpus as Corpus
from noisin.data.datasets import NAMES as NAMES
from noisin.data.datasets import load as load
from noisin.data.facts import Facts as Facts
from noisin.data.facts import describe as describe
from noisin.data.facts import overlap as overlap
from noisin.data.vocab import Vocabulary as Vocabulary

if TYPE_CHECKING:
    from noisin.data.batch import Batch as Batch
    from noisin.data.batch import Windows as Windows

_WITH_TORCH = ("Batch", "Windows")

__all__ = ["NAMES", "SPLITS", "Corpus", "Facts", "Vocabulary", "describe", "load", "overlap"]
__all__ += _WITH_TORCH


def __getattr__(name: str) -> Any:
    if name in _WITH_TORCH:
        from noisin.data import batch

        return getattr(batch, name)
    raise AttributeError(f"module 'noisin.data' has no attribute {name!r}")
