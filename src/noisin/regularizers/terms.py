"""Terms: named penalties on the activations of a forward pass, added to the loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from torch import Tensor

from noisin._util import arguments

if TYPE_CHECKING:
    from noisin.data.batch import Batch


@dataclass(frozen=True)
class Trace:
    """The activations of a forward pass.

    Attributes:
        emitted: the outputs of the layers, ``(T, N, H)``, before dropout.
        read: the same after dropout; the last one is the input z of the head.
        head: the head.
        memory: the memory of the head before the batch.
        encoder: the encoder, such as the embedding of words.
    """

    emitted: tuple[Tensor, ...]
    read: tuple[Tensor, ...]
    head: Any
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

    It is zero for batches of a single step.
    """

    name: ClassVar[str] = "tar"

    def __call__(self, trace: Trace, batch: Batch) -> Tensor:
        """The penalty, a scalar."""
        z = trace.emitted[-1]
        steps = z[1:] - z[:-1]
        if batch.scored is not None:
            steps = steps[batch.scored[1:] & batch.scored[:-1]]
        return self.weight * steps.square().mean() if steps.numel() else z.new_zeros(())
