r"""The rates of dynamic evaluation, and their three normalisations in public code.

.. math:: θ ← θ + λ R ⊙ (θ_0 - θ) - η g / (M + ε)

With the sum of squares of n gradients, and its root mean square ``m = √(Σg²/n)``:

=========  ==========  =====================================================  ==================
name       M           R                                                      public code
=========  ==========  =====================================================  ==================
mos        √Σg²        M / Σ over tensors of mean(M)                          zihangdai/mos
krause     √(Σg²/n)    M / mean over tensors of mean(M)                       benkrause, later
lamb       √(Σg²/n)    M / mean over all elements of M                        deepmind/lamb
sgd        1           1                                                      no statistics
=========  ==========  =====================================================  ==================

In all of them, ``λR ≤ 1``: a weight is never pulled beyond θ₀. Since M is m times a number s and R
is m over a number c, rates convert by ratios of s and c: see :meth:`Rates.converted`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, get_args

import torch
from torch import Tensor

from noisin._util import arguments, checks
from noisin.errors import InvalidValue
from noisin.training.predictors.cache import share

if TYPE_CHECKING:
    from noisin.training.predictors.statistics import Statistics

Normalisation = Literal["krause", "mos", "lamb", "sgd"]


@dataclass(frozen=True)
class Rates:
    """How fast dynamic evaluation adapts, and how fast it forgets.

    Args:
        lr: η.
        decay: λ, in [0, 1).
        epsilon: ε.
        normalisation: what M and R are.

    >>> Rates(lr=1.0, decay=0.5, normalisation="sgd")
    Rates(lr=1.0, decay=0.5, epsilon=2e-05, normalisation='sgd')
    """

    lr: float = 5e-5
    decay: float = 2e-3
    epsilon: float = 2e-5
    normalisation: Normalisation = "krause"

    def __post_init__(self) -> None:
        arguments.finite("Dynamic: lr", self.lr, least=0)
        share("Dynamic: decay", self.decay)
        arguments.finite("Dynamic: epsilon", self.epsilon, above=0)
        checks.one_of("Dynamic: normalisation", self.normalisation, get_args(Normalisation))

    def converted(self, normalisation: Normalisation, statistics: Statistics) -> Rates:
        """The rates of another normalisation under which the same happens."""
        for name in (self.normalisation, normalisation):
            if name == "sgd":
                raise InvalidValue("Dynamic: sgd has no statistics, so it cannot be converted.")
        s, c = _scales(self.normalisation, statistics)
        new_s, new_c = _scales(normalisation, statistics)
        return replace(
            self,
            lr=self.lr * new_s / s,
            decay=self.decay * new_c / c,
            epsilon=self.epsilon * new_s / s,
            normalisation=normalisation,
        )

    def steps(
        self, like: Sequence[Tensor], statistics: Statistics | None
    ) -> tuple[list[Tensor], list[Tensor]]:
        """``η / (M + ε)`` and ``min(λR, 1)`` for each tensor."""
        if self.normalisation == "sgd":
            whole = [torch.ones_like(tensor) for tensor in like]
            return [self.lr * one for one in whole], [self.decay * one for one in whole]
        if statistics is None:
            raise InvalidValue(
                f"Dynamic: the normalisation {self.normalisation!r} needs the statistics of the "
                f"gradients. Pass gradient_statistics(model, batches), or use 'sgd'."
            )
        s, c = _scales(self.normalisation, statistics)
        roots = statistics.roots
        return (
            [self.lr / (s * m + self.epsilon) for m in roots],
            # Of a copy: a clip that overwrites R would stay when λ is changed.
            [(self.decay / c * m).clamp(max=1) for m in roots],
        )


SGD = Rates(lr=0.1, decay=0.0, normalisation="sgd")


def _scales(normalisation: Normalisation, statistics: Statistics) -> tuple[float, float]:
    """The numbers s and c with M = s·m and R = m/c."""
    means = [m.double().mean().item() for m in statistics.roots]
    sizes = [m.numel() for m in statistics.roots]
    if normalisation == "mos":
        return math.sqrt(statistics.n), sum(means)
    if normalisation == "krause":
        return 1.0, sum(means) / len(means)
    return 1.0, sum(mean * size for mean, size in zip(means, sizes, strict=True)) / sum(sizes)
