r"""Noise-injected ``RNN``, ``LSTM`` and ``GRU``: torch's modules plus noise.

They subclass torch's, take its arguments, have its parameters and load its ``state_dict``. Without
noise, in ``eval()`` or with the noise off, torch's own kernel runs. While training they follow
Algorithm 1 of the paper, ``z_t = f_W(x_{t-1}, z_{t-1}) * (1 + eps_t)``.

Keyword-only arguments, in addition to torch's:

``noise``
    A noise, None, or a sequence with one (or None) per layer.
``mode``
    ``"multiplicative"``, ``z = h * (1 + eps)``, or ``"additive"``, ``z = h + eps``.
``feedback``
    True: the layer's own recurrence reads the noisy z (weak unbiasedness, Algorithm 1), and the
    returned state is noisy. False: it reads the clean h, only what is *emitted* is noisy, and
    torch's kernel computes the states. **The returned h_n is then clean**: a classifier that reads
    h_n sees no noise, and should read the last output instead.
``noisy_layers``
    ``"all"``, ``"last"``, or the numbers of the layers with noise. With ``feedback=False``,
    ``"last"`` is strong unbiasedness, ``E[z_t] = h_t``. Other layers stay clean even when
    ``set_noise`` gives the whole model another noise.
``share``
    A fresh draw per ``"step"`` (the paper) or one per ``"sequence"``. Shared *and* fed back, noise
    is not even weakly unbiased.
``generator``
    The random stream to draw from; None is torch's global one.

Their ``forward`` takes factors on the recurrence as well, which run in the same kernels: other
``weights``, a ``read_mask`` on what the gates read, ``keep`` for zoneout and an ``update_mask`` on
what a memory adds. See :meth:`noisin.recurrent.stack.NoisyStack.forward`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Generator, Tensor, nn

from noisin._util import checks
from noisin.noise import Noise
from noisin.recurrent import drop_ins, functional
from noisin.recurrent.cell import CELLS, CellSpec
from noisin.recurrent.functional import Mode, Share, States
from noisin.recurrent.injection import NoisyLayers, Site, setting, warn_of_growth
from noisin.recurrent.passes import Pass
from noisin.recurrent.signatures import StackForward
from noisin.recurrent.stack import NoisyStack

Device = torch.device | str | int | None


class RNN(NoisyStack, nn.RNN):
    """``torch.nn.RNN`` with noise; ``nonlinearity`` may also be the paper's ``"sigmoid"``.

    Args:
        input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional: as torch's.
        nonlinearity: ``"tanh"``, ``"relu"`` or ``"sigmoid"``.
        device, dtype: as torch's.
        noise: a noise, None, or a sequence with one (or None) per layer.
        mode: ``"multiplicative"``, ``z = h * (1 + eps)``, or ``"additive"``, ``z = h + eps``.
        feedback: whether the recurrence reads the noisy z, or the clean h. **The returned h_n is
            then clean too**: read the last output instead.
        noisy_layers: ``"all"``, ``"last"``, or the numbers of the layers with noise.
        share: a fresh draw per ``"step"``, or one per ``"sequence"``.
        generator: the random stream to draw from; None is torch's global one.

    >>> from noisin import noise
    >>> rnn = RNN(2, 3, nonlinearity="sigmoid", noise=noise.Gaussian(0.1), mode="additive")
    >>> z, z_n = rnn(torch.zeros(5, 1, 2))
    >>> z.shape, torch.equal(z[-1], z_n[0])
    (torch.Size([5, 1, 3]), True)
    """

    _torch_class = nn.RNN
    _torch_arguments = drop_ins.with_nonlinearity(drop_ins.STACK_ARGUMENTS)

    if TYPE_CHECKING:
        __call__: StackForward[Tensor]
        forward: StackForward[Tensor]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        noise: Noise | Sequence[Noise | None] | None = None,
        mode: Mode = "multiplicative",
        feedback: bool = True,
        noisy_layers: NoisyLayers = "all",
        share: Share = "step",
        generator: Generator | None = None,
    ) -> None:
        checks.one_of("RNN: nonlinearity", nonlinearity, tuple(functional.ACTIVATIONS))
        known = "tanh" if nonlinearity == "sigmoid" else nonlinearity  # torch has no sigmoid
        super().__init__(
            input_size, hidden_size, num_layers=num_layers, nonlinearity=known, bias=bias,
            batch_first=batch_first, dropout=dropout, bidirectional=bidirectional,
            device=device, dtype=dtype, noise=noise, mode=mode, feedback=feedback,
            noisy_layers=noisy_layers, share=share, generator=generator,
        )  # fmt: skip
        self.nonlinearity = nonlinearity

    def extra_repr(self) -> str:
        """Torch's own line, the nonlinearity and the noise."""
        return f"{super().extra_repr()}, nonlinearity={self.nonlinearity!r}"

    @property
    def _cell(self) -> CellSpec:
        return CELLS[f"elman-{self.nonlinearity}"]

    def _kernel(
        self, first: int, last: int, x: Tensor, state: States, run: Pass
    ) -> tuple[Tensor, States]:
        """Torch has no sigmoid kernel, but tanh serves: ``σ(a) = (1 + tanh(a/2))/2``.

        With ``h = (1 + u)/2``, u has the weights W/2 and U/4 and the bias ``b/2 + U·1/4``.
        """
        if self.nonlinearity != "sigmoid":
            return NoisyStack._kernel(self, first, last, x, state, run)
        weights = []
        for d in range(self._directions):
            w = self._weights(run, first * self._directions + d)
            b = w.w_hh.sum(dim=1) / 4
            if w.b_ih is not None and w.b_hh is not None:
                b = b + (w.b_ih + w.b_hh) / 2
            weights += [w.w_ih / 2, w.w_hh / 4, b, torch.zeros_like(b)]
        start = (2 * state[0] - 1,)
        u, (u_n,) = self._call_kernel("rnn_tanh", x, run.layout, start, weights, True, 1)
        return (1 + u) / 2, ((1 + u_n) / 2,)


