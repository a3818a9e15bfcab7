"""The general dropout LSTM of the paper: masks on the eight products inside the gates."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from noisin._util import arguments, checks
from noisin.errors import InvalidValue
from noisin.noise.sampling import Stochastic
from noisin.recurrent import drop_ins, kernels
from noisin.recurrent.cell import CELLS
from noisin.recurrent.functional import Mode, State, Weights
from noisin.recurrent.kernels.plan import cached
from noisin.recurrent.windows import StepInput, WholeWindow

GATES = 4  # input, forget, cell, output: torch's order


def check_rate(name: str, p: float) -> None:
    """Raise unless ``p`` is a probability below one."""
    if isinstance(p, bool) or not isinstance(p, float | int) or not 0 <= p < 1:
        raise InvalidValue(
            f"{name} is a probability and must lie in [0, 1), got {p!r}. Use 0 to turn it off."
        )


class Masks(NamedTuple):
    """Scaled masks (0 or ``1/(1 - p)``) for the products with x and with h; None drops nothing.

    Their shape is ``(..., 4, size)``, or ``(..., 1, size)`` where the gates share one.
    """

    x: Tensor | None
    h: Tensor | None


class DropoutLSTMCell(Stochastic, nn.LSTMCell):
    r"""``torch.nn.LSTMCell`` with dropout on the products ``W_x x`` and ``W_h h`` of each gate.

    The paper's general form, for each gate g of i, f, c, o,

    .. math:: W_{xg} x \odot \epsilon^{xg} + W_{hg} h \odot \epsilon^{hg}.

    Masks are scaled to mean one, and fresh at every step or, if ``locked``, constant over a window
    of :func:`noisin.unroll`. Because of the nonlinearities that follow, this is *biased*: it does
    not preserve the LSTM on average. The parameters are torch's.

    Args:
        input_size, hidden_size, bias, device, dtype: torch's.
        p_x: the drop rate of the products with x.
        p_h: the drop rate of the products with h.
        site: ``"after"``, the paper's: the mask is on the product, ``(W x) * m``; or ``"before"``,
            Zaremba's: it is on the vector, ``W (x * m)``.
        shared: whether the four gates share one mask, or (the paper) each has its own.
        locked: one mask for all steps of a window, or (the paper) a fresh one per step.
        generator: the random stream to draw from; None is torch's global one.

    Zaremba's dropout is ``site="before", shared=True, p_h=0``. The paper calls it the special case
    of its form with ``p_h = 0``, which is true only up to the site. The variational LSTM of Gal and
    Ghahramani (2016) is ``site="before", locked=True``, with a mask per gate or a shared one.

    >>> cell = DropoutLSTMCell(2, 3, p_x=0.5, p_h=0.4)
    >>> h, c = cell(torch.zeros(1, 2))
    >>> h.shape
    torch.Size([1, 3])
    """

    def __init__(
        self,
        *args: Any,
        p_x: float = 0.0,
        p_h: float = 0.0,
        site: Literal["before", "after"] = "after",
        shared: bool = False,
        locked: bool = False,
        generator: Generator | None = None,
        **kwargs: Any,
    ) -> None:
        drop_ins.torch_arguments(type(self).__name__, drop_ins.CELL_ARGUMENTS, args, kwargs)
        super().__init__(*args, **kwargs)
        check_rate("DropoutLSTMCell: p_x", p_x)
        check_rate("DropoutLSTMCell: p_h", p_h)
        checks.one_of("DropoutLSTMCell: site", site, ("before", "after"))
        checks.one_of("DropoutLSTMCell: shared", shared, (True, False))
        checks.one_of("DropoutLSTMCell: locked", locked, (True, False))
        checks.require_generator("DropoutLSTMCell", generator)
        self.p_x = p_x
        self.p_h = p_h
        self.site = site
        self.shared = shared
        self.locked = locked
        self.generator = generator

    @property
    def acts(self) -> bool:
        """Whether anything is dropped at present."""
        return self.training and (self.p_x > 0 or self.p_h > 0)

    def step_inputs(self, x: Tensor) -> Sequence[Any]:
        """The steps of a window; if locked, with its masks and the products with x."""
        if not self.training or not self.locked:
            return x.unbind(0)
        masks = self.sample_masks(x[0])
        products = self._product(x, self.weight_ih, self.bias_ih, masks.x)
        return [StepInput(product, masks.h, t=t) for t, product in enumerate(products.unbind(0))]

    def at_once(self, x: Tensor) -> WholeWindow | None:
        """All steps of a window with locked masks on x and h, by the kernels."""
        fits = x.dim() == 3 and x.numel() > 0 and type(self).forward is DropoutLSTMCell.forward
        if not (fits and self.training and self.locked and self.site == "before"):
            return None
        return partial(self._run, x, self.sample_masks(x[0]))

    def _run(
        self, x: Tensor, masks: Masks, state: Any, eps: Tensor, mode: Mode
    ) -> tuple[Tensor, State]:
        """The steps of a window with these masks on what the gates read."""
        T, N, _ = x.shape
        x_mask, mask = (None if held is None else held.flatten(1) for held in masks)
        if self.shared and x_mask is not None:
            x, x_mask = x * x_mask, None
        weights = Weights(self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        z, state = kernels.run(
            cached(CELLS["lstm"], mode, (N,) * T), x.flatten(0, 1), eps.flatten(0, 1),
            self._state(x[0], state), weights, mask, x_mask=x_mask,
        )  # fmt: skip
        return z.view(T, N, -1), state

    def forward(
        self,
        x: Tensor | StepInput,
        state: tuple[Tensor, Tensor] | None = None,
        *,
        masks: Masks | None = None,
    ) -> tuple[Tensor, Tensor]:
        """One step. ``masks`` are the caller's, applied whenever given, in eval() too."""
        if isinstance(x, StepInput):
            h, c = self._state(x.x[..., 0, :], state)
            return self._gated(x.x, h, c, x.read)
        drop_ins.cell_step(self, x, *drop_ins.torch_cell(self, x, state))
        if masks is None and not self.training:
            return super().forward(x, state)
        h, c = self._state(x, state)
        if masks is None:
            masks = self.sample_masks(x)
        else:
            self._check_masks(masks, x)
        product = self._product(x, self.weight_ih, self.bias_ih, masks.x)
        return self._gated(product, h, c, masks.h)

    def _state(self, x: Tensor, state: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor]:
        shape = (*x.shape[:-1], self.hidden_size)
        if state is None:
            zeros = x.new_zeros(shape)
            return zeros, zeros
        h, c = drop_ins.torch_cell(self, x, state)
        drop_ins.state_shapes("DropoutLSTMCell", shape, h, c)
        return h, c

    def _gated(
        self, product: Tensor, h: Tensor, c: Tensor, mask: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """The new state, from the masked product with x."""
        product = product + self._product(h, self.weight_hh, self.bias_hh, mask)
        i, f, g, o = product.unbind(-2)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        return o.sigmoid() * c.tanh(), c

    def sample_masks(self, x: Tensor) -> Masks:
        """Fresh masks for one step."""
        drop_ins.cell_step(self, x)
        gates = 1 if self.shared else GATES
        x_mask, h_mask = (
            # Drawn with the rows in dimension -2, as for all that processes may share.
            self._mask(p, (gates, *x.shape[:-1], size), x, name=name).movedim(0, -2) if p else None
            for name, size, p in zip("xh", self._mask_sizes, (self.p_x, self.p_h), strict=True)
        )
        return Masks(x_mask, h_mask)

    @property
    def _mask_sizes(self) -> tuple[int, int]:
        return (
            self.hidden_size if self.site == "after" else self.input_size,
            self.hidden_size,
        )

    def _check_masks(self, masks: Masks, x: Tensor) -> None:
        name = "DropoutLSTMCell"
        arguments.instance(f"{name}: masks", masks, Masks, "Draw them with cell.sample_masks(x).")
        for what, mask, size in zip(("x", "h"), masks, self._mask_sizes, strict=True):
            if mask is None:
                continue
            checks.require_real(f"{name}: masks", **{what: mask})
            checks.require_one_kind(f"{name}: masks", **{what: mask}, input=x)
            expected = [(*x.shape[:-1], gates, size) for gates in (GATES, 1)]
            if mask.shape not in expected:
                raise InvalidValue(
                    f"{name}: expected a mask of {what} of shape {expected[0]}, or {expected[1]} "
                    f"where the gates share one, got {tuple(mask.shape)}."
                )

    def _product(
        self, v: Tensor, weight: Tensor, bias: Tensor | None, mask: Tensor | None
    ) -> Tensor:
        """``W v`` of the four gates, ``(..., 4, H)``, masked, plus the bias."""
        if mask is None or self.site == "after":
            product = F.linear(v, weight).view(*v.shape[:-1], GATES, self.hidden_size)
            product = product if mask is None else product * mask
        elif mask.shape[-2] == 1:
            product = F.linear(v * mask.squeeze(-2), weight).view(*v.shape[:-1], GATES, -1)
        else:
            gates = zip(mask.unbind(-2), weight.chunk(GATES), strict=True)
            product = torch.stack([F.linear(v * own, w) for own, w in gates], -2)
        return product if bias is None else product + bias.view(GATES, self.hidden_size)

    def extra_repr(self) -> str:
        """Torch's own line and the dropout."""
        return (
            f"{super().extra_repr()}, p_x={self.p_x}, p_h={self.p_h}, site={self.site!r}, "
            f"shared={self.shared}, locked={self.locked}"
        )
