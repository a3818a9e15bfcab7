"""The batch-normalised LSTM (Cooijmans et al., 2017), with statistics of steps or of all steps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _NormBase

from noisin._util import arguments, checks, torch_state
from noisin.errors import InvalidValue, Unsupported
from noisin.recurrent import drop_ins
from noisin.recurrent.functional import State, States
from noisin.recurrent.windows import StepInput
from noisin.regularizers.windowed import WindowCell

FORGET_BIAS = 1.0


@contextmanager
def fixed_statistics(model: nn.Module) -> Iterator[None]:
    """Context manager: normalisations use their running averages in train() too, and keep them.

    For passes in train() on data that are not for training: all of torch's and ours in ``model``.
    """
    ours = [m for m in model.modules() if isinstance(m, BatchNormLSTMCell) and not m._fixed]
    torchs = [m for m in model.modules() if isinstance(m, _NormBase) and m.training]
    try:
        for cell in ours:
            cell._fixed = True
        for module in torchs:
            module.training = False
        yield
    finally:
        for cell in ours:
            cell._fixed = False
        for module in torchs:
            module.training = True


class BatchNormLSTMCell(WindowCell):
    r"""An LSTM with batch normalisation of both products and of the memory.

    .. math::

        (i, f, g, o) &= BN_t(W x; \gamma_x) + BN_t(U h; \gamma_h) + b, \\
        c_t &= \sigma(f) \odot c_{t-1} + \sigma(i) \odot \tanh(g), \\
        h_t &= \sigma(o) \odot \tanh(BN_t(c_t; \gamma_c, \beta_c)).

    While training, means and variances are those of the rows of the batch at this step. Running
    averages of them are what ``eval()`` uses. By default all steps share them, as is right where a
    state is carried from window to window and a step has no number of its own, as in text.

    With ``t_max`` above 1, each of the first ``t_max - 1`` steps of a sequence has averages of its
    own, and later steps share the last ones. (In Cooijmans et al., *Recurrent Batch Normalization*,
    ICLR 2017, sequences begin at the first step.) The state is then ``(h, c, t)``, with the number
    t of steps since the state was None or a pair (h, c). So a score does not depend on how a
    sequence is cut into windows. Steps after the last one that was trained use the averages of that
    one.

    Args:
        input_size, hidden_size: the sizes.
        t_max: the number of averages: 1 where the state is carried through a text.
        momentum: the share of a new batch in the running averages.
        eps: added to the variances.
        options: ``p_h``, ``locked`` and ``generator`` of
            :class:`~noisin.regularizers.windowed.WindowCell`.

    Before training, gains are 0.1, the bias of f is 1, and all other biases are 0.

    >>> cell = BatchNormLSTMCell(2, 3)
    >>> h, c = cell(torch.randn(4, 2))
    >>> h.shape
    torch.Size([4, 3])
    """

    gain = 0.1
    mean_x: Tensor
    variance_x: Tensor
    _fixed: bool = False  # see fixed_statistics

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        *,
        t_max: int = 1,
        momentum: float = 0.05,
        eps: float = 1e-5,
        **options: Any,
    ) -> None:
        super().__init__(input_size, hidden_size, **options)
        name = type(self).__name__
        self.t_max = arguments.whole(f"{name}: t_max", t_max)
        self.momentum = arguments.finite(f"{name}: momentum", momentum, above=0)
        self.eps = arguments.finite(f"{name}: eps", eps, above=0)
        if momentum > 1:
            raise InvalidValue(f"{name}: momentum must be 1 or less, got {momentum!r}.")
        self._gates(4)
        for place, slots in (("x", 4), ("h", 4), ("c", 1)):
            size = slots * hidden_size
            setattr(self, f"gain_{place}", nn.Parameter(torch.empty(size)))
            self.register_buffer(f"mean_{place}", torch.zeros(t_max, size))
            self.register_buffer(f"variance_{place}", torch.ones(t_max, size))
        self.shift_c = nn.Parameter(torch.empty(hidden_size))
        self.reset_parameters()

    def _reset_biases(self) -> None:
        H = self.hidden_size
        self.bias[H : 2 * H].fill_(FORGET_BIAS)

    @property
    def parts(self) -> int:
        """The number of tensors in its state: h, c and, where steps are counted, their number."""
        return 2 + (self.t_max > 1)

    def project(self, x: Tensor) -> Tensor:
        """The product with x, without a bias, which a normalisation would remove."""
        return F.linear(x, self.weight_ih)

    @property
    def _of_batch(self) -> bool:
        """Whether it normalises by the statistics of the batch at present."""
        return self.training and not self._fixed

    def step_inputs(self, x: Tensor) -> Sequence[StepInput]:
        """Products and masks of a window, if its rows can be normalised."""
        if self._of_batch:
            self._require_rows(x)
        last = self._last()
        return [step._replace(last=last) for step in super().step_inputs(x)]

    def _last(self) -> int:
        """The last step with statistics of its own: in ``eval()``, the last that was trained."""
        if self._of_batch or self.t_max == 1:
            return self.t_max - 1
        trained = (self.mean_x.ne(0) | self.variance_x.ne(1)).any(1).nonzero()
        return int(trained.max()) if len(trained) else 0

    def _require_rows(self, x: Tensor) -> None:
        if self.shard is not None:
            raise Unsupported(
                "BatchNormLSTMCell: processes that share a batch would each normalise by the "
                "statistics of their own rows, and train another model than one process does. "
                "Train in one process, or use cell = 'layer-norm-lstm'."
            )
        if x.dim() < 3 or x.shape[1] < 2:
            raise InvalidValue(
                f"BatchNormLSTMCell: statistics of a batch need 2 rows or more while training, got "
                f"an input of shape {tuple(x.shape)}. Use a larger batch, or eval()."
            )

    def transition(self, x: StepInput, read: Tensor, state: States) -> States:
        """One step."""
        _, c, *steps = state
        k = min(x.last, *(int(t.max()) for t in steps if t.numel())) if steps else 0
        gates = self._normalized("x", x.x, k) + self.bias
        gates = gates + self._normalized("h", F.linear(read, self.weight_hh), k)
        i, f, g, o = gates.chunk(4, dim=-1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * self._normalized("c", c, k, self.shift_c).tanh()
        return h, c, *(t + 1 for t in steps)

    def _parts(self, x: Tensor, state: State) -> States:
        """The tensors of a state, with the number of steps since it began where it matters."""
        if self.parts == 2:
            return super()._parts(x, state)
        counted = isinstance(state, tuple | list) and len(state) == self.parts
        h, c = super()._parts(x, state[:2] if counted else state)
        shape = (*h.shape[:-1], 1)
        if not counted:
            return h, c, torch.zeros(shape, dtype=torch.long, device=h.device)
        checks.require_tensors(type(self).__name__, t=state[2])
        drop_ins.state_shapes(type(self).__name__, shape, state[2])
        return h, c, state[2]

    def _normalized(self, place: str, v: Tensor, k: int, shift: Tensor | None = None) -> Tensor:
        mean, variance = getattr(self, f"mean_{place}")[k], getattr(self, f"variance_{place}")[k]
        # Gradient checkpointing computes a step twice, and must count its statistics once.
        momentum = 0.0 if torch_state.in_backward() else self.momentum
        normal = F.batch_norm(
            v.reshape(-1, v.shape[-1]), mean, variance, getattr(self, f"gain_{place}"), shift,
            self._of_batch, momentum, self.eps,
        )  # fmt: skip
        return normal.view_as(v)

    def extra_repr(self) -> str:
        """The sizes, the statistics and the recurrent dropout."""
        return f"{super().extra_repr()}, t_max={self.t_max}, momentum={self.momentum}"
