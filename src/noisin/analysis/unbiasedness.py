"""Is noise unbiased? Weak and strong unbiasedness of any noisy or dropped-out module, by test.

Many rows run on one input, each with noise of its own. With z_t what the module emits:

- **strong** unbiasedness, ``E[z_t] = h_t``: the mean over rows is what the clean module emits;
- **weak** unbiasedness, ``E[z_t | z_{t-1}] = f_W(x_{t-1}, z_{t-1})``: the innovations
  ``r_t = z_t - f_W(x_{t-1}, z_{t-1})`` have mean zero and, given the past, still do, so that
  ``E[r_t g(r_{t-1})] = 0`` too, tested for the sign g. It is a statement about one layer, given
  that layer's input.

Each is a t-test per step and unit, at a level corrected for their number. A test finds what it
looks for: a dependence on more than the sign of the last innovation goes unseen.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal

import torch
from torch import Tensor, nn

from noisin import arguments, cells, checks
from noisin.cells import NoisyCell, hidden
from noisin.errors import InvalidValue
from noisin.injection import as_training, noise_off
from noisin.stack import NoisyStack

# What a module emits with noise, (T, K, H), and the clean transition of its noisy past, f_W.
Trajectories = tuple[Tensor, Tensor]
Kind = Literal["rnn", "cell"]


@dataclass(frozen=True)
class Unbiasedness:
    """The t-statistics of both conditions, ``(T, H)`` each, and what follows from them.

    Attributes:
        strong_t: of ``E[z_t] - h_t``.
        weak_t: of ``E[r_t]`` and ``E[r_t g(r_{t-1})]``, the larger in size.
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
        if self.strong:
            return "strongly unbiased"
        return "weakly unbiased" if self.weak else "biased"

    def __str__(self) -> str:
        sizes = (self.weak_t.abs().max().item(), self.strong_t.abs().max().item())
        return (
            f"{self.verdict}: largest |t| {sizes[0]:.1f} weak, {sizes[1]:.1f} strong; "
            f"{self.threshold:.1f} would show a bias"
        )


def check_unbiased(
    module: nn.Module,
    x: Tensor,
    rows: int = 20_000,
    false_alarm: float = 1e-6,
    kind: Kind | None = None,
) -> Unbiasedness:
    """Test a module for weak and strong unbiasedness on one input sequence.

    Args:
        module: an RNN ``(x, state) -> (z, state)``, time first or torch's with batch_first, or a
            cell ``(x, state) -> state``. Noise is on, and dropout as if training; the clean module
            is the one in ``eval()`` with the noise off. Of a stack, the last layer is judged.
        x: one sequence, ``(T, F)``.
        rows: how many times it is run side by side.
        false_alarm: the probability to call an unbiased module biased.
        kind: whether the module is an ``"rnn"`` or a ``"cell"``; unless given, torch's RNNs and
            ours are the former and all else the latter.

    >>> import noisin
    >>> from noisin import noise
    >>> rnn = noisin.RNN(2, 3, noise=noise.Gaussian(1.0), feedback=False)
    >>> check_unbiased(rnn, torch.randn(4, 2)).verdict
    'strongly unbiased'
    """
    runner = _Runner(module, kind)
    _check_arguments(x, rows, false_alarm)
    many = x.unsqueeze(1).expand(len(x), rows, x.shape[-1])
    with torch.no_grad(), as_training(module):
        z, f = _trajectories(runner, many)
    with torch.no_grad(), as_training(module, False):
        h = runner.run(x.unsqueeze(1))
    if not (z.isfinite().all() and f.isfinite().all() and h.isfinite().all()):
        raise InvalidValue("check_unbiased: the module emitted NaN or infinity.")
    resolution = torch.finfo(z.dtype).eps
    z, f, h = z.double(), f.double(), h.double()
    rounding = 16 * resolution * z.abs().amax(1)
    r = z - f
    strong_t, stderr = _t_statistic(z - h, rounding)
    weak_t, _ = _t_statistic(r, rounding)
    if len(x) > 1:
        lagged_t, _ = _t_statistic(_signed_by_the_past(runner, r), rounding[1:])
        weak_t = torch.maximum(weak_t.abs(), nn.functional.pad(lagged_t.abs(), (0, 0, 1, 0)))
    tests = strong_t.numel() + 2 * weak_t.numel()
    threshold = NormalDist().inv_cdf(1 - false_alarm / (2 * tests))
    return Unbiasedness(strong_t, weak_t, threshold, stderr)


def _check_arguments(x: Tensor, rows: int, false_alarm: float) -> None:
    checks.require_tensors("check_unbiased", x=x)
    if x.dim() != 2 or len(x) == 0 or x.dtype not in (torch.float32, torch.float64):
        raise InvalidValue(
            f"check_unbiased: expected one sequence x of shape (T, F) in float32 or float64, got "
            f"{tuple(x.shape)} of {x.dtype}."
        )
    arguments.whole("check_unbiased: rows", rows, 1000)
    if not isinstance(false_alarm, float) or not 0 < false_alarm < 1:
        raise InvalidValue(
            f"check_unbiased: false_alarm is a probability in (0, 1), got {false_alarm!r:.60}."
        )


