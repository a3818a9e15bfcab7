"""Torch's stack of recurrent layers, seen from its cell: sizes, weights and the fused kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import _VF, Tensor, nn

from noisin.recurrent import drop_ins
from noisin.recurrent.cell import CellSpec
from noisin.recurrent.functional import States, Weights
from noisin.recurrent.layout import Layout
from noisin.recurrent.passes import Pass


class TorchStack(nn.RNNBase):
    """What a stack of torch's knows of itself, and its kernel for some of its layers."""

    # Not by way of `nn`, where somebody may have put our class in place of torch's.
    _torch_class: ClassVar[type[nn.RNNBase]]
    _torch_arguments: ClassVar[drop_ins.Kinds] = drop_ins.STACK_ARGUMENTS

    @property
    def _cell(self) -> CellSpec:
        raise NotImplementedError

    @property
    def _state_sizes(self) -> tuple[int, ...]:
        return (self._output_size, self.hidden_size)[: len(self._cell.state)]

    def _casts_state(self, layout: Layout, device: torch.device) -> bool:
        """Whether torch's kernel would take the state in the dtype of the products.

        The two differ under autocast only. Fused kernels want all in one dtype; on a CPU most
        cells are composed of single operations, which keep the state as it came.
        """
        fused = self._cell.fused and self.proj_size == 0
        return device.type != "cpu" or (fused and layout.packed is None)

    @property
    def _directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def _output_size(self) -> int:
        return self.proj_size or self.hidden_size

    def _weights(self, run: Pass, k: int) -> Weights:
        w_ih, w_hh, *rest = run.weights[k]
        b_ih, b_hh = rest[:2] if self.bias else (None, None)
        return Weights(w_ih, w_hh, b_ih, b_hh, rest[-1] if self.proj_size else None)

    def _replaced(self, weights: Mapping[str, Tensor] | None) -> Sequence[Sequence[Tensor]]:
        """The weights of each layer and direction, those that are given in place of parameters."""
        if weights is None:
            return self.all_weights
        own = {name: getattr(self, name) for name in self._flat_weights_names}
        drop_ins.given_weights(type(self).__name__, weights, own)
        return [[{**own, **weights}[name] for name in names] for names in self._all_weights]

    def _kernel(
        self, first: int, last: int, x: Tensor, state: States, run: Pass
    ) -> tuple[Tensor, States]:
        """Clean layers, by torch's kernel."""
        D = self._directions
        weights = [w for k in range(first * D, (last + 1) * D) for w in run.weights[k]]
        kernel, count = self._cell.torch_kernel, last - first + 1
        assert kernel is not None
        return self._call_kernel(kernel, x, run.layout, state, weights, self.bias, count)

    def _call_kernel(
        self,
        name: str,
        x: Tensor,
        layout: Layout,
        state: States,
        weights: list[Tensor],
        bias: bool,
        num_layers: int,
    ) -> tuple[Tensor, States]:
        kernel = getattr(_VF, name)
        hx = state if len(state) > 1 else state[0]
        options = (weights, bias, num_layers, self.dropout, self.training, self.bidirectional)
        if layout.packed is None:
            output, *final = kernel(x, hx, *options, False)
        else:
            output, *final = kernel(x, layout.packed.batch_sizes, hx, *options)
        return output, tuple(final)
