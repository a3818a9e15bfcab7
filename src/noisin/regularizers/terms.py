"""Terms: named penalties on the activations of a forward pass, or on the weights."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import torch
from torch import Tensor

from noisin._util import arguments
from noisin.errors import InvalidValue

if TYPE_CHECKING:
    from noisin.data.batch import Batch


@dataclass(frozen=True)
class Trace:
    """The activations of a forward pass.

    Attributes:
        emitted: the outputs of the layers, ``(T, N, H)``, before dropout.
        read: the same after dropout; the last one is the input z of the head.
        head: the head.
        parameters: those of the model by name, each once.
        memory: the memory of the head before the batch.
        encoder: the encoder, such as the embedding of words.
    """

    emitted: tuple[Tensor, ...]
    read: tuple[Tensor, ...]
    head: Any
    parameters: Mapping[str, Tensor] = field(default_factory=dict)
    memory: Any = None
    encoder: Any = None


class Term(Protocol):
    """A named penalty per target. For use in a config, its constructor takes the weight."""

    @property
    def name(self) -> str:
        """The name of the penalty in losses and records."""
        ...

    def __call__(self, trace: Trace, batch: Batch) -> Tensor:
        """The penalty, a scalar."""
        ...


@dataclass(frozen=True)
class _Weighted:
    weight: float

    def __post_init__(self) -> None:
        arguments.finite(f"{type(self).__name__}: weight", self.weight, least=0)


@dataclass(frozen=True)
class ActivationPenalty(_Weighted):
    r"""AR (Merity et al., 2017): ``weight · mean(z²)`` of the input of the head.

    z is the output of the last layer after dropout. The mean is over steps, rows and units.

    >>> import torch
    >>> from noisin.data import Batch
    >>> z = torch.tensor([[[1.0, 3.0]]])
    >>> ActivationPenalty(2.0)(Trace((z,), (z,), None), Batch(z, z))
    tensor(10.)
    """

    name: ClassVar[str] = "ar"

    def __call__(self, trace: Trace, batch: Batch) -> Tensor:
        """The penalty, a scalar."""
        z = trace.read[-1]
        return self.weight * (z if batch.scored is None else z[batch.scored]).square().mean()


@dataclass(frozen=True)
class SlownessPenalty(_Weighted):
    r"""TAR (Merity et al., 2017): ``weight · mean((z_t - z_{t-1})²)`` of the last layer's output.

    z is the output before dropout. The mean is over the T - 1 pairs of steps, rows and units; it is
    zero for batches of a single step.
    """

    name: ClassVar[str] = "tar"

    def __call__(self, trace: Trace, batch: Batch) -> Tensor:
        """The penalty, a scalar."""
        z = trace.emitted[-1]
        steps = z[1:] - z[:-1]
        if batch.scored is not None:
            steps = steps[batch.scored[1:] & batch.scored[:-1]]
        return self.weight * steps.square().mean() if steps.numel() else z.new_zeros(())


@dataclass(frozen=True)
class L1Penalty(_Weighted):
    r"""L1: ``weight · Σ|w|`` over all parameters of the model, biases included.

    >>> import torch
    >>> from noisin.data import Batch
    >>> z, w = torch.zeros(1, 1, 1), torch.tensor([3.0, -4.0])
    >>> L1Penalty(0.5)(Trace((z,), (z,), None, {"w": w}), Batch(z, z))
    tensor(3.5000)
    """

    name: ClassVar[str] = "l1"

    def __call__(self, trace: Trace, batch: Batch) -> Tensor:  # noqa: ARG002
        """The penalty, a scalar."""
        return self.weight * _total(w.abs().sum() for w in _weights(self, trace))


@dataclass(frozen=True)
class L2Penalty(_Weighted):
    r"""L2: ``weight · ½ Σ w²`` over all parameters of the model, biases included.

    Its gradient is ``weight · w``. It is part of the loss, which is a mean per target: it is
    clipped together with the rest of the gradient, and its step is times lr. SGD's
    ``train.weight_decay`` has the same gradient, added after clipping; that of AdamW is not scaled
    by the second moments. Where a published loss is a sum over T steps, divide its weight by T.

    >>> import torch
    >>> from noisin.data import Batch
    >>> z, w = torch.zeros(1, 1, 1), torch.tensor([3.0, -4.0], requires_grad=True)
    >>> penalty = L2Penalty(0.1)(Trace((z,), (z,), None, {"w": w}), Batch(z, z))
    >>> penalty.detach(), torch.autograd.grad(penalty, w)[0]
    (tensor(1.2500), tensor([ 0.3000, -0.4000]))
    """

    name: ClassVar[str] = "l2"

    def __call__(self, trace: Trace, batch: Batch) -> Tensor:  # noqa: ARG002
        """The penalty, a scalar."""
        return self.weight / 2 * _total(w.square().sum() for w in _weights(self, trace))


def _weights(term: _Weighted, trace: Trace) -> list[Tensor]:
    """The parameters of the model, which a trace has where the model has terms."""
    if not trace.parameters:
        raise InvalidValue(
            f"{type(term).__name__}: the trace has no parameters. Give the model this term, or "
            f"pass Trace(..., parameters=dict(model.named_parameters()))."
        )
    return list(trace.parameters.values())


def _total(parts: Iterable[Tensor]) -> Tensor:
    return torch.stack(list(parts)).sum()
