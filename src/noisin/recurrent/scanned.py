r"""Affine cells as layers that are solved for all steps at once, with noise: minGRU and minLSTM.

A cell is affine if its coefficients depend on the input alone: ``h_t = a(x_t) h_{t-1} + b(x_t)``.
It defines a method ``coefficients(x) -> (a, b)``, elementwise, for the inputs of one step or of
all. :class:`Scanned` makes a layer of any such cell by :func:`noisin.scan`, where
:class:`~noisin.Unrolled` would call it step by step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, get_args

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from noisin._util import arguments, checks, torch_state
from noisin.errors import InvalidType, InvalidValue
from noisin.noise import Noise
from noisin.recurrent import drop_ins, scans
from noisin.recurrent.functional import Mode, Share
from noisin.recurrent.injection import Injected, Injection
from noisin.recurrent.scans import ScanSite


class Coefficients(NamedTuple):
    """Of ``h = a h_prev + b``; what an affine cell takes in place of ``x_t``."""

    a: Tensor
    b: Tensor


class AffineCell(nn.Module):
    """A cell ``h = a h_prev + b`` whose a and b are functions of the input alone.

    A subclass defines :meth:`gates`, a and b from the products of the input with ``slots``
    matrices. Called as ``(x, state) -> state`` it takes one step.

    Args:
        input_size, hidden_size: the sizes.
        bias: whether the products have biases.
    """

    slots: ClassVar[int]

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True) -> None:
        super().__init__()
        name = type(self).__name__
        self.input_size = arguments.whole(f"{name}: input_size", input_size)
        self.hidden_size = arguments.whole(f"{name}: hidden_size", hidden_size)
        arguments.boolean(f"{name}: bias", bias)
        rows = self.slots * hidden_size
        self.weight_ih = nn.Parameter(torch.empty(rows, input_size))
        self.bias = nn.Parameter(torch.empty(rows)) if bias else None
        self.reset_parameters()

    def reset_parameters(self, generator: Generator | None = None) -> None:
        """Weights uniform on ±1/√H, biases zero."""
        bound = self.hidden_size**-0.5
        with torch.no_grad():
            self.weight_ih.uniform_(-bound, bound, generator=generator)
            if self.bias is not None:
                self.bias.zero_()

    def gates(self, *products: Tensor) -> Coefficients:
        """a and b, from the products of the input with each matrix."""
        raise NotImplementedError

    def coefficients(self, x: Tensor) -> Coefficients:
        """a and b of one step, ``(N, F)``, or of all, ``(T, N, F)``."""
        checks.require_tensors(type(self).__name__, x=x)
        drop_ins.cell_step(self, x[(0,) * (x.dim() - 2)])
        return self.gates(*F.linear(x, self.weight_ih, self.bias).chunk(self.slots, dim=-1))

    def step_inputs(self, x: Tensor) -> Sequence[Coefficients]:
        """The coefficients of each step of a window."""
        return [Coefficients(*step) for step in zip(*self.coefficients(x), strict=True)]

    def forward(self, x: Tensor | Coefficients, state: Tensor | None = None) -> Tensor:
        """One step; of a window, x is what :meth:`step_inputs` returned for it."""
        a, b = x if isinstance(x, Coefficients) else self.coefficients(x)
        if state is None:
            return b
        return a * carried(type(self).__name__, state, b) + b

    def extra_repr(self) -> str:
        """The sizes."""
        return f"{self.input_size}, {self.hidden_size}" + (
            "" if self.bias is not None else ", bias=False"
        )


class MinGRUCell(AffineCell):
    """The minimal GRU of Feng et al. (2024), *Were RNNs All We Needed?*

    With an input gate ``i = σ(W_i x)`` and ``n = W_n x``, ``h = (1 - i) h_prev + i n``. The rows of
    ``weight_ih`` are those of i and n.
    """

    slots = 2

    def gates(self, *products: Tensor) -> Coefficients:
        """``a = 1 - i``, ``b = i n``."""
        i, n = products
        return Coefficients((-i).sigmoid(), i.sigmoid() * n)


class MinLSTMCell(AffineCell):
    """The minimal LSTM of Feng et al. (2024), whose gates are normalised.

    With ``i = σ(W_i x)``, ``f = σ(W_f x)`` and ``n = W_n x``,
    ``h = f/(f + i) h_prev + i/(f + i) n``. The rows of ``weight_ih`` are those of i, f and n.
    """

    slots = 3

    def gates(self, *products: Tensor) -> Coefficients:
        """``a = f/(f + i)``, ``b = i/(f + i) n``."""
        i, f, n = products
        # σ of the logarithm of f/i: no quotient of two gates that are both zero.
        odds = F.logsigmoid(f) - F.logsigmoid(i)
        return Coefficients(odds.sigmoid(), (-odds).sigmoid() * n)


def carried(name: str, state: Any, like: Tensor) -> Tensor:
    """A caller's state in the dtype of the coefficients of one step, or raise."""
    (h,) = checks.state_parts(name, state, 1)
    drop_ins.state_shapes(name, tuple(like.shape), h)
    checks.require_one_device(name, coefficients=like, state=h)
    if h.dtype != like.dtype and not torch_state.autocasting():
        raise InvalidType(
            f"{name}: expected a state of {like.dtype}, as the coefficients, got {h.dtype}. "
            f"Convert it: state.to({like.dtype})."
        )
    return h.to(like.dtype)


