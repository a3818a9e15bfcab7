r"""A recurrent language model: embedding, noisy layers, and a prediction of the next word.

The default is the model of the paper: an LSTM whose prediction shares the weights of the embedding.
Noise and dropout are arguments, so that models without noise, with noise, with dropout and with
both are the same class with the same parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import torch
from torch import Generator, Tensor, nn

from noisin import likelihoods
from noisin._util import arguments, checks
from noisin.errors import InvalidType
from noisin.models import layers
from noisin.models.base import Head
from noisin.models.encoders import Words
from noisin.models.heads import Linear
from noisin.models.initialization import (
    INITIALIZATIONS,
    Initialization,
    start_truncated,
    truncated_normal_,
)
from noisin.models.layers import CellChoice
from noisin.models.projection import DownProjection
from noisin.models.sequence import SequenceModel
from noisin.models.sizes import Reads, layer_sizes
from noisin.models.steps import GateDropout
from noisin.noise import Noise
from noisin.recurrent.functional import Mode, Share
from noisin.recurrent.injection import AnySite, Injection, NoisyLayers
from noisin.regularizers.sequences import Dropouts
from noisin.regularizers.terms import Term
from noisin.regularizers.weights import WeightDrop, WeightNoise

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
        hidden_size: the size of the layers.
        last_size: the size of the last layer: by default that of the embedding if V is tied, else
            ``hidden_size``. If V is tied and the head is linear, the sizes must be equal, unless
            there is a projection.
        num_layers: the number of layers.
        cell: ``"lstm"``, ``"gru"`` or another of :data:`~noisin.recurrent.names.CELL_NAMES`; or a
            custom cell: a class ``Cell(input_size, hidden_size)`` whose instances are
            ``(x, state) -> state``, or its name, ``"package.module:Class"``.
        tied: whether V shares the weights of the embedding.
        output_bias: whether the linear head has a bias b.
        head: another head than the linear one: a class or function that is called as
            ``head(in_features, num_words, likelihood)``, with ``embedding=``, the weights to share,
            if ``tied``, and ``generator=`` if there is one. For example
            ``partial(MixtureOfSoftmaxes, experts=15)``.
        skip: whether the head reads the sum of what all layers emit.
        projection: the drop rate of a :class:`~noisin.models.projection.DownProjection` to the size
            of the embedding, between the layers and the head; None for no projection.
        noise: a noise, None, or a sequence with one (or None) per layer.
        mode, feedback, noisy_layers, share: how the noise is injected, as in
            :mod:`noisin.recurrent.modules`.
        site: where the noise of a GRU is injected, as in :class:`noisin.GRU`, or that of an affine
            cell, as in :func:`noisin.scan`, whose default here is the increment.
        dropout: the drop rates.
        zoneout: the rates ``(p_h, p_c)`` of :class:`~noisin.regularizers.Zoneout`, or None.
        gate_dropout: the rates ``(x, h)`` of the paper's eight masks inside an LSTM,
            :class:`~noisin.regularizers.DropoutLSTMCell`, or None. A
            :class:`~noisin.models.steps.GateDropout` has more settings.
        update_dropout: the rate ``(p,)``, or ``(p, locked)``, of the dropout of updates,
            :class:`~noisin.regularizers.UpdateDropoutLSTMCell`, or None.
        cell_arguments: arguments of the constructor of the cell, such as ``{"depth": 10}``.
        weight_drop: dropout of recurrent weights, a :class:`~noisin.regularizers.WeightDrop`.
        weight_noise: noise on the weights, a :class:`~noisin.regularizers.WeightNoise`.
        terms: penalties to add to the loss.
        initialization: ``"uniform"``, as below, or ``"truncated-normal"``:
            :func:`~noisin.models.initialization.start_truncated`.
        generator: the random stream of initialisation, noise and dropout; None is torch's global
            one.

    By default weights are initialised as in the paper: the embedding uniform on ±0.1, all others on
    ±1/√H, biases zero. A state is a tuple of the states of the layers, as returned by torch's RNNs,
    or None for zeros.

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
    bias: Tensor  # of the linear head

    def __init__(
        self,
        num_words: int,
        *,
        embedding_size: int | None = None,
        hidden_size: int = 650,
        num_layers: int = 2,
        cell: CellChoice = "lstm",
        tied: bool = True,
        last_size: int | None = None,
        output_bias: bool = True,
        head: Callable[..., Head] | None = None,
        skip: bool = False,
        projection: float | None = None,
        noise: Noise | Sequence[Noise | None] | None = None,
        mode: Mode = "multiplicative",
        feedback: bool = True,
        noisy_layers: NoisyLayers = "all",
        share: Share = "step",
        site: AnySite = "read",
        dropout: Dropouts = Dropouts(),  # noqa: B008 - frozen
        zoneout: tuple[float, float] | None = None,
        gate_dropout: tuple[float, float] | GateDropout | None = None,
        update_dropout: tuple[float] | tuple[float, bool] | None = None,
        weight_drop: WeightDrop | None = None,
        weight_noise: WeightNoise | None = None,
        cell_arguments: Mapping[str, Any] = {},
        terms: Sequence[Term] = (),
        initialization: Initialization = "uniform",
        generator: Generator | None = None,
    ) -> None:
        nn.Module.__init__(self)  # its parts have other names, those of its state_dict
        _check_sizes(num_words=num_words, hidden_size=hidden_size, num_layers=num_layers)
        embedding_size = hidden_size if embedding_size is None else embedding_size
        _check_sizes(embedding_size=embedding_size)
        if last_size is not None:
            _check_sizes(last_size=last_size)
        if head is not None and (not callable(head) or isinstance(head, nn.Module)):
            raise InvalidType(
                f"LanguageModel: head must be None or a class Head(in_features, num_words, "
                f"likelihood), got {head!r:.60}. The model creates its own head."
            )
        for name, choice in (("output_bias", output_bias), ("skip", skip)):
            arguments.boolean(f"LanguageModel: {name}", choice)
        _check_choices(tied, dropout)
        checks.one_of("LanguageModel: initialization", initialization, INITIALIZATIONS)
        self.initialization = initialization
        injection = Injection(
            noise, mode, feedback, noisy_layers, share, site, generator, owner="LanguageModel"
        )
        self.generator = generator
        reads = Reads(tied, head is None, skip, projection is not None)
        sizes = layer_sizes(embedding_size, hidden_size, num_layers, last_size, reads)
        with layers.own_stream(generator):  # torch's initialisation is replaced below
            self.embedding = Words(num_words, embedding_size, dropout=dropout.words_of(generator))
            options: dict[str, Any] = {
                "zoneout": zoneout,
                "gate_dropout": gate_dropout,
                "update_dropout": update_dropout,
                "weight_drop": weight_drop,
                "weight_noise": weight_noise,
                "cell_arguments": cell_arguments,
            }
            self.layers = layers.recurrent_layers(cell, sizes, injection, dropout, **options)
        self.dropouts = layers.emitted_dropouts(dropout, num_layers, generator)
        self.skip = skip
        self.projection: DownProjection | None = None
        reads_size = sizes[-1]
        if projection is not None:
            ends = reads_size, embedding_size
            self.projection = DownProjection(*ends, projection, dropout.locked, generator)
            reads_size = embedding_size
        self._add_head(head, reads_size, tied, output_bias)
        self.terms: tuple[Term, ...] = tuple(terms)
        self.reset_parameters()

    def _add_head(
        self, head: Callable[..., Head] | None, size: int, tied: bool, output_bias: bool
    ) -> None:
        """The parameters of the linear head, or another head, which has its own."""
        words = self.embedding.num_embeddings
        linear = head is None
        own = linear and not tied
        self.weight = nn.Parameter(torch.empty(words, size)) if own else None
        self.prediction: Any = None
        if linear and output_bias:
            self.bias = nn.Parameter(torch.empty(words))
        elif linear:
            self.register_buffer("bias", torch.zeros(words), persistent=False)
        if head is not None:
            shared: dict[str, Any] = {"embedding": self.embedding.weight} if tied else {}
            shared |= {} if self.generator is None else {"generator": self.generator}
            with layers.own_stream(self.generator):
                self.prediction = head(size, words, self.likelihood, **shared)

    def reset_parameters(self) -> None:
        """Initialise the weights, by default as in the paper."""
        with torch.no_grad():
            self.embedding.weight.uniform_(-0.1, 0.1, generator=self.generator)
            for layer in self.layers:
                assert isinstance(layer, layers.Layer)
                layer.reset_parameters(self.generator)
            if self.weight is not None:
                bound = self.weight.shape[1] ** -0.5
                self.weight.uniform_(-bound, bound, generator=self.generator)
            if self.projection is not None:
                self.projection.reset_parameters(self.generator)
            if self.prediction is None:
                self.bias.zero_()
            elif hasattr(self.prediction, "reset_parameters"):
                self.prediction.reset_parameters(self.generator)
            if self.initialization == "truncated-normal":
                start_truncated((self.embedding, *self.layers), self.generator)
                if self.weight is not None:
                    truncated_normal_(self.weight, self.weight.shape[1] ** -0.5, self.generator)

    @property
    def V(self) -> Tensor:  # noqa: N802 - the paper's letter
        """The matrix of the linear head, ``(H, num_words)``; if tied, the embedding's transpose."""
        return (self.embedding.weight if self.weight is None else self.weight).t()

    @property
    def encoder(self) -> nn.Module:  # type: ignore[override]
        """The embedding."""
        return self.embedding

    @property
    def head(self) -> Head:  # type: ignore[override]
        """The prediction: V, the bias and the likelihood, or another head."""
        if self.prediction is not None:
            return cast(Head, self.prediction)
        return Linear(self.V, self.bias, self.likelihood)


def _check_sizes(**sizes: object) -> None:
    for name, value in sizes.items():
        arguments.whole(f"LanguageModel: {name}", value)


def _check_choices(tied: bool, dropout: Dropouts) -> None:
    checks.one_of("LanguageModel: tied", tied, (True, False))
    if not isinstance(dropout, Dropouts):
        raise InvalidType(
            f"LanguageModel: dropout must be a Dropouts, got {dropout!r}. "
            f"Pass, for example, models.Dropouts(input=0.5, between=0.4, output=0.5)."
        )
