"""The gradients of a segment of few words, without what takes long for few words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from noisin._util import states
from noisin.data import Batch
from noisin.errors import Unsupported
from noisin.models.base import State
from noisin.models.encoders import Words
from noisin.recurrent import kernels
from noisin.training.predictors.base import Reader, Reading, device_of


def read_with_gradients(
    reader: Reader, parameters: Sequence[Tensor], batch: Batch, state: State
) -> tuple[Reading, list[Tensor] | None]:
    """A reading without its graph, and the gradients of the mean nll; None if nothing is scored."""
    on_cpu = device_of(reader.model).type == "cpu"
    with (
        torch.enable_grad(),
        kernels.everywhere() if on_cpu else nullcontext(),
        _recorded(reader.model, parameters) as lookups,
    ):
        log_p, z, state = reader.read(batch, state)
        scored = log_p if batch.scored is None else log_p[batch.scored.to(log_p.device)]
        if scored.numel() and not scored.requires_grad:
            raise Unsupported(
                f"Dynamic: {type(reader.model).__name__}.log_prob has no gradients. Compute it "
                f"without torch.no_grad, or use Clean(model)."
            )
        gradients = _gradients(-scored.mean(), parameters, lookups) if scored.numel() else None
    z = None if z is None else z.detach()
    return Reading(log_p.detach(), z, states.detach(state)), gradients


class _Lookup(NamedTuple):
    """Rows of the k-th parameter that an embedding looked up."""

    k: int
    ids: Tensor
    rows: Tensor  # a leaf of the graph


@contextmanager
def _recorded(model: nn.Module, parameters: Sequence[Tensor]) -> Iterator[list[_Lookup]]:
    """Cut what embeddings look up off the graph, and record it.

    Their gradients differ from zero in few rows. Autograd would return a dense tensor for them, and
    add it to that of V where V shares the weights, into a third one.
    """
    found: list[_Lookup] = []
    places = {id(parameter): k for k, parameter in enumerate(parameters)}

    def record(k: int, _: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        found.append(_Lookup(k, inputs[0], output.detach().requires_grad_()))
        return found[-1].rows

    hooks = [
        module.register_forward_hook(partial(record, places[id(module.weight)]))
        for module in model.modules()
        if _only_looks_up(module) and id(module.weight) in places
    ]
    try:
        yield found
    finally:
        for hook in hooks:
            hook.remove()


def _only_looks_up(module: nn.Module) -> bool:
    """Whether the gradient of an embedding is the sum of those of the rows, as in most cases."""
    if not isinstance(module, nn.Embedding) or type(module) not in (nn.Embedding, Words):
        return False
    return module.padding_idx is None and not module.scale_grad_by_freq


def _gradients(
    loss: Tensor, parameters: Sequence[Tensor], lookups: Sequence[_Lookup]
) -> list[Tensor]:
    leaves = [*parameters, *(lookup.rows for lookup in lookups)]
    found = list(torch.autograd.grad(loss, leaves, materialize_grads=True))
    own = found[: len(parameters)]
    for (k, ids, _), rows in zip(lookups, found[len(parameters) :], strict=True):
        own[k].index_add_(0, ids.flatten(), rows.flatten(0, -2))
    return own
