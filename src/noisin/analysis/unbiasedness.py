"""Is noise unbiased? Weak and strong unbiasedness of any noisy or dropped-out module, by test.

Many rows run on one input, each with its own noise. With z_t what the module emits:

- **strong** unbiasedness, ``E[z_t] = h_t``: the mean over rows is what the clean module emits;
- **weak** unbiasedness, ``E[z_t | z_{t-1}] = f_W(x_{t-1}, z_{t-1})``: the innovations
  ``r_t = z_t - f_W(x_{t-1}, z_{t-1})`` have mean zero and, given the past, still do, so that
  ``E[r_t g(r_{t-1})] = 0`` too, tested for the sign g. It is a statement about one layer, given
  that layer's input, and is tested for every noisy layer of a stack.

Here f_W is the *clean* RNN, stepped from the noisy states that the module emitted, and shares no
code with the injection (:mod:`noisin.analysis.trajectories`).

Each is a t-test per step and unit, at a level corrected for their number. A test proves nothing
unbiased: a bias that is small against its standard error goes unseen, and so does a dependence on
more than the sign of the last innovation. The result says how large a bias would have been found.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist

import torch
from torch import Tensor, nn

from noisin._util import arguments, checks
from noisin.analysis.trajectories import Kind, Runner, Trajectory
from noisin.errors import InvalidValue
from noisin.recurrent.injection import as_training
from noisin.recurrent.reach import buffers_kept


@dataclass(frozen=True)
class Unbiasedness:
    """The t-statistics of both conditions, both ``(T, H)``, and the conclusion.

    Attributes:
        strong_t: of ``E[z_t] - h_t``.
        weak_t: of ``E[r_t]`` and ``E[r_t g(r_{t-1})]``: of both, and of all noisy layers, the
            largest in size.
        threshold: the size beyond which one of them shows a bias.
        stderr: the standard error of ``E[z_t]``; a bias far below it goes unseen.
        power: the probability with which ``smallest_bias`` is found.
    """

    strong_t: Tensor
    weak_t: Tensor
    threshold: float
    stderr: Tensor
    power: float = 0.99

    @property
    def strong(self) -> bool:
        """Whether no evidence for ``E[z_t] ≠ h_t`` was found."""
        return bool(self.strong_t.abs().max() < self.threshold)

    @property
    def weak(self) -> bool:
        """Whether no evidence for ``E[z_t | z_{t-1}] ≠ f_W(x_{t-1}, z_{t-1})`` was found."""
        return bool(self.weak_t.abs().max() < self.threshold)

    @property
    def smallest_bias(self) -> float:
        """The smallest ``|E[z_t] - h_t|`` that is found with probability ``power``, in any unit."""
        return (self.threshold + NormalDist().inv_cdf(self.power)) * self.stderr.max().item()

    @property
    def verdict(self) -> str:
        """``"no bias found"``, ``"no weak bias found"`` (but a strong one) or ``"biased"``."""
        if self.strong:
            return "no bias found"
        return "no weak bias found" if self.weak else "biased"

    def __str__(self) -> str:
        sizes = (self.weak_t.abs().max().item(), self.strong_t.abs().max().item())
        at = "" if self.verdict == "biased" else " at this power"
        return (
            f"{self.verdict}{at}: largest |t| {sizes[0]:.1f} weak, {sizes[1]:.1f} strong, and "
            f"{self.threshold:.1f} would show a bias; one of {self.smallest_bias:.2g} in E[z] is "
            f"found with probability {self.power:g}"
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
            is the one in ``eval()`` with the noise off. Of a stack, every noisy layer must be
            weakly unbiased, and what the last one emits strongly.
        x: one sequence, ``(T, F)``.
        rows: how many times it is run side by side.
        false_alarm: the probability to call an unbiased module biased.
        kind: whether the module is an ``"rnn"`` or a ``"cell"``; unless given, torch's RNNs and
            ours, and :class:`~noisin.Scanned` cells, are the former and all else the latter.

    >>> import noisin
    >>> from noisin import noise
    >>> rnn = noisin.RNN(2, 3, noise=noise.Gaussian(1.0), feedback=False)
    >>> check_unbiased(rnn, torch.randn(4, 2)).verdict
    'no bias found'
    >>> check_unbiased(rnn, torch.randn(4, 2)).smallest_bias < 0.1  # would have been found
    True

    Fed-back noise is weakly unbiased, unless the recurrence is affine:

    >>> layer = noisin.MinGRU(2, 3, noise=noise.Gaussian(0.1), site="state")
    >>> check_unbiased(layer, torch.randn(4, 2)).verdict
    'no bias found'
    """
    runner = Runner(module, kind)
    _check_arguments(x, rows, false_alarm)
    many = x.unsqueeze(1).expand(len(x), rows, x.shape[-1])
    with torch.no_grad(), buffers_kept(module):  # statistics of batches, of this one while it runs
        with as_training(module):
            found = [Trajectory(z.double(), f.double()) for z, f in runner.trajectories(many)]
        with as_training(module, False):
            h = runner.run(x.unsqueeze(1))
    if not all(values.isfinite().all() for values in (h, *(v for each in found for v in each))):
        raise InvalidValue("check_unbiased: the module emitted NaN or infinity.")
    resolution = torch.finfo(h.dtype).eps
    z = found[-1].z
    strong_t, stderr = _t_statistic(z - h.double(), _rounding(z, resolution))
    weak_t = torch.stack([_weak_t(each, runner.bidirectional, resolution) for each in found])
    tests = strong_t.numel() + 2 * weak_t.numel()
    threshold = NormalDist().inv_cdf(1 - false_alarm / (2 * tests))
    return Unbiasedness(strong_t, weak_t.amax(0), threshold, stderr)


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


def _rounding(z: Tensor, resolution: float) -> Tensor:
    """The largest rounding error of the mean of a unit at a step."""
    return 16 * resolution * z.abs().amax(1)


def _t_statistic(samples: Tensor, rounding: Tensor) -> tuple[Tensor, Tensor]:
    """The mean over rows in standard errors; zero where rounding explains it."""
    mean, stderr = samples.mean(1), samples.std(1) / samples.shape[1] ** 0.5
    return torch.where(mean.abs() > rounding, mean / stderr, 0.0), stderr


def _weak_t(found: Trajectory, bidirectional: bool, resolution: float) -> Tensor:
    """The larger absolute value of the two statistics of the innovations."""
    r, rounding = found.z - found.f, _rounding(found.z, resolution)
    t = _t_statistic(r, rounding)[0].abs()
    if len(r) == 1:
        return t
    # The reverse direction has its past at t + 1, and no past at the last step.
    halves = r.chunk(2, dim=-1) if bidirectional else (r,)
    roundings = rounding.chunk(2, dim=-1) if bidirectional else (rounding,)
    lagged = [_lagged_t(halves[0], roundings[0])]
    if bidirectional:
        lagged.append(_lagged_t(halves[1].flip(0), roundings[1].flip(0)).flip(0))
    return torch.maximum(t, torch.cat(lagged, dim=-1))


def _lagged_t(r: Tensor, rounding: Tensor) -> Tensor:
    """Of ``E[r_t g(r_{t-1})]``, and zero for the first step.

    g is ±1, by the side of its mean that the past lies on. A product of the two innovations would
    depend on rows where both are large, of which there are too few if large noise is rare.
    """
    side = torch.where(r > r.mean(1, keepdim=True), 1.0, -1.0)
    t = _t_statistic(r[1:] * side[:-1], rounding[1:])[0].abs()
    return nn.functional.pad(t, (0, 0, 1, 0))
