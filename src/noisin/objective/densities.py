"""The densities of the empirical-Bayes view, in which the noisy states are latent variables."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from noisin._util import arguments, checks, torch_state
from noisin.errors import InvalidType, InvalidValue
from noisin.likelihoods import Likelihood
from noisin.likelihoods.base import require_likelihood
from noisin.noise.family import Family
from noisin.recurrent.cells import NoisyCell, hidden, with_hidden
from noisin.recurrent.functional import Mode


def transition_log_density(z: Tensor, f: Tensor, noise: Family, mode: Mode) -> Tensor:
    """``log p(z_t | z_{t-1}, x_{t-1})``, where ``f = f_W(x_{t-1}, z_{t-1})``; summed over units.

    Additive noise with density phi gives ``Π phi(z - f)``, multiplicative ``Π phi(z/f - 1)/|f|``.
    Multiplicative noise does not change an f of 0, such as a ReLU's: z is then 0 with certainty and
    has no density, which raises an error.

    >>> import torch
    >>> from noisin.noise import Gaussian
    >>> transition_log_density(torch.tensor([1.0]), torch.tensor([1.0]), Gaussian(1.0), "additive")
    tensor(-0.9189)
    """
    checks.one_of("transition_log_density: mode", mode, ("multiplicative", "additive"))
    _check_transition(z, f, noise)
    if mode == "additive":
        return noise.log_prob(z - f).sum(-1)
    if torch_state.values_known(f) and (f == 0).any():
        units = (f == 0).reshape(-1, f.shape[-1]).any(0).nonzero().flatten().tolist()
        shown = ", ".join(map(str, units[:5])) + (", ..." if len(units) > 5 else "")
        raise InvalidValue(
            f"transition_log_density: f is 0 at {int((f == 0).sum())} of {f.numel()} entries "
            f"(units {shown}), where multiplicative noise gives z = 0 with certainty, and a point "
            f"mass has no density. Use mode='additive', or an activation that is never 0, such as "
            f"sigmoid."
        )
    return (noise.log_prob(z / f - 1) - f.abs().log()).sum(-1)


def _check_transition(z: Tensor, f: Tensor, noise: Family) -> None:
    where = "transition_log_density"
    checks.require_real(where, z=z, f=f)
    checks.require_one_device(where, z=z, f=f)
    if z.shape != f.shape or z.dim() == 0:
        raise InvalidValue(
            f"{where}: expected z and f of one shape (..., H), got {tuple(z.shape)} and "
            f"{tuple(f.shape)}."
        )
    _require_density(where, noise)


def _require_density(where: str, noise: object) -> None:
    if not isinstance(noise, Family):
        raise InvalidValue(
            f"{where}: expected a noise with a density, got {noise!r:.60}. Use one of "
            f"noise.FAMILIES."
        )


def log_joint(
    cell: NoisyCell, V: Callable[[Tensor], Tensor], x: Tensor, target: Tensor, z: Tensor,
    likelihood: Likelihood,
) -> Tensor:  # fmt: skip
    """``log p(x_{1:T}, z_{1:T})`` of the empirical-Bayes view, one value per row, ``(N,)``.

    The noisy states z, ``(T, N, H)``, are latent variables with the prior
    ``p(z_t | z_{t-1}, x_{t-1}; W)`` that the noise and the cell define, and V maps a state to the
    natural parameter of its observation. Training fits the prior's W: with the prior itself as q,
    the objective is an ELBO.
    """
    arguments.instance(
        "log_joint: cell", cell, NoisyCell, "Wrap your own cell: noisin.Noisy(cell, noise)."
    )
    checks.require_tensors("log_joint", x=x, target=target)
    checks.require_real("log_joint", z=z)
    require_likelihood("log_joint", likelihood)
    if not callable(V) or isinstance(V, type) or not checks.takes(V, 1):
        raise InvalidType(
            f"log_joint: V must map a state to a natural parameter, got {type(V).__name__}. Pass a "
            f"function or a module, such as torch.nn.Linear(H, O)."
        )
    law = cell.noise
    _require_density("log_joint", law)
    assert isinstance(law, Family)
    if not cell.feedback or cell.share != "step":
        raise InvalidValue(
            "log_joint: z must be what the recurrence reads, with fresh noise at each step. Use "
            "feedback=True and share='step'."
        )
    if (
        min(x.dim(), target.dim()) < 2
        or z.dim() != 3
        or not (x.shape[:2] == target.shape[:2] == z.shape[:2])
    ):
        raise InvalidValue(
            f"log_joint: expected the same steps and rows (T, N, ...) in x, target and z, got "
            f"{tuple(x.shape)}, {tuple(target.shape)} and {tuple(z.shape)}."
        )
    total, state = z.new_zeros(z.shape[1]), None
    for t in range(len(x)):
        clean = cell.transition(x[t], state)
        h = hidden(cell, clean)
        checks.require_one_kind("log_joint", z=z, h=h)
        if z[t].shape != h.shape:
            raise InvalidValue(
                f"log_joint: expected z of shape {(len(x), *h.shape)}, as the cell's h, got "
                f"{tuple(z.shape)}."
            )
        nll = likelihood.nll(s=V(z[t]), x=target[t])
        prior = transition_log_density(z[t], h, law, cell.noise_mode)
        total = total + prior - nll.reshape(len(nll), -1).sum(-1)
        state = with_hidden(cell, clean, z[t])
    return total
