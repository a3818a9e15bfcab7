"""Noise: the eight families of the paper's table, centred and scaled, and custom noise.

See :mod:`noisin.noise.families` for their laws. Names load when first used: the ranges of their
parameters, :mod:`noisin.noise.ranges`, need no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noisin._util import lazy
from noisin.noise.ranges import RANGES

if TYPE_CHECKING:
    from noisin.noise.base import Noise as Noise
    from noisin.noise.biased import Biased as Biased
    from noisin.noise.custom import from_distribution as from_distribution
    from noisin.noise.families import FAMILIES as FAMILIES
    from noisin.noise.families import Bernoulli as Bernoulli
    from noisin.noise.families import Beta as Beta
    from noisin.noise.families import ChiSquare as ChiSquare
    from noisin.noise.families import Gamma as Gamma
    from noisin.noise.families import Gaussian as Gaussian
    from noisin.noise.families import Gumbel as Gumbel
    from noisin.noise.families import Laplace as Laplace
    from noisin.noise.families import Logistic as Logistic
    from noisin.noise.families import validate as validate
    from noisin.noise.family import Family as Family
    from noisin.noise.schedules import Ramp as Ramp

_HOMES = dict.fromkeys((*RANGES, "FAMILIES", "validate"), "families")
_HOMES |= {"Noise": "base", "Family": "family", "from_distribution": "custom"}
_HOMES |= {"Ramp": "schedules", "Biased": "biased"}

__getattr__, __all__ = lazy.names_of(__name__, _HOMES)


def __dir__() -> list[str]:
    return sorted(__all__)
