"""Models: an encoder, layers and a head; the language models of the paper.

Names are loaded lazily.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noisin._util import lazy

if TYPE_CHECKING:
    from noisin._util.states import detach as detach
    from noisin.models.autoregressive import Autoregressive as Autoregressive
    from noisin.models.base import Head as Head
    from noisin.models.base import Loss as Loss
    from noisin.models.base import Trainable as Trainable
    from noisin.models.encoders import Values as Values
    from noisin.models.encoders import Words as Words
    from noisin.models.generation import generate as generate
    from noisin.models.heads import Dense as Dense
    from noisin.models.heads import LearntScale as LearntScale
    from noisin.models.heads import Linear as Linear
    from noisin.models.language import PRESETS as PRESETS
    from noisin.models.language import LanguageModel as LanguageModel
    from noisin.models.mixture import MixtureOfSoftmaxes as MixtureOfSoftmaxes
    from noisin.models.pointer import PointerSentinel as PointerSentinel
    from noisin.models.sequence import SequenceModel as SequenceModel
    from noisin.recurrent.cell import CELLS as CELLS
    from noisin.regularizers.sequences import Dropout as Dropout
    from noisin.regularizers.sequences import Dropouts as Dropouts

_HOMES = {
    "Autoregressive": "autoregressive",
    **dict.fromkeys(("Head", "Loss", "Trainable"), "base"),
    **dict.fromkeys(("Values", "Words"), "encoders"),
    "generate": "generation",
    **dict.fromkeys(("Dense", "LearntScale", "Linear"), "heads"),
    **dict.fromkeys(("PRESETS", "LanguageModel"), "language"),
    "MixtureOfSoftmaxes": "mixture",
    "PointerSentinel": "pointer",
    "detach": "._util.states",
    "CELLS": ".recurrent.cell",
    "SequenceModel": "sequence",
    **dict.fromkeys(("Dropout", "Dropouts"), ".regularizers.sequences"),
}

__getattr__, __all__ = lazy.names_of(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
