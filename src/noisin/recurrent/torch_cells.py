"""Noise-injected ``RNNCell``, ``LSTMCell`` and ``GRUCell``: torch's cells plus noise.

They have the same signature, parameters and ``state_dict`` keys as torch's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Generator, Tensor, nn

from noisin._util import checks
from noisin.errors import InvalidValue
from noisin.noise import Noise
from noisin.recurrent import drop_ins, functional
from noisin.recurrent.functional import ACTIVATIONS, Mode, Share, State, Weights
from noisin.recurrent.injection import Injection, Site, setting, warn_of_growth
from noisin.recurrent.noisy_cell import NoisyCell
from noisin.recurrent.signatures import CellForward

Device = torch.device | str | int | None


class _TorchCell(NoisyCell, nn.RNNCellBase):
    """One of torch's cells with noise."""

    # Not by way of `nn`, where somebody may have put our class in place of torch's.
    _torch_class: ClassVar[type[nn.RNNCellBase]]
    _torch_arguments: ClassVar[drop_ins.Kinds] = drop_ins.CELL_ARGUMENTS

    def __init__(
        self,
        *args: Any,
        noise: Noise | None = None,
        mode: Mode = "multiplicative",
        feedback: bool = True,
        share: Share = "step",
        generator: Generator | None = None,
        **kwargs: Any,
    ) -> None:
        name = type(self).__name__
        drop_ins.torch_arguments(name, self._torch_arguments, args, kwargs)
        super().__init__(*args, **kwargs)
        self._configure(
            Injection(noise, mode, feedback, share=share, generator=generator, owner=name)
        )

    def extra_repr(self) -> str:
        """Torch's own line and the noise."""
        return f"{super().extra_repr()}, {self._noise_repr()}"

    @property
    def _weights(self) -> Weights:
        return Weights(self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)


class ElmanCell(nn.RNNCell):
    """``torch.nn.RNNCell``, whose ``nonlinearity`` may also be ``"sigmoid"``."""

    def forward(self, x: Tensor, state: Tensor | None = None) -> Tensor:
        """``h = s(W_x x + W_h h_prev)``."""
        drop_ins.torch_cell(self, x, state)
        if self.nonlinearity != "sigmoid":
            return super().forward(x, state)
        w = Weights(self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        h = x.new_zeros(*x.shape[:-1], self.hidden_size) if state is None else state
        drop_ins.cell_step(self, x, h)
        return functional.elman(w.project(x), (h,), w, "sigmoid")[0]


class RNNCell(_TorchCell, ElmanCell):
    """``torch.nn.RNNCell`` with noise; ``nonlinearity`` may also be ``"sigmoid"``.

    Args:
        input_size, hidden_size, nonlinearity, bias, device, dtype: as torch's. The
            nonlinearity is ``"tanh"``, ``"relu"`` or ``"sigmoid"``.
        noise: a noise, or None.
        mode: ``"multiplicative"``, ``z = h * (1 + eps)``, or ``"additive"``, ``z = h + eps``.
        feedback: whether ``unroll`` carries the noisy z or the clean h to the next step.
        share: a fresh draw per ``"step"`` or one per ``"sequence"``, in ``unroll``.
        generator: the random stream to draw from; None is torch's global one.
    """

    _torch_class = nn.RNNCell
    _torch_arguments = drop_ins.with_nonlinearity(drop_ins.CELL_ARGUMENTS)

    if TYPE_CHECKING:
        __call__: CellForward[Tensor]
        forward: CellForward[Tensor]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        noise: Noise | None = None,
        mode: Mode = "multiplicative",
        feedback: bool = True,
        share: Share = "step",
        generator: Generator | None = None,
    ) -> None:
        super().__init__(
            input_size, hidden_size, bias=bias, nonlinearity=nonlinearity, device=device,
            dtype=dtype, noise=noise, mode=mode, feedback=feedback, share=share,
            generator=generator,
        )  # fmt: skip
        checks.one_of("RNNCell: nonlinearity", self.nonlinearity, tuple(ACTIVATIONS))

    def transition(self, x: Tensor, state: State = None) -> State:
        """``h = s(W_x x + W_h h_prev)``."""
        return ElmanCell.forward(self, x, state)


