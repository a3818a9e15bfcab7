r"""Random weights, one draw per forward pass: weight drop and weight noise.

Both replace the weights of a layer for one window of text. All rows and steps of the window share
the draw, so the kernels run at their usual speed on other weights, and the parameters themselves
never change: the gradient is that of the parameters, by the chain rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from torch import Generator, Tensor

from noisin._util import arguments, checks
from noisin.noise import Gaussian
from noisin.noise.sampling import Stochastic
from noisin.recurrent.functional import Mode
from noisin.regularizers.cells import check_rate

Per = Literal["sequence", "step"]
_INPUT, _RECURRENT = "weight_ih", "weight_hh"


@dataclass(frozen=True)
class WeightDrop:
    r"""Weight drop (Merity et al., 2017): DropConnect (Wan et al., 2013) of the recurrent weights.

    ``W_h * m / (1 - p)`` with ``m ~ Bernoulli(1 - p)`` for each weight. Biases are kept.

    Args:
        p: the probability that a weight is dropped.
        inputs: whether the weights of the input, ``W_x``, are dropped too.
    """

    p: float
    inputs: bool = False

    def __post_init__(self) -> None:
        check_rate("WeightDrop: p", self.p)
        arguments.boolean("WeightDrop: inputs", self.inputs)


@dataclass(frozen=True)
class WeightNoise:
    r"""Weight noise (Jim, Giles & Horne, 1996): Gaussian noise on ``W_x`` and ``W_h``, not biases.

    Args:
        std: the standard deviation of the noise.
        mode: ``"additive"``, ``W + eps``, or ``"multiplicative"``, ``W * (1 + eps)``.
        per: one draw per ``"sequence"``, which here is a window and is shared by all rows; or
            ``"step"``, a draw for every row and step: :class:`~noisin.regularizers.SynapticNoise`.
    """

    std: float
    mode: Mode = "additive"
    per: Per = "sequence"

    def __post_init__(self) -> None:
        arguments.finite("WeightNoise: std", self.std, least=0)
        checks.one_of("WeightNoise: mode", self.mode, ("additive", "multiplicative"))
        checks.one_of("WeightNoise: per", self.per, ("sequence", "step"))

    @property
    def per_step(self) -> bool:
        """Whether every step has its own weights."""
        return self.std > 0 and self.per == "step"


class RandomWeights(Stochastic):
    """Draws the weights of one forward pass, to be given to a layer as ``weights=``.

    Noise comes first, so that a weight that is dropped is zero.

    Args:
        drop: the weight drop, or None.
        noise: the weight noise per sequence, or None.
        generator: the random stream to draw from; None is torch's global one.

    >>> import torch, noisin
    >>> lstm = noisin.LSTM(2, 3)
    >>> weights = RandomWeights(WeightDrop(0.5))(dict(lstm.named_parameters()))
    >>> [(name, w.shape) for name, w in weights.items()]
    [('weight_hh_l0', torch.Size([12, 3]))]
    >>> z, state = lstm(torch.zeros(5, 1, 2), weights=weights)
    """

    def __init__(
        self,
        drop: WeightDrop | None = None,
        noise: WeightNoise | None = None,
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        checks.require_generator("RandomWeights", generator)
        self.drop = drop
        self.noise = noise
        self.generator = generator

    @property
    def acts(self) -> bool:
        """Whether any weight is random at present."""
        drops = self.drop is not None and self.drop.p > 0
        return self.training and (drops or (self.noise is not None and self.noise.std > 0))

    @property
    def rows_share(self) -> bool:  # type: ignore[override]
        """Weights are those of all rows."""
        return self.acts

    @property
    def locked(self) -> bool:
        """Whether all that is drawn are masks, one for all steps of a window."""
        return self.noise is None or self.noise.std == 0

    def forward(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Those of the weights, by their names in a layer, that are random: a fresh draw."""
        drawn: dict[str, Tensor] = {}
        if not self.acts:
            return drawn
        for name, w in weights.items():
            noisy, dropped = self._noisy(name, w), self._mask_of(name, w)
            if noisy is not None or dropped is not None:
                w = w if noisy is None else noisy
                drawn[name] = w if dropped is None else w * dropped
        return drawn

    def _noisy(self, name: str, w: Tensor) -> Tensor | None:
        if self.noise is None or self.noise.std == 0 or not name.startswith((_INPUT, _RECURRENT)):
            return None
        eps = self._draw(Gaussian(self.noise.std), w.shape, w, shared=True)
        return w + eps if self.noise.mode == "additive" else w * eps.add_(1)

    def _mask_of(self, name: str, w: Tensor) -> Tensor | None:
        drop = self.drop
        if drop is None or drop.p == 0:
            return None
        names = (_INPUT, _RECURRENT) if drop.inputs else (_RECURRENT,)
        if not name.startswith(names):
            return None
        return self._mask(drop.p, w.shape, w, shared=True, name=name)

    def extra_repr(self) -> str:
        """The settings."""
        return ", ".join(str(part) for part in (self.drop, self.noise) if part is not None)
