"""Dropout of sequences and of words: its places, its rates, and the masks.

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
        words: of word types: a word that is dropped is dropped wherever it occurs in a window.
        words_shared: whether a word is dropped in all sequences of a batch at once (the embedding
            dropout of AWD-LSTM), or in each by itself (Gal).

    Two readings of the paper's "0.5 / 0.4 / 0.5": as Zaremba, and with 0.4 on the recurrent state.
    (The paper's equations are a third, which is :class:`~noisin.regularizers.DropoutLSTMCell`.)

    >>> zaremba = Dropouts(0.5, 0.4, 0.5)
    >>> recurrent = Dropouts(0.5, 0.0, 0.5, recurrent=0.4)
    """

    input: float = 0.0
    between: float = 0.0
    output: float = 0.0
    recurrent: float = 0.0
    locked: bool = False
    words: float = 0.0
    words_shared: bool = False

    def __post_init__(self) -> None:
        for field in fields(self):
            name, value = f"Dropouts: {field.name}", getattr(self, field.name)
            if field.name in ("locked", "words_shared"):
                checks.one_of(name, value, (True, False))
            else:
                check_rate(name, value)

    def words_of(self, generator: Generator | None = None) -> WordDropout | None:
        """The dropout of word types, or None if there is none."""
        return WordDropout(self.words, self.words_shared, generator) if self.words else None


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


class WordDropout(Stochastic):
    """Dropout of word types while training: all occurrences of a word in a window, or none.

    A word keeps its vector, times ``1/(1 - p)``, or has zeros. This is dropout of whole rows of the
    embedding (Gal & Ghahramani, 2016), computed on the vectors that a window needs.

    Args:
        p: the probability that a word type is dropped.
        shared: one decision per word type for all sequences (Merity et al., 2017), or one for each
            sequence (Gal).
        generator: the random stream to draw from; None is torch's global one.

    >>> import torch
    >>> drop = WordDropout(0.5, generator=torch.Generator().manual_seed(1))
    >>> ids = torch.tensor([[3], [1], [3]])
    >>> drop(torch.ones(3, 1, 2), ids, 10)[:, 0]
    tensor([[0., 0.],
            [2., 2.],
            [0., 0.]])
    """

    def __init__(self, p: float, shared: bool = False, generator: Generator | None = None) -> None:
        super().__init__()
        check_rate("WordDropout: p", p)
        checks.one_of("WordDropout: shared", shared, (True, False))
        checks.require_generator("WordDropout", generator)
        self.p = p
        self.shared = shared
        self.generator = generator

    @property
    def acts(self) -> bool:
        """Whether anything is dropped at present."""
        return self.training and self.p > 0

    @property
    def rows_share(self) -> bool:  # type: ignore[override]
        """Whether all rows drop the same words."""
        return self.shared and self.acts

    def forward(self, x: Tensor, ids: Tensor, num_words: int) -> Tensor:
        """Drop vectors ``(T, N, E)`` of words ``(T, N)``."""
        return x * self.mask(x, ids, num_words) if self.acts else x

    def mask(self, like: Tensor, ids: Tensor, num_words: int) -> Tensor:
        """Scaled masks of words ``(T, N)``: 0 or ``1/(1 - p)``, ``(T, N, 1)``."""
        if self.shared:
            return self._mask(self.p, (num_words, 1), like, shared=True)[ids]
        # A decision for every place, of which a word takes that of its first one in the sequence:
        # the number of draws depends neither on the words nor on the size of the vocabulary.
        decisions = self._mask(self.p, (*ids.shape, 1), like)
        first = (ids.unsqueeze(0) == ids.unsqueeze(1)).int().argmax(1)
        return decisions.gather(0, first.unsqueeze(-1))

    def extra_repr(self) -> str:
        """The rate and what shares a decision."""
        return f"p={self.p}, shared={self.shared}"
