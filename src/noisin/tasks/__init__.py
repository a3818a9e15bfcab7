"""Tasks: data in batches, and the unit of its score. Names are loaded lazily."""

from __future__ import annotations

from typing import TYPE_CHECKING

from noisin._util import lazy

if TYPE_CHECKING:
    from noisin.tasks.base import Observation as Observation
    from noisin.tasks.base import Task as Task
    from noisin.tasks.music import Music as Music
    from noisin.tasks.series import Series as Series
    from noisin.tasks.text import Characters as Characters
    from noisin.tasks.text import Text as Text
    from noisin.tasks.unit import BITS_PER_CHARACTER as BITS_PER_CHARACTER
    from noisin.tasks.unit import NATS_PER_FRAME as NATS_PER_FRAME
    from noisin.tasks.unit import NATS_PER_STEP as NATS_PER_STEP
    from noisin.tasks.unit import PERPLEXITY as PERPLEXITY
    from noisin.tasks.unit import Score as Score
    from noisin.tasks.unit import Unit as Unit

_UNITS = ("BITS_PER_CHARACTER", "NATS_PER_FRAME", "NATS_PER_STEP", "PERPLEXITY", "Score", "Unit")
_HOMES = dict.fromkeys(_UNITS, "unit")
_HOMES |= {"Observation": "base", "Task": "base", "Music": "music", "Series": "series"}
_HOMES |= {"Characters": "text", "Text": "text"}

__getattr__, __all__ = lazy.names_of(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