def _t_statistic(samples: Tensor, rounding: Tensor) -> tuple[Tensor, Tensor]:
    """The mean over rows in standard errors. What rounding can do counts as zero."""
    mean, stderr = samples.mean(1), samples.std(1) / samples.shape[1] ** 0.5
    return torch.where(mean.abs() > rounding, mean / stderr, 0.0), stderr


def _signed_by_the_past(runner: _Runner, r: Tensor) -> Tensor:
    """``r_t g(r_{t-1})``; the reverse direction of a stack has its past at ``t + 1``.

    g is ±1, by the side of its mean that the past lies on. A product of the two innovations would
    hang on rows where both are large, of which a noise of rare events has too few to judge by.
    """
    if not runner.bidirectional:
        return r[1:] * _side(r[:-1])
    forward, backward = r.chunk(2, dim=-1)
    return torch.cat([forward[1:] * _side(forward[:-1]), backward[:-1] * _side(backward[1:])], -1)


def _side(r: Tensor) -> Tensor:
    return torch.where(r > r.mean(1, keepdim=True), 1.0, -1.0)


class _Runner:
    """One face for RNNs and cells: whole sequences and single steps, time first."""

    def __init__(self, module: nn.Module, kind: Kind | None) -> None:
        checks.require_module("check_unbiased", module)
        recurrent = isinstance(module, nn.RNNBase)
        self.module = module
        self.kind = ("rnn" if recurrent else "cell") if kind is None else kind
        checks.one_of("check_unbiased: kind", self.kind, ("rnn", "cell"))
        self.time = 1 if recurrent and module.batch_first else 0
        self.bidirectional = recurrent and bool(module.bidirectional)
        if self.bidirectional and not isinstance(module, NoisyStack):
            raise InvalidValue(
                f"check_unbiased: a bidirectional {type(module).__name__} cannot be run step by "
                f"step. Check one direction, or convert it: noisin.convert(module, noise)."
            )
        if not recurrent:
            checks.require_cell("check_unbiased", module)

    def run(self, x: Tensor, **kwargs: Any) -> Tensor:
        """What the module emits over a sequence, ``(T, N, H)``."""
        if self.kind == "cell":
            return cells.unroll(self.module, x, **kwargs)[0]
        z: Tensor = self.module(x.transpose(0, self.time), **kwargs)[0]
        return z.transpose(0, self.time)

    def step(self, x: Tensor, state: Any) -> tuple[Tensor, Any]:
        """What the module emits in one step, and its state."""
        if self.kind == "cell":
            state = self.module(x, state)
            return hidden(self.module, state), state
        z, state = self.module(x.unsqueeze(self.time), state)
        return z.squeeze(self.time), state


def _trajectories(runner: _Runner, x: Tensor) -> Trajectories:
    module = runner.module
    if isinstance(module, NoisyStack):
        eps = module.sample_eps(x.transpose(0, runner.time))
        return _silenced_trajectories(runner, x, eps, slice(-module._directions, None))
    if isinstance(module, NoisyCell):
        return _silenced_trajectories(runner, x, _noise_of_sequence(module, x), None)
    return _stepped_trajectories(runner, x)


def _silenced_trajectories(
    runner: _Runner, x: Tensor, eps: Tensor, last: slice | None
) -> Trajectories:
    """f_W at step t is what is emitted when the noise of that step alone is zero.

    All else that is random, such as dropout, is replayed: it belongs to f_W.
    """
    stream = torch.get_rng_state()
    z = runner.run(x, eps=eps)
    f = torch.empty_like(z)
    for t in range(len(x)):
        silenced = eps.clone()
        silenced[t if last is None else (last, t)] = 0
        torch.set_rng_state(stream)
        f[t] = runner.run(x, eps=silenced)[t]
    return z, f


def _noise_of_sequence(cell: NoisyCell, x: Tensor) -> Tensor:
    with noise_off(cell):
        h = hidden(cell, cell(x[0], None))
    draws = [cell._drawn(h) for _ in range(1 if cell.share == "sequence" else len(x))]
    return torch.stack(draws).expand(len(x), *h.shape)


def _stepped_trajectories(runner: _Runner, x: Tensor) -> Trajectories:
    """Step by step, each from the same noisy past: once as training, once clean."""
    zs, fs, state = [], [], None
    for x_t in x:
        with as_training(runner.module, False):
            fs.append(runner.step(x_t, state)[0])
        z, state = runner.step(x_t, state)
        zs.append(z)
    return torch.stack(zs), torch.stack(fs)
