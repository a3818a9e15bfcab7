r"""A recurrent language model: embedding, noisy layers, and a prediction of the next word.

The default is the paper's: an LSTM with the prediction tied to the embedding, initialised as there.
Noise and dropout are arguments, so a clean model, a noisy one, one with dropout and one with both
are the same class with the same parameters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Generator, Tensor, nn

from noisin import likelihoods
from noisin._util import arguments, checks, torch_state
from noisin.errors import InvalidType, InvalidValue
from noisin.likelihoods.linear import linear_nll
from noisin.models import layers
from noisin.models.layers import CellChoice
from noisin.noise import Noise
from noisin.recurrent.functional import Mode, Share
from noisin.recurrent.injection import Injection, NoisyLayers, Site
from noisin.regularizers.sequences import Dropout, Dropouts

# The sizes of the paper's models (num_layers, hidden_size), and one for a quick try.
PRESETS: Mapping[str, tuple[int, int]] = {
    "small": (2, 200),
    "medium": (2, 650),
    "large": (2, 1500),
}


class LanguageModel(nn.Module):
    r"""Predicts each word from those before: ``p(x_t | x_{<t}) = softmax(V^T z_t + b)``.

    Args:
        num_words: the size of the vocabulary.
        embedding_size: that of the word vectors; ``hidden_size`` unless given.
        hidden_size: that of the layers. Where V is tied, the last layer has the embedding's size.
        num_layers: the number of layers.
        cell: ``"lstm"``, ``"gru"``, ``"elman-tanh"``, ``"elman-sigmoid"`` or ``"elman-relu"``; or
            your own, a class ``Cell(input_size, hidden_size)`` whose instances are
            ``(x, state) -> state``, or its name, ``"package.module:Class"``.
        tied: whether V is the embedding, or a matrix of its own.
        noise: a noise, None, or a sequence with one (or None) per layer.
        mode, feedback, noisy_layers, share: of the noise, as in :mod:`noisin.recurrent.modules`.
        site: of a GRU's noise, as in :class:`noisin.GRU`.
        dropout: the drop rates.
        zoneout: the rates ``(p_h, p_c)`` of :class:`~noisin.regularizers.Zoneout`, or None.
        gate_dropout: the rates ``(x, h)`` of the paper's eight masks inside an LSTM,
            :class:`~noisin.regularizers.DropoutLSTMCell`, or None.
        generator: the random stream of initialisation, noise and dropout; None is torch's own.

    Weights are the paper's: the embedding uniform on ±0.1, all others on ±1/√H, biases zero. A
    state is a tuple with that of each layer, as torch's RNNs have it, or None for zeros.

    >>> from noisin import noise
    >>> model = LanguageModel(10_000, hidden_size=650, noise=noise.Gaussian(gamma=1.10))
    >>> sum(p.numel() for p in model.parameters())
    13280400
    >>> x = torch.randint(10_000, (36, 2))
    >>> loss, state = model.loss(x[:-1], target=x[1:])
    >>> bool(abs(loss - torch.tensor(10_000).log()) < 0.1)
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
        gate_dropout: tuple[float, float] | None = None,
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        _check_sizes(num_words=num_words, hidden_size=hidden_size, num_layers=num_layers)
        embedding_size = hidden_size if embedding_size is None else embedding_size
        _check_sizes(embedding_size=embedding_size)
        _check_choices(cell, tied, site, dropout)
        injection = Injection(
            noise, mode, feedback, noisy_layers, share, site, generator, owner="LanguageModel"
        )
        injection.require_layers(num_layers)
        self.generator = generator
        sizes = _sizes(embedding_size, hidden_size, num_layers, tied)
        with layers.own_stream(generator):  # torch's own initialisation is not ours
            self.embedding = nn.Embedding(num_words, embedding_size)
            self.layers = nn.ModuleList(
                layers.layer(
                    cell,
                    sizes[k],
                    sizes[k + 1],
                    injection=injection.of_layer(k, num_layers),
                    dropout=Dropout(dropout.recurrent, dropout.locked, generator),
                    zoneout=zoneout,
                    gate_dropout=gate_dropout,
                )
                for k in range(num_layers)
            )
        emitted = [dropout.input, *[dropout.between] * (num_layers - 1), dropout.output]
        self.dropouts = nn.ModuleList(Dropout(p, dropout.locked, generator) for p in emitted)
        self.weight = None if tied else nn.Parameter(torch.empty(num_words, sizes[-1]))
        self.bias = nn.Parameter(torch.empty(num_words))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise as the paper does."""
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
        """The prediction matrix, ``(H, num_words)``; where tied, the embedding's transpose."""
        return (self.embedding.weight if self.weight is None else self.weight).t()

    def encode(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Word numbers ``(T, N)`` to what the prediction reads, ``(T, N, H)``, and the state."""
        self._check_words(x)
        states = self._states(state)
        z = self.dropouts[0](self.embedding(x))
        carried = []
        for layer, drop, before in zip(self.layers, self.dropouts[1:], states, strict=True):
            z, after = layer(z, before)
            z = drop(z)
            carried.append(after)
        return z, tuple(carried)

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """Natural parameters s of the next words, ``(T, N, num_words)``, and the state."""
        z, state = self.encode(x, state)
        return z @ self.V + self.bias, state

    def nll(self, x: Tensor, target: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """``-log p(target)`` in nats, ``(T, N)``, without ever holding all of s; and the state."""
        z, state = self.encode(x, state)
        return linear_nll(z, self.V, target, self.bias), state

    def loss(self, x: Tensor, target: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        """The mean of :meth:`nll`, which training minimises, at less cost; and the state."""
        z, state = self.encode(x, state)
        return linear_nll(z, self.V, target, self.bias, reduction="mean"), state

    def _check_words(self, x: Tensor) -> None:
        checks.require_tensors("LanguageModel", x=x)
        if x.dim() != 2 or x.numel() == 0 or x.dtype not in (torch.int64, torch.int32):
            raise InvalidValue(
                f"LanguageModel: expected word numbers x, an integer tensor (T, N) that is not "
                f"empty, got {tuple(x.shape)} of {x.dtype}. Time comes first; for one sequence use "
                f"x.unsqueeze(1)."
            )
        num_words = self.embedding.num_embeddings
        if x.device.type == "cpu" and torch_state.values_known(x):
            low, high = (int(value) for value in x.aminmax())
            if low < 0 or high >= num_words:
                raise InvalidValue(
                    f"LanguageModel: word numbers must lie in 0 ... {num_words - 1}, got {low} ... "
                    f"{high}. Encode the text with the vocabulary that the model was made for."
                )

    def _states(self, state: Any) -> Sequence[Any]:
        if state is None:
            return (None,) * len(self.layers)
        if not isinstance(state, tuple | list) or len(state) != len(self.layers):
            got = f"{len(state)} parts" if isinstance(state, tuple | list) else type(state).__name__
            raise InvalidType(
                f"LanguageModel: expected a state with one part for each of {len(self.layers)} "
                f"layers, got {got}. Pass what a previous call returned, or None for zeros."
            )
        return state


def _sizes(embedding_size: int, hidden_size: int, num_layers: int, tied: bool) -> list[int]:
    """The sizes of what the layers read, and of what the last one emits."""
    if tied and num_layers == 1 and embedding_size != hidden_size:
        raise InvalidValue(
            f"LanguageModel: with tied=True the last layer has the size of the embedding, and the "
            f"only layer cannot have both embedding_size={embedding_size} and "
            f"hidden_size={hidden_size}. Leave embedding_size out, or use tied=False."
        )
    last = embedding_size if tied else hidden_size
    return [embedding_size, *[hidden_size] * (num_layers - 1), last]


def _check_sizes(**sizes: object) -> None:
    for name, value in sizes.items():
        arguments.whole(f"LanguageModel: {name}", value)


def _check_choices(cell: CellChoice, tied: bool, site: str, dropout: Dropouts) -> None:
    checks.one_of("LanguageModel: tied", tied, (True, False))
    if cell != "gru":
        checks.one_of("LanguageModel: site, of a cell that is no GRU,", site, ("read",))
    if not isinstance(dropout, Dropouts):
        raise InvalidType(
            f"LanguageModel: dropout must be a Dropouts, got {dropout!r}. "
            f"Pass, for example, models.Dropouts(input=0.5, between=0.4, output=0.5)."
        )