class LSTMCell(_TorchCell, nn.LSTMCell):
    """``torch.nn.LSTMCell`` with noise on the hidden state; the memory cell c stays clean.

    Args:
        input_size, hidden_size, bias, device, dtype: as torch's.
        noise: a noise, or None.
        mode: ``"multiplicative"``, ``z = h * (1 + eps)``, or ``"additive"``, ``z = h + eps``.
        feedback: whether ``unroll`` carries the noisy z or the clean h to the next step.
        share: a fresh draw per ``"step"`` or one per ``"sequence"``, in ``unroll``.
        generator: the random stream to draw from; None is torch's global one.
    """

    _torch_class = nn.LSTMCell

    if TYPE_CHECKING:
        __call__: CellForward[tuple[Tensor, Tensor]]
        forward: CellForward[tuple[Tensor, Tensor]]  # type: ignore[assignment]  # names differ

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        noise: Noise | None = None,
        mode: Mode = "multiplicative",
        feedback: bool = True,
        share: Share = "step",
        generator: Generator | None = None,
    ) -> None:
        super().__init__(
            input_size, hidden_size, bias=bias, device=device, dtype=dtype, noise=noise,
            mode=mode, feedback=feedback, share=share, generator=generator,
        )  # fmt: skip

    def transition(self, x: Tensor, state: State = None) -> State:
        """Torch's own step."""
        drop_ins.torch_cell(self, x, state)
        return self._torch_class.forward(self, x, state)


class GRUCell(_TorchCell, nn.GRUCell):
    """``torch.nn.GRUCell`` with noise.

    With ``site="state"``, the default, the state is torch's single tensor, and fed-back noise
    multiplies along the carry, which warns. With ``site="read"`` the state is the pair
    ``(z, h)``: gates and output read the noisy z, and the carry h stays clean. A single tensor
    is taken for both.

    Args:
        input_size, hidden_size, bias, device, dtype: as torch's.
        noise: a noise, or None.
        mode: ``"multiplicative"``, ``z = h * (1 + eps)``, or ``"additive"``, ``z = h + eps``.
        feedback: whether ``unroll`` carries the noisy z or the clean h to the next step.
        share: a fresh draw per ``"step"`` or one per ``"sequence"``, in ``unroll``.
        generator: the random stream to draw from; None is torch's global one.
        site: what has the noise: the single ``"state"``, or what the gates ``"read"``.
    """

    _torch_class = nn.GRUCell
    site: Site = setting("site")

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        noise: Noise | None = None,
        mode: Mode = "multiplicative",
        feedback: bool = True,
        share: Share = "step",
        generator: Generator | None = None,
        site: Site = "state",
    ) -> None:
        super().__init__(
            input_size, hidden_size, bias=bias, device=device, dtype=dtype, noise=noise,
            mode=mode, feedback=feedback, share=share, generator=generator,
        )  # fmt: skip
        self.site = site
        self._warn_of_risks()

    def _warn_of_risks(self) -> None:
        if self.site == "state":
            warn_of_growth(self, "use site='read', whose state is a pair")

    def extra_repr(self) -> str:
        """Torch's own line, the noise and its site."""
        return f"{super().extra_repr()}, site={self.site!r}"

    def transition(self, x: Tensor, state: State = None) -> State:
        """Torch's own step, or the one with a separate carry."""
        if self.site == "state":
            drop_ins.torch_cell(self, x, state)
            return self._torch_class.forward(self, x, state)
        checks.require_tensors("GRUCell", x=x)
        if state is None:
            state = x.new_zeros(*x.shape[:-1], self.hidden_size)
        pair = state if isinstance(state, tuple | list) else (state, state)
        if len(pair) != 2:
            raise InvalidValue(
                f"GRUCell: with site='read' a state is a pair (z, h) or one tensor for both, got "
                f"{len(pair)} parts."
            )
        drop_ins.cell_step(self, x, *pair)
        return functional.gru(self._weights.project(x), tuple(pair), self._weights)
