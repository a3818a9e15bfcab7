r"""Weight noise that is drawn anew at every step (Jim, Giles & Horne, 1996)."""

from __future__ import annotations

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from noisin._util import arguments, checks
from noisin.errors import Unsupported
from noisin.noise import Gaussian
from noisin.noise.sampling import Stochastic
from noisin.recurrent import drop_ins
from noisin.recurrent.cell import CELLS, CellSpec
from noisin.recurrent.cells import ElmanCell
from noisin.recurrent.functional import Mode, State, Weights

_CELLS = (nn.RNNCell, ElmanCell, nn.LSTMCell, nn.GRUCell)


class SynapticNoise(Stochastic):
    r"""One of torch's cells with Gaussian noise on ``W_x`` and ``W_h``, for every row and step.

    A product with noisy weights is Gaussian, so it is drawn instead of the weights, which is the
    local reparametrisation of Kingma et al. (2015):

    .. math:: (W + E) v \sim N(W v, \sigma^2 \|v\|^2), \qquad
        ((W (1 + E)) v)_i \sim N\big((W v)_i, \sigma^2 \textstyle\sum_j (W_{ij} v_j)^2\big),

    independently for each unit, row and step. Its gradient is the mean of that of noisy weights,
    given the products. The noise is not cumulative: each step has that of its own. In ``eval()`` it
    is the cell itself.

    Args:
        cell: torch's ``RNNCell``, ``LSTMCell`` or ``GRUCell``.
        std: the standard deviation of the noise.
        mode: ``"additive"`` or ``"multiplicative"``.
        generator: the random stream to draw from; None is torch's global one.

    >>> import noisin
    >>> cell = SynapticNoise(nn.LSTMCell(2, 3), std=0.1)
    >>> z, (h, c) = noisin.unroll(cell, torch.zeros(5, 1, 2))
    >>> z.shape
    torch.Size([5, 1, 3])
    """

    def __init__(
        self,
        cell: nn.Module,
        std: float,
        mode: Mode = "additive",
        *,
        generator: Generator | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(cell, nn.RNNCellBase) or type(cell) not in _CELLS:
            raise Unsupported(
                f"SynapticNoise: noise on weights at every step is computed from the weights and "
                f"the equations of torch's RNNCell, LSTMCell or GRUCell, got "
                f"{type(cell).__name__}. Pass one of those; other noise and zoneout go around it."
            )
        checks.one_of("SynapticNoise: mode", mode, ("additive", "multiplicative"))
        checks.require_generator("SynapticNoise", generator)
        self.cell = cell
        self.std = arguments.finite("SynapticNoise: std", std, least=0)
        self.mode = mode
        self.generator = generator

    def forward(self, x: Tensor, state: State = None) -> State:
        """One step of the cell with weights of its own for every row."""
        cell = self.cell
        parts = drop_ins.torch_cell(cell, x, state)
        drop_ins.cell_step(cell, x, *parts)
        if not self.training or self.std == 0:
            return cell(x, state)
        spec = _spec(cell)
        if not parts:
            parts = (x.new_zeros(*x.shape[:-1], cell.hidden_size),) * len(spec.state)
        w = _Synapses(self, Weights(cell.weight_ih, cell.weight_hh, cell.bias_ih, cell.bias_hh))
        assert spec.step is not None
        new = spec.step(w.project(x), parts, w)
        return new if len(spec.state) > 1 else new[0]

    def noise_of(self, v: Tensor, weight: Tensor) -> Tensor:
        """The noise of a product ``W v``."""
        if self.mode == "additive":
            # Its gradient at zero is zero.
            spread: Tensor = torch.linalg.vector_norm(v, dim=-1, keepdim=True)
        else:
            variance = F.linear(v.square(), weight.square())
            spread = variance.clamp_min(torch.finfo(variance.dtype).tiny).sqrt()
        shape = (*v.shape[:-1], weight.shape[0])
        return spread * self._draw(Gaussian(self.std), shape, v)

    def extra_repr(self) -> str:
        """The noise."""
        return f"std={self.std}, mode={self.mode!r}"


class _Synapses:
    """The products of a cell with its weights, and their noise: a step's ``Weights``."""

    w_hr = None

    def __init__(self, noise: SynapticNoise, w: Weights) -> None:
        self.noise, self.w = noise, w

    def project(self, x: Tensor) -> Tensor:
        """``W_x x + b``."""
        return self.w.project(x) + self.noise.noise_of(x, self.w.w_ih)

    def recur(self, h: Tensor) -> Tensor:
        """``W_h h + b``."""
        return self.w.recur(h) + self.noise.noise_of(h, self.w.w_hh)


def _spec(cell: nn.RNNCellBase) -> CellSpec:
    """The row of one of torch's cells in the list of cells."""
    if isinstance(cell, nn.RNNCell):
        return CELLS[f"elman-{cell.nonlinearity}"]
    return CELLS["lstm" if isinstance(cell, nn.LSTMCell) else "gru"]
