"""Scores as the records of runs contain them. Nothing here needs torch.

Since noisin 0.2 a score is an object, ``{"nats": 4.6, "count": 82430}``: nats per target, or null
where they are not finite, and the number of targets. Before that it was a perplexity, with null for
infinity. A record of a run that was continued may contain both kinds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from noisin.tasks.unit import Score, Unit

Recorded = float | Mapping[str, Any] | None


def to_json(score: Score) -> dict[str, Any]:
    """A score as a record contains it; null for non-finite nats.

    >>> to_json(Score(4.5, 100)), to_json(Score(math.inf, 100))
    ({'nats': 4.5, 'count': 100}, {'nats': None, 'count': 100})
    """
    return {"nats": score.nats if math.isfinite(score.nats) else None, "count": score.count}


def nats(recorded: Recorded) -> float:
    """Nats per target of a score of either kind, infinite for null.

    >>> nats({"nats": -1.5, "count": 100}), nats(math.e), nats(None)
    (-1.5, 1.0, inf)
    """
    if isinstance(recorded, Mapping):
        found = recorded["nats"]
        return math.inf if found is None else float(found)
    if recorded is None:
        return math.inf
    return math.log(recorded) if recorded > 0 else -math.inf


def in_unit(recorded: Recorded, unit: Unit) -> float | None:
    """A score of either kind in a unit; a perplexity is returned unchanged, and null as None.

    >>> from noisin.tasks.unit import NATS_PER_FRAME, PERPLEXITY
    >>> in_unit(81.5, PERPLEXITY), in_unit({"nats": -1.5, "count": 100}, NATS_PER_FRAME)
    (81.5, -1.5)
    >>> in_unit({"nats": None, "count": 100}, PERPLEXITY), in_unit(None, PERPLEXITY)
    (inf, None)
    """
    if isinstance(recorded, Mapping):
        return unit.value(nats(recorded))
    return None if recorded is None else float(recorded)
