r"""Noise in affine recurrences, ``h_t = a_t h_{t-1} + b_t``, solved for all steps at once.

Noise has three sites. With ``n_t = 1 + eps_t``:

``increment``
    ``z_t = a_t z_{t-1} + n_t b_t``: on what each step adds.
``output``
    ``z_t = n_t h_t``: on what is emitted, and not fed back.
``state``
    ``z_t = n_t (a_t z_{t-1} + b_t)``: Algorithm 1 of the paper. It is affine again, with the
    coefficients ``n_t a_t`` and ``n_t b_t``, so the same scan solves it.

At all of them ``E[z_t] = h_t`` exactly, fed back or not, because z is linear in the noise of each
step and the steps are independent. The second moment is another matter: at ``state`` it grows by
``a² (1 + σ²)`` a step, and stays bounded only if ``σ² < 1/a² - 1``.
"""

from __future__ import annotations

import math
import warnings
from functools import reduce
from typing import Literal, get_args

import torch
from torch import Generator, Tensor

from noisin._util import checks, torch_state
from noisin.errors import GrowingNoise, InvalidType, InvalidValue
from noisin.noise import Noise, validate
from noisin.recurrent import affine, functional
from noisin.recurrent.functional import Mode

ScanSite = Literal["increment", "output", "state"]
_DTYPES = (*checks.FLOATS, torch.complex64, torch.complex128)


def scan(
    a: Tensor,
    b: Tensor,
    eps: Tensor | None = None,
    h0: Tensor | None = None,
    *,
    site: ScanSite = "increment",
    mode: Mode = "multiplicative",
    noise: Noise | None = None,
    generator: Generator | None = None,
) -> tuple[Tensor, Tensor]:
    """Solve an affine recurrence with noise, ``h_t = a_t h_{t-1} + b_t``, elementwise.

    Args:
        a, b: of shape ``(T, N, H)``, or any other with time first; real or complex.
        eps: centred noise of the same shape, or None.
        h0: the state before the first step, ``(N, H)``; None is zero. All four are broadcast: a of
            shape ``(H,)`` is constant, and N may be 1 in all but eps.
        site: where the noise is: on the ``"increment"`` b, on the ``"output"``, or on the
            ``"state"`` that is fed back, which warns (:class:`noisin.errors.GrowingNoise`) if
            ``σ² >= 1/a² - 1`` for the largest ``|a|``, with σ² the variance of ``noise`` or the
            mean of ``eps²``.
        mode: ``"multiplicative"``, or ``"additive"``, where ``increment`` and ``state`` are the
            same.
        noise: draws eps, a fresh one for every entry, in place of the argument.
        generator: the random stream to draw from; None is torch's global one.

    Returns:
        All z, and the state that the recurrence carries on: the last z, or, at ``output``, the
        last clean h. It is the ``h0`` of the next steps.

    >>> a, b = torch.tensor([[0.5]]), torch.ones(3, 1)
    >>> z, h_n = scan(a, b)
    >>> z.flatten(), h_n
    (tensor([1.0000, 1.5000, 1.7500]), tensor([1.7500]))
    >>> z, h_n = scan(a, b, eps=torch.tensor([[0.0], [0.0], [1.0]]), site="output")
    >>> z.flatten(), h_n
    (tensor([1.0000, 1.5000, 3.5000]), tensor([1.7500]))
    """
    checks.one_of("scan: site", site, get_args(ScanSite))
    checks.one_of("scan: mode", mode, get_args(Mode))
    if noise is not None and eps is not None:
        raise InvalidValue(
            "scan: eps and noise are both given. Pass eps, your own centred noise, or noise, which "
            "it is drawn from."
        )
    a, b, eps, h0 = _operands(a, b, eps, h0)
    if noise is not None:
        eps = validate(noise).sample(tuple(b.shape), like=_real(b), generator=generator)
    if eps is not None and site == "state" and mode == "multiplicative":
        warn_if_growing("scan", a, eps, None if noise is None else noise.variance)
    return noisy(a, b, eps, h0, site, mode)


