"""Dropout of sequences: its places, its rates, and the masks.

Multiplicative Bernoulli noise *is* dropout, so a mask is ``1 + eps`` with the noise that is already
there. It therefore comes from the same random stream and differs from noise by its place alone:
``noise_off`` and ``set_noise`` leave dropout as it is.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from torch import Generator, Tensor

from noisin._util import arguments, checks
from noisin.errors import InvalidValue
from noisin.noise.sampling import Stochastic
from noisin.regularizers.cells import check_rate


@dataclass(frozen=True)
class Dropouts:
    """The drop rates of a language model.

    Attributes:
        input: of the embedding that the first layer reads.
        between: of what a layer hands to the next.
        output: of what the last layer hands to the prediction.
        recurrent: of the ``h_{t-1}`` that a layer's own recurrence reads, one mask for all gates.
        locked: one mask per sequence and feature for all steps (Gal), or a fresh one per step.

    Two readings of the paper's "0.5 / 0.4 / 0.5": as Zaremba, and with 0.4 on the recurrent state.
    (The paper's equations are a third, which is :class:`~noisin.regularizers.DropoutLSTMCell`.)

    >>> Dropouts(0.5, 0.4, 0.5)
    Dropouts(input=0.5, between=0.4, output=0.5, recurrent=0.0, locked=False)
    >>> Dropouts(0.5, 0.0, 0.5, recurrent=0.4)
    Dropouts(input=0.5, between=0.0, output=0.5, recurrent=0.4, locked=False)
    """

    input: float = 0.0
    between: float = 0.0
    output: float = 0.0
    recurrent: float = 0.0
    locked: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            if field.name != "locked":
                check_rate(f"Dropouts: {field.name}", getattr(self, field.name))
        checks.one_of("Dropouts: locked", self.locked, (True, False))


class Dropout(Stochastic):
    """Dropout of a sequence ``(T, N, F)`` while training, by a fresh or a locked mask.

    >>> import torch
    >>> drop = Dropout(0.5, locked=True)
    >>> x = drop(torch.ones(3, 1, 4))
    >>> torch.equal(x[0], x[1]), bool(((x == 0) | (x == 2)).all())
    (True, True)
    """

    def __init__(self, p: float, locked: bool = False, generator: Generator | None = None) -> None:
        super().__init__()
        check_rate("Dropout: p", p)
        checks.one_of("Dropout: locked", locked, (True, False))
        checks.require_generator("Dropout", generator)
        self.p = p
        self.locked = locked
        self.generator = generator

    @property
    def acts(self) -> bool:
        """Whether anything is dropped at present."""
        return self.training and self.p > 0

    def mask(self, like: Tensor, size: int) -> Tensor:
        """Scaled masks, 0 or ``1/(1 - p)``, ``(T, N, size)``, for a sequence ``like``."""
        checks.require_real("Dropout", like=like)
        arguments.whole("Dropout: size", size)
        if like.dim() < 2:
            raise InvalidValue(
                f"Dropout: expected a sequence (T, N, ...), got {tuple(like.shape)}."
            )
        T, N = like.shape[:2]
        shape = (1 if self.locked else T, N, size)
        return self._mask(self.p, shape, like).expand(T, N, size)

    def forward(self, x: Tensor) -> Tensor:
        """Drop entries of x."""
        checks.require_real("Dropout", x=x)
        if x.dim() != 3:
            raise InvalidValue(f"Dropout: expected a sequence (T, N, F), got {tuple(x.shape)}.")
        return x * self.mask(x, x.shape[-1]) if self.acts else x

    def extra_repr(self) -> str:
        """The rate and the kind of mask."""
        return f"p={self.p}, locked={self.locked}"
