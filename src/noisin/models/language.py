r"""A recurrent language model: embedding, noisy layers, and a prediction of the next word.

The default is the model of the paper: an LSTM whose prediction shares the weights of the embedding.
Noise and dropout are arguments, so that models without noise, with noise, with dropout and with
both are the same class with the same parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Generator, Tensor, nn

from noisin import likelihoods
from noisin._util import arguments, checks
from noisin.errors import InvalidType, InvalidValue
from noisin.models import layers
from noisin.models.encoders import Words
from noisin.models.heads import Linear
from noisin.models.layers import CellChoice
from noisin.models.sequence import SequenceModel
from noisin.models.steps import GateDropout
from noisin.noise import Noise
from noisin.recurrent.functional import Mode, Share
from noisin.recurrent.injection import Injection, NoisyLayers, Site
from noisin.regularizers.sequences import Dropouts
from noisin.regularizers.terms import Term

# The sizes of the paper's models (num_layers, hidden_size), and a small one for quick tests.
PRESETS: Mapping[str, tuple[int, int]] = {
    "small": (2, 200),
    "medium": (2, 650),
    "large": (2, 1500),
}


class LanguageModel(SequenceModel):
    r"""Predicts each word from the words before: ``p(x_t | x_{<t}) = softmax(V^T z_t + b)``.

    Args:
        num_words: the size of the vocabulary.
        embedding_size: the size of the embeddings; ``hidden_size`` by default.
        hidden_size: the size of the layers. If V is tied, the last layer has the embedding's size.
        num_layers: the number of layers.
        cell: ``"lstm"``, ``"gru"`` or another of :data:`~noisin.recurrent.names.CELL_NAMES`; or a
            custom cell: a class ``Cell(input_size, hidden_size)`` whose instances are
            ``(x, state) -> state``, or its name, ``"package.module:Class"``.
        tied: whether V shares the weights of the embedding.
        noise: a noise, None, or a sequence with one (or None) per layer.
        mode, feedback, noisy_layers, share: how the noise is injected, as in
            :mod:`noisin.recurrent.modules`.
        site: where the noise of a GRU is injected, as in :class:`noisin.GRU`.
        dropout: the drop rates.
        zoneout: the rates ``(p_h, p_c)`` of :class:`~noisin.regularizers.Zoneout`, or None.
        gate_dropout: the rates ``(x, h)`` of the paper's eight masks inside an LSTM,
            :class:`~noisin.regularizers.DropoutLSTMCell`, or None. A
            :class:`~noisin.models.steps.GateDropout` has more settings.
        update_dropout: the rate ``(p,)``, or ``(p, locked)``, of the dropout of updates,
            :class:`~noisin.regularizers.UpdateDropoutLSTMCell`, or None.
        cell_arguments: arguments of the constructor of the cell, such as ``{"depth": 10}``.
        terms: penalties to add to the loss.
        generator: the random stream of initialisation, noise and dropout; None is torch's global
            one.

    Weights are initialised as in the paper: the embedding uniform on ±0.1, all others on ±1/√H,
    biases zero. A state is a tuple of the states of the layers, as returned by torch's RNNs, or
    None for zeros.

    >>> from noisin import noise
    >>> model = LanguageModel(10_000, hidden_size=650, noise=noise.Gaussian(gamma=1.10))
    >>> sum(p.numel() for p in model.parameters())
    13280400
    >>> from noisin.data import Batch
    >>> x = torch.randint(10_000, (36, 2))
    >>> loss = model.loss(Batch(x[:-1], target=x[1:]))
    >>> bool(abs(loss.mean - torch.tensor(10_000).log()) < 0.1)
    True
    """

    likelihood = likelihoods.Categorical()

    def __init__(
        self,
        num_words: int,
        *,
        embedding_size: int | None = None,
        hidden_size: int = 650,
        num_layers: int = 2,
        cell: CellChoice = "lstm",
        tied: bool = True,
        noise: Noise | Sequence[Noise | None] | None = None,
        mode: Mode = "multiplicative",
        feedback: bool = True,
        noisy_layers: NoisyLayers = "all",
        share: Share = "step",
        site: Site = "read",
        dropout: Dropouts = Dropouts(),  # noqa: B008 - frozen
        zoneout: tuple[float, float] | None = None,
        gate_dropout: tuple[float, float] | GateDropout | None = None,
        update_dropout: tuple[float] | tuple[float, bool] | None = None,
        cell_arguments: Mapping[str, Any] = {},
        terms: Sequence[Term] = (),
        generator: Generator | None = None,
    ) -> None:
        nn.Module.__init__(self)  # its parts have other names, those of its state_dict
        _check_sizes(num_words=num_words, hidden_size=hidden_size, num_layers=num_layers)
        embedding_size = hidden_size if embedding_size is None else embedding_size
        _check_sizes(embedding_size=embedding_size)
        _check_choices(cell, tied, site, dropout)
        injection = Injection(
            noise, mode, feedback, noisy_layers, share, site, generator, owner="LanguageModel"
        )
        self.generator = generator
        sizes = _sizes(embedding_size, hidden_size, num_layers, tied)
        with layers.own_stream(generator):  # torch's initialisation is replaced below
            self.embedding = Words(num_words, embedding_size)
            options: dict[str, Any] = {
                "zoneout": zoneout,
                "gate_dropout": gate_dropout,
                "update_dropout": update_dropout,
                "cell_arguments": cell_arguments,
            }
            self.layers = layers.recurrent_layers(cell, sizes, injection, dropout, **options)
        self.dropouts = layers.emitted_dropouts(dropout, num_layers, generator)
        self.weight = None if tied else nn.Parameter(torch.empty(num_words, sizes[-1]))
        self.bias = nn.Parameter(torch.empty(num_words))
        self.terms: tuple[Term, ...] = tuple(terms)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise the weights as in the paper."""
        with torch.no_grad():
            self.embedding.weight.uniform_(-0.1, 0.1, generator=self.generator)
            for layer in self.layers:
                assert isinstance(layer, layers.Layer)
                layer.reset_parameters(self.generator)
            if self.weight is not None:
                bound = self.weight.shape[1] ** -0.5
                self.weight.uniform_(-bound, bound, generator=self.generator)
            self.bias.zero_()

    @property
    def V(self) -> Tensor:  # noqa: N802 - the paper's letter
        """The prediction matrix, ``(H, num_words)``; if tied, the embedding's transpose."""
        return (self.embedding.weight if self.weight is None else self.weight).t()

    @property
    def encoder(self) -> nn.Module:  # type: ignore[override]
        """The embedding."""
        return self.embedding

    @property
    def head(self) -> Linear:  # type: ignore[override]
        """The prediction: V, the bias and the likelihood."""
        return Linear(self.V, self.bias, self.likelihood)