def noisy(
    a: Tensor, b: Tensor, eps: Tensor | None, h0: Tensor | None, site: ScanSite, mode: Mode
) -> tuple[Tensor, Tensor]:
    """The scan of operands of one shape and dtype, without checks."""
    if eps is not None and site != "output":
        if site == "state" and mode == "multiplicative":
            a = functional.inject(a, eps, mode)
        b = functional.inject(b, eps, mode)
    if h0 is None:
        h = affine.solve(a[1:], b)
    else:
        h = affine.solve(a, torch.cat([h0.unsqueeze(0), b]))[1:]
    emits = eps is not None and site == "output"
    return functional.inject(h, eps, mode) if emits else h, h[-1]  # type: ignore[arg-type]


def _operands(
    a: Tensor, b: Tensor, eps: Tensor | None, h0: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
    """All in one dtype; a, b and eps in the shape of the states, h0 in that of one."""
    given = {"a": a, "b": b} | ({} if h0 is None else {"h0": h0})
    checks.require_tensors("scan", **given)
    for name, value in given.items():
        if value.dtype not in _DTYPES:
            raise InvalidType(
                f"scan: {name} must be a tensor of real or complex numbers, got {value.dtype}. "
                f"Convert it: {name}.float()."
            )
    checks.require_one_device("scan", **given)
    if eps is not None:
        checks.require_noise_tensor("scan", eps, b)
        checks.require_finite("scan", eps)
    shape = _shape(a, b, eps, h0)
    dtype = reduce(torch.promote_types, (value.dtype for value in given.values()))
    a, b = a.to(dtype).expand(shape), b.to(dtype).expand(shape)
    eps = None if eps is None else eps.to(_real(b)).expand(shape)
    return a, b, eps, None if h0 is None else h0.to(dtype).expand(shape[1:])


def _shape(a: Tensor, b: Tensor, eps: Tensor | None, h0: Tensor | None) -> torch.Size:
    """The shape of all states, or raise; neither eps nor h0 adds a dimension."""
    dims = max(a.dim(), b.dim())
    steps = [a.shape, b.shape] + ([] if eps is None else [eps.shape])
    one = [] if h0 is None else [h0.shape]
    fits = all(len(s) <= dims for s in steps) and all(len(s) < dims for s in one)
    try:
        shape: torch.Size = torch.broadcast_shapes(*steps, *one)  # type: ignore[no-untyped-call]
    except RuntimeError:
        fits = False
    if not fits or dims == 0 or shape[0] == 0:
        got = {"a": a, "b": b, "eps": eps, "h0": h0}
        shown = [f"{name} {tuple(v.shape)}" for name, v in got.items() if v is not None]
        raise InvalidValue(
            f"scan: expected a, b and eps of shape (T, N, H), with T > 0, and h0 of shape (N, H), "
            f"or others that broadcast to these, got {', '.join(shown)}. Time comes first."
        )
    return shape


def _real(b: Tensor) -> Tensor:
    return b.real if b.is_complex() else b


def warn_if_growing(
    name: str, a: Tensor, eps: Tensor, variance: float | None, stacklevel: int = 3
) -> None:
    """Warn where the second moment of the state grows at the largest coefficient."""
    if not (torch_state.values_known(a) and torch_state.values_known(eps)):
        return
    if not a.numel() or not eps.numel():
        return
    with torch.no_grad():
        largest = float(a.abs().max())
        variance = float(eps.square().mean()) if variance is None else variance
    if variance > 0 and largest**2 * (1 + variance) >= 1:
        bound = math.sqrt(max(1 / largest**2 - 1, 0.0))
        warnings.warn(
            f"{name}: noise of standard deviation {math.sqrt(variance):.3g} on the state "
            f"multiplies along it, and its second moment grows by a²(1 + variance) a step, up to "
            f"{largest**2 * (1 + variance):.4g} here. It stays bounded for a standard deviation "
            f"below {bound:.3g}, as the largest |a| is {largest:.4g}. Use less noise, or "
            f"site='increment'.",
            GrowingNoise,
            stacklevel=stacklevel,
        )
