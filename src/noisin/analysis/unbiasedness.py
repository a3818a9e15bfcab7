"""Is noise unbiased? Weak and strong unbiasedness of any noisy or dropped-out module, by test.

Many rows run on one input, each with noise of its own. With z_t what the module emits:

- **strong** unbiasedness, ``E[z_t] = h_t``: the mean over rows is what the clean module emits;
- **weak** unbiasedness, ``E[z_t | z_{t-1}] = f_W(x_{t-1}, z_{t-1})``: the innovations
  ``r_t = z_t - f_W(x_{t-1}, z_{t-1})`` have mean zero and, given the past, still do, so that
  ``E[r_t r_{t-1}] = 0`` too. It is a statement about one layer, given that layer's input.

Each is a t-test per step and unit, at a level corrected for their number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import torch
from torch import Tensor, nn

from noisin import cells
from noisin.cells import NoisyCell, hidden
from noisin.errors import InvalidValue
from noisin.injection import noise_off, noise_on
from noisin.stack import NoisyStack

# What a module emits with noise, (T, K, H), and the clean transition of its noisy past, f_W.
Trajectories = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Unbiasedness:
    """The t-statistics of both conditions, ``(T, H)`` each, and what follows from them.

    Attributes:
        strong_t: of ``E[z_t] - h_t``.
        weak_t: of ``E[r_t]`` and ``E[r_t r_{t-1}]``, the larger in size.
        threshold: the size beyond which one of them shows a bias.
        stderr: the standard error of ``E[z_t]``; a bias far below it goes unseen.
    """

    strong_t: Tensor
    weak_t: Tensor
    threshold: float
    stderr: Tensor

    @property
    def strong(self) -> bool:
        """Whether no sign of ``E[z_t] ≠ h_t`` was found."""
        return bool(self.strong_t.abs().max() < self.threshold)

    @property
    def weak(self) -> bool:
        """Whether no sign of ``E[z_t | z_{t-1}] ≠ f_W(x_{t-1}, z_{t-1})`` was found."""
        return bool(self.weak_t.abs().max() < self.threshold)

    @property
    def verdict(self) -> str:
        """``"strongly unbiased"``, ``"weakly unbiased"`` or ``"biased"``."""
        if not self.weak:
            return "biased"
        return "strongly unbiased" if self.strong else "weakly unbiased"

    def __str__(self) -> str:
        sizes = (self.weak_t.abs().max().item(), self.strong_t.abs().max().item())
        return (
            f"{self.verdict}: largest |t| {sizes[0]:.1f} weak, {sizes[1]:.1f} strong; "
            f"{self.threshold:.1f} would show a bias"
        )


def check_unbiased(
    module: Callable[..., Any], x: Tensor, rows: int = 20_000, false_alarm: float = 1e-6
) -> Unbiasedness:
    """Test a module for weak and strong unbiasedness on one input sequence.

    Args:
        module: an RNN ``(x, state) -> (z, state)``, ours or torch's, or a cell
            ``(x, state) -> state``. Noise is on, and dropout as if training; the clean module is
            the one in ``eval()`` with the noise off. Of a stack, the last layer is judged.
        x: one sequence, ``(T, F)``.
        rows: how many times it is run side by side.
        false_alarm: the probability to call an unbiased module biased.

    >>> import noisin
    >>> from noisin import noise
    >>> rnn = noisin.RNN(2, 3, noise=noise.Gaussian(1.0), feedback=False)
    >>> check_unbiased(rnn, torch.randn(4, 2)).verdict
    'strongly unbiased'
    """
    if x.dim() != 2 or len(x) == 0:
        raise InvalidValue(
            f"check_unbiased: expected one sequence x of shape (T, F), got {tuple(x.shape)}."
        )
    many = x.unsqueeze(1).expand(len(x), rows, x.shape[-1])
    with torch.no_grad(), _training(module):
        z, f = _trajectories(module, many)
    with torch.no_grad(), _training(module, False):
        h = _emitted(module, x.unsqueeze(1))
    r = z - f
    strong_t, stderr = _t_statistic(z - h, like=z)
    weak_t, _ = _t_statistic(r, like=z)
    if len(x) > 1:
        lagged_t, _ = _t_statistic(_lagged_products(module, r), like=z.square())
        weak_t = torch.maximum(weak_t.abs(), nn.functional.pad(lagged_t.abs(), (0, 0, 1, 0)))
    tests = strong_t.numel() + 2 * weak_t.numel()
    threshold = NormalDist().inv_cdf(1 - false_alarm / (2 * tests))
    return Unbiasedness(strong_t, weak_t, threshold, stderr)


def _t_statistic(samples: Tensor, like: Tensor) -> tuple[Tensor, Tensor]:
    """The mean over rows in standard errors. What rounding can do counts as zero."""
    mean, stderr = samples.mean(1), samples.std(1) / samples.shape[1] ** 0.5
    rounding = 64 * torch.finfo(samples.dtype).eps * like.abs().amax()
    return torch.where(mean.abs() > rounding, mean / stderr, 0.0), stderr


def _lagged_products(module: Any, r: Tensor) -> Tensor:
    """``r_t r_{t-1}``; the reverse direction of a stack has its past at ``t + 1``."""
    if not getattr(module, "bidirectional", False):
        return r[1:] * r[:-1]
    forward, backward = r.chunk(2, dim=-1)
    return torch.cat([forward[1:] * forward[:-1], backward[:-1] * backward[1:]], dim=-1)


def _trajectories(module: Any, x: Tensor) -> Trajectories:
    if isinstance(module, NoisyStack):
        return _stack_trajectories(module, x)
    if isinstance(module, NoisyCell):
        return _noisy_cell_trajectories(module, x)
    return _stepped_trajectories(module, x)


def _stack_trajectories(stack: NoisyStack, x: Tensor) -> Trajectories:
    """f_W at step t is what the last layer emits when its noise of that step alone is zero."""
    eps = stack.sample_eps(x)
    z = stack(x, eps=eps)[0]
    last = slice(-stack._directions, None)
    f = torch.empty_like(z)
    for t in range(len(x)):
        silenced = eps.clone()
        silenced[last, t] = 0
        f[t] = stack(x, eps=silenced)[0][t]
    return z, f


def _noisy_cell_trajectories(cell: NoisyCell, x: Tensor) -> Trajectories:
    """As for a stack, with the noise of the whole sequence drawn beforehand."""
    with noise_off(cell):
        clean, _ = cells.unroll(cell, x)
    laws = [cell._drawn(clean[0]) for _ in range(1 if cell.share == "sequence" else len(x))]
    eps = torch.stack(laws).expand_as(clean)
    z, _ = cells.unroll(cell, x, eps=eps)
    f = torch.empty_like(z)
    for t in range(len(x)):
        silenced = eps.clone()
        silenced[t] = 0
        f[t] = cells.unroll(cell, x[: t + 1], eps=silenced[: t + 1])[0][t]
    return z, f


def _stepped_trajectories(module: Any, x: Tensor) -> Trajectories:
    """Step by step, each from the same noisy past: once as training, once clean."""
    zs, fs, state = [], [], None
    for x_t in x:
        with _training(module, False):
            fs.append(_step(module, x_t, state)[0])
        z, state = _step(module, x_t, state)
        zs.append(z)
    return torch.stack(zs), torch.stack(fs)


def _step(module: Any, x: Tensor, state: Any) -> tuple[Tensor, Any]:
    if isinstance(module, nn.RNNBase):
        z, state = module(x.unsqueeze(0), state)
        return z[0], state
    state = module(x, state)
    return hidden(module, state), state


def _emitted(module: Any, x: Tensor) -> Tensor:
    if isinstance(module, nn.RNNBase):
        z: Tensor = module(x)[0]
        return z
    return cells.unroll(module, x)[0]


@contextmanager
def _training(module: Any, on: bool = True) -> Iterator[None]:
    """As training with the noise on, or as evaluating with it off; restored on the way out."""
    if not isinstance(module, nn.Module):
        yield
        return
    before = [(part, part.training) for part in module.modules()]
    try:
        module.train(on)
        with noise_on(module) if on else noise_off(module):
            yield
    finally:
        for part, training in before:
            part.training = training
