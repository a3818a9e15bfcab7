"""Whether K noise samples of a sequence model differ by the noise of its last layer alone."""

from __future__ import annotations

from torch import Tensor, nn

from noisin._util import states
from noisin.models.base import State
from noisin.models.encoders import Values, Words
from noisin.models.layers import Layer
from noisin.recurrent.modules import GRU, LSTM, RNN
from noisin.recurrent.samples import is_plain
from noisin.recurrent.stack import NoisyStack
from noisin.regularizers.sequences import Dropout, WordDropout

# Modules of these classes compute each row from itself, and draw nothing, except for the dropout of
# words. A subclass may.
_CERTAIN = (Words, Values, nn.Embedding, nn.Linear, nn.Identity)
_STACKS = (RNN, LSTM, GRU)


def is_shared(
    encoder: nn.Module, layers: nn.ModuleList, dropouts: nn.ModuleList, x: Tensor, state: State,
    K: int,
) -> bool:  # fmt: skip
    """Whether K samples of the rows of x differ by what the last layer emits, and by nothing else.

    What follows the last layer may be random: it sees all rows of all samples.
    """
    return (
        len(layers) > 0
        and type(encoder) in _CERTAIN
        and not any(isinstance(m, WordDropout) and m.acts for m in encoder.modules())
        and all(_is_certain(module) for module in (*layers[:-1], *dropouts[:-1]))
        and all(is_plain(m) for m in (encoder, *layers.modules(), *dropouts.modules()))
        and _emits_all_noise(layers[-1])
        and states.is_common(state, x.shape[1], K)
    )


def _stack(layer: nn.Module) -> NoisyStack | None:
    """The stack of a layer whose rows nothing is dropped in; random weights all rows share."""
    if type(layer) is Layer:
        return None if layer.draws else _stack(layer.rnn)
    return layer if type(layer) in _STACKS and isinstance(layer, NoisyStack) else None


def _emits_all_noise(layer: nn.Module) -> bool:
    stack = _stack(layer)
    return stack is not None and stack.emits_all_noise()


def _is_certain(module: nn.Module) -> bool:
    """Whether a layer or a dropout draws nothing at present."""
    stack = _stack(module)
    if stack is not None:
        return stack.is_certain()
    if type(module) is Dropout:
        return not module.acts
    return type(module) in _CERTAIN or (type(module) is nn.Dropout and not module.training)