class LSTM(NoisyStack, nn.LSTM):
    """``torch.nn.LSTM`` with noise on the hidden state; the memory cell c stays clean.

    Args:
        input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional: as torch's.
        proj_size, device, dtype: as torch's.
        noise: a noise, None, or a sequence with one (or None) per layer.
        mode: ``"multiplicative"``, ``z = h * (1 + eps)``, or ``"additive"``, ``z = h + eps``.
        feedback: whether the recurrence reads the noisy z, or the clean h. **The returned h_n is
            then clean too**: read the last output instead.
        noisy_layers: ``"all"``, ``"last"``, or the numbers of the layers with noise.
        share: a fresh draw per ``"step"``, or one per ``"sequence"``.
        generator: the random stream to draw from; None is torch's global one.

    >>> from noisin import noise
    >>> lstm = LSTM(2, 3, num_layers=2, noise=noise.Gaussian(1.1))
    >>> x = torch.randn(5, 1, 2)
    >>> torch.equal(lstm(x)[0], lstm(x)[0])
    False
    >>> _ = lstm.eval()
    >>> torch.equal(lstm(x)[0], lstm(x)[0])
    True
    """

    _torch_class = nn.LSTM

    if TYPE_CHECKING:
        __call__: StackForward[tuple[Tensor, Tensor]]
        forward: StackForward[tuple[Tensor, Tensor]]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        noise: Noise | Sequence[Noise | None] | None = None,
        mode: Mode = "multiplicative",
        feedback: bool = True,
        noisy_layers: NoisyLayers = "all",
        share: Share = "step",
        generator: Generator | None = None,
    ) -> None:
        super().__init__(
            input_size, hidden_size, num_layers=num_layers, bias=bias, batch_first=batch_first,
            dropout=dropout, bidirectional=bidirectional, proj_size=proj_size, device=device,
            dtype=dtype, noise=noise, mode=mode, feedback=feedback, noisy_layers=noisy_layers,
            share=share, generator=generator,
        )  # fmt: skip

    @property
    def _cell(self) -> CellSpec:
        return CELLS["lstm"]


class GRU(NoisyStack, nn.GRU):
    """``torch.nn.GRU`` with noise.

    A GRU's h is both its memory and its output. With ``site="read"`` the gates and the output read
    the noisy ``z = h * (1 + eps)`` while the carry stays clean, like the LSTM's c, so that noise
    does not accumulate along it; **the returned state is that carry**. ``site="state"`` is the
    literal equation, ``z = (1 + eps) * ((1 - u) n + u z_prev)``: it can explode, and warns. Without
    feedback the two are the same.

    Args:
        input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional: as torch's.
        device, dtype: as torch's.
        noise: a noise, None, or a sequence with one (or None) per layer.
        mode: ``"multiplicative"``, ``z = h * (1 + eps)``, or ``"additive"``, ``z = h + eps``.
        feedback: whether the recurrence reads the noisy z, or the clean h. **The returned h_n is
            then clean too**: read the last output instead.
        noisy_layers: ``"all"``, ``"last"``, or the numbers of the layers with noise.
        share: a fresh draw per ``"step"``, or one per ``"sequence"``.
        generator: the random stream to draw from; None is torch's global one.
        site: what has the noise: what the gates ``"read"``, or the whole ``"state"``.
    """

    _torch_class = nn.GRU
    site: Site = setting("site")

    if TYPE_CHECKING:
        __call__: StackForward[Tensor]
        forward: StackForward[Tensor]

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        noise: Noise | Sequence[Noise | None] | None = None,
        mode: Mode = "multiplicative",
        feedback: bool = True,
        noisy_layers: NoisyLayers = "all",
        share: Share = "step",
        generator: Generator | None = None,
        site: Site = "read",
    ) -> None:
        super().__init__(
            input_size, hidden_size, num_layers=num_layers, bias=bias, batch_first=batch_first,
            dropout=dropout, bidirectional=bidirectional, device=device, dtype=dtype,
            noise=noise, mode=mode, feedback=feedback, noisy_layers=noisy_layers, share=share,
            generator=generator,
        )  # fmt: skip
        self.site = site
        self._warn_of_risks()

    def _warn_of_risks(self) -> None:
        if self.site == "state":
            warn_of_growth(self, "use site='read', which keeps the carry clean")

    def extra_repr(self) -> str:
        """Torch's own line, the noise and its site."""
        return f"{super().extra_repr()}, site={self.site!r}"

    @property
    def _cell(self) -> CellSpec:
        return CELLS["gru"].at(self.site)
