"""Models: recurrent language models with noise and dropout. Names load when first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noisin._util import lazy

if TYPE_CHECKING:
    from noisin.models.generation import generate as generate
    from noisin.models.language import PRESETS as PRESETS
    from noisin.models.language import LanguageModel as LanguageModel
    from noisin.models.language import detach as detach
    from noisin.models.layer import CELLS as CELLS
    from noisin.regularizers.sequences import Dropout as Dropout
    from noisin.regularizers.sequences import Dropouts as Dropouts

_HOMES = {
    "generate": "generation",
    **dict.fromkeys(("PRESETS", "LanguageModel", "detach"), "language"),
    "CELLS": "layer",
    **dict.fromkeys(("Dropout", "Dropouts"), ".regularizers.sequences"),
}

__getattr__, __all__ = lazy.names_of(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