def _sizes(embedding_size: int, hidden_size: int, num_layers: int, tied: bool) -> list[int]:
    """The input sizes of the layers, and the output size of the last one."""
    if tied and num_layers == 1 and embedding_size != hidden_size:
        raise InvalidValue(
            f"LanguageModel: with tied=True the last layer has the size of the embedding; a single "
            f"layer cannot have both embedding_size={embedding_size} and "
            f"hidden_size={hidden_size}. Leave embedding_size out, or use tied=False."
        )
    last = embedding_size if tied else hidden_size
    return [embedding_size, *[hidden_size] * (num_layers - 1), last]


def _check_sizes(**sizes: object) -> None:
    for name, value in sizes.items():
        arguments.whole(f"LanguageModel: {name}", value)


def _check_choices(cell: CellChoice, tied: bool, site: str, dropout: Dropouts) -> None:
    checks.one_of("LanguageModel: tied", tied, (True, False))
    if not isinstance(cell, str) or cell != "gru":  # an array has no truth value
        checks.one_of("LanguageModel: site, for a cell that is not a GRU,", site, ("read",))
    if not isinstance(dropout, Dropouts):
        raise InvalidType(
            f"LanguageModel: dropout must be a Dropouts, got {dropout!r}. "
            f"Pass, for example, models.Dropouts(input=0.5, between=0.4, output=0.5)."
        )