class Scanned(Injected):
    """An affine cell as a layer, ``(T, N, F), state -> (T, N, H), state``, with noise.

    Args:
        cell: a module with a method ``coefficients(x) -> (a, b)`` for the inputs of all steps.
        noise: a noise, or None.
        mode: ``"multiplicative"`` or ``"additive"``.
        site: ``"increment"``, ``"output"`` or ``"state"``: where the noise is, as in
            :func:`noisin.scan`.
        share: a fresh draw per ``"step"``, or one per ``"sequence"``.
        generator: the random stream to draw from; None is torch's global one.

    The state that is returned is the one that the recurrence carries on; at ``"output"`` it is
    clean.

    >>> from noisin import noise
    >>> layer = Scanned(MinGRUCell(2, 3), noise.Gaussian(0.5))
    >>> z, z_n = layer(torch.zeros(5, 1, 2))
    >>> z.shape, torch.equal(z[-1], z_n)
    (torch.Size([5, 1, 3]), True)
    """

    _sites = get_args(ScanSite)

    def __init__(
        self,
        cell: nn.Module,
        noise: Noise | None = None,
        *,
        mode: Mode = "multiplicative",
        site: ScanSite = "increment",
        share: Share = "step",
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        if isinstance(cell, type) or not is_affine(cell):
            raise InvalidType(
                f"{name}: expected a cell with a method coefficients(x) -> (a, b), such as "
                f"noisin.MinGRUCell(16, 16), got {cell!r:.60}. Other cells run step by step: "
                f"noisin.Unrolled(cell)."
            )
        feedback = site != "output"
        self._configure(
            Injection(
                noise, mode, feedback, share=share, site=site, generator=generator, owner=name
            )
        )
        self.cell = cell

    @classmethod
    def of(cls, cell: nn.Module, injection: Injection) -> Scanned:
        """The layer of a cell in a model whose settings are those of all kinds of cells.

        Their default site, ``"read"``, is the increment, or the output if nothing is fed back.
        """
        site = injection.site
        if site == "read":
            site = "increment" if injection.feedback else "output"
        elif not injection.feedback and site != "output":
            raise InvalidValue(
                f"{injection.owner}: noise at site={site!r} of an affine cell is fed back, got "
                f"feedback=False. Use site='output', or leave feedback out."
            )
        layer = cls(cell)
        layer._configure(replace(injection, site=site, feedback=site != "output"))
        return layer

    @property
    def site(self) -> ScanSite:
        """Where the noise is."""
        site: ScanSite = self.injection.site  # type: ignore[assignment]
        return site

    @site.setter
    def site(self, site: ScanSite) -> None:
        self._configure(replace(self.injection, site=site, feedback=site != "output"))

    def _require(self, injection: Injection) -> None:
        super()._require(injection)
        if injection.feedback != (injection.site != "output"):
            raise InvalidValue(
                f"{injection.owner}: feedback follows from the site: noise is fed back at "
                f"'increment' and 'state', and not at 'output'. Change the site."
            )

    def _noise_acts(self) -> bool:
        return super()._noise_acts() and bool(self.injection.places(1))

    def forward(
        self, x: Tensor, state: Tensor | None = None, *, eps: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """All z and the state carried on; eps, ``(T, N, H)``, is the caller's own noise."""
        if drop_ins.is_symbolic(x, state):
            symbolic: tuple[Tensor, Tensor] = drop_ins.symbolic_call(self, x, state, eps=eps)
            return symbolic
        name = type(self).__name__
        drop_ins.steps_input(name, x)
        a, b = torch.broadcast_tensors(*self.cell.coefficients(x))  # type: ignore[operator, no-untyped-call]
        h0 = None if state is None else carried(name, state, b[0])
        variance = None
        if eps is not None:
            self._check_given(eps, b)
            eps = eps.to(b)
        elif self._noise_acts():
            eps, variance = self._drawn(b), self.noise.variance  # type: ignore[union-attr]
        if eps is not None and self.site == "state" and self.noise_mode == "multiplicative":
            scans.warn_if_growing(name, a, eps, variance, stacklevel=5)
        return scans.noisy(a, b, eps, h0, self.site, self.noise_mode)

    def _drawn(self, b: Tensor) -> Tensor:
        assert self.noise is not None and not isinstance(self.noise, tuple)  # noqa: PT018
        if self.share == "step":
            return self._draw(self.noise, b.shape, b)
        return self._draw(self.noise, b.shape[1:], b).expand(b.shape)

    def _check_given(self, eps: Tensor, b: Tensor) -> None:
        name = type(self).__name__
        checks.require_noise_tensor(name, eps, b)
        if eps.shape != b.shape:
            raise InvalidValue(
                f"{name}: expected eps of the shape {tuple(b.shape)} of the states, got "
                f"{tuple(eps.shape)}."
            )
        checks.require_finite(name, eps)

    def extra_repr(self) -> str:
        """The noise and its site."""
        shown = f"noise={self.noise}, mode={self.noise_mode!r}, site={self.site!r}"
        return shown if self.share == "step" else f"{shown}, share={self.share!r}"


def is_affine(cell: object) -> bool:
    """Whether a cell, or its class, has coefficients that are known for all steps at once."""
    kind = cell if isinstance(cell, type) else type(cell)
    return issubclass(kind, nn.Module) and callable(getattr(kind, "coefficients", None))


class MinGRU(Scanned):
    """A layer of :class:`MinGRUCell`, with the noise of :class:`Scanned`.

    >>> layer = MinGRU(2, 3)
    >>> z, h_n = layer(torch.zeros(5, 1, 2))
    >>> z.shape
    torch.Size([5, 1, 3])
    """

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, **noise: Any) -> None:
        super().__init__(MinGRUCell(input_size, hidden_size, bias), **noise)


class MinLSTM(Scanned):
    """A layer of :class:`MinLSTMCell`, with the noise of :class:`Scanned`."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, **noise: Any) -> None:
        super().__init__(MinLSTMCell(input_size, hidden_size, bias), **noise)
