"""K noise samples of every row, for a model that is asked for them.

K samples are K times as many rows: row n of sample k is row k·N + n. Where all that is random comes
after the last recurrence, as in strong mode, the samples have that recurrence in common, and it is
computed once, on N rows. A model offers that by a keyword-only argument ``samples`` of its methods:
it is given N rows and returns K·N, with a state of K·N rows.

Of what all rows have in common, such as dropped weights, K copies of the rows have one draw. Where
anything of that kind is random, the samples are K passes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from noisin._util import arguments, states
from noisin.errors import Unsupported
from noisin.noise.sampling import Stochastic, sample_of
from noisin.recurrent import functional
from noisin.recurrent.functional import Mode

Found = TypeVar("Found")

NOISE_SAMPLES = "a whole number of noise samples"
_METHODS = ("forward", "encode", "loss", "log_prob", "_trace")


def offered(model: object) -> bool:
    """Whether a model takes ``samples``: all its methods that it may pass through must.

    >>> import noisin
    >>> offered(noisin.LSTM(2, 3)), offered(torch.nn.LSTM(2, 3))
    (True, False)
    """
    if not isinstance(model, nn.Module):
        return False
    methods = [getattr(model, name) for name in _METHODS if hasattr(model, name)]
    return all(takes(method, "samples") for method in methods)


def takes(method: Callable[..., Any], name: str) -> bool:
    """Whether a method has a keyword-only argument of this name."""
    argument = inspect.signature(method).parameters.get(name)
    return argument is not None and argument.kind is inspect.Parameter.KEYWORD_ONLY


def rows_share(model: object) -> bool:
    """Whether a model draws something that all rows have in common."""
    modules = model.modules() if isinstance(model, nn.Module) else ()
    return any(module.rows_share for module in modules if isinstance(module, Stochastic))


def passes(
    model: nn.Module, state: Any, N: int, K: int, run: Callable[[Any], Found]
) -> list[Found]:
    """What ``run`` returns for each of K samples of N rows, given its state."""
    found = []
    for k in range(K):
        with sample_of(model, k):
            found.append(run(states.sample(state, N, k)))
    return found


def side_by_side(found: list[tuple[Tensor, Any]], N: int, dim: int = 1) -> tuple[Tensor, Any]:
    """Values and states of passes as those of K copies of the N rows, in dimension ``dim``."""
    values, after = zip(*found, strict=True)
    return torch.cat(values, dim), states.join(after, N)


def is_plain(module: nn.Module) -> bool:
    """Whether a module does what its class does: a hook could see, or add, what is random."""
    hooks = (
        module._forward_hooks,
        module._forward_pre_hooks,
        module._backward_hooks,
        module._backward_pre_hooks,
    )
    return not any(hooks)


def row_dimension(name: str, input: Tensor | PackedSequence, batch_first: bool, K: int) -> int:
    """The dimension of an RNN's input that has the rows, or raise where K copies cannot be made."""
    arguments.whole(f"{name}: samples", K, what=NOISE_SAMPLES)
    if isinstance(input, PackedSequence) or input.dim() != 3:
        kind = "a PackedSequence" if isinstance(input, PackedSequence) else "an unbatched input"
        raise Unsupported(
            f"{name}: samples are K copies of every row of a batch (T, N, F), got {kind}. Pad the "
            f"sequences, or repeat the input."
        )
    return 0 if batch_first else 1


def repeat_rows(x: Tensor, K: int, dim: int = 1) -> Tensor:
    """K copies of all rows side by side."""
    return x if K == 1 else torch.cat([x] * K, dim)


def inject(h: Tensor, eps: Tensor, mode: Mode) -> Tensor:
    """z of K samples, ``(T, K·N, H)``: noise of as many rows on the h that they have in common.

    >>> inject(torch.ones(1, 1, 1), torch.tensor([[[1.0], [2.0]]]), "multiplicative").flatten()
    tensor([2., 3.])
    """
    T, N, size = h.shape
    apart = eps.view(T, -1, N, size)
    return functional.inject(h.unsqueeze(1), apart, mode).flatten(1, 2)
