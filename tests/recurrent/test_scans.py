"""Affine recurrences: the scan against a loop, its gradients, and its noise, exactly."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.testing import assert_close

import noisin
from noisin import noise
from noisin.errors import GrowingNoise, InvalidType, InvalidValue, NoisinError
from noisin.recurrent import affine
from noisin.recurrent.scans import ScanSite, scan

SITES: tuple[ScanSite, ...] = ("increment", "output", "state")
LENGTHS = [1, 2, 3, 15, 17, 18, 35, 64, 289, 300]  # one chunk, several, and chunks of chunks


def by_steps(
    a: Tensor, b: Tensor, eps: Tensor, h0: Tensor, site: str, mode: str = "multiplicative"
) -> tuple[Tensor, Tensor]:
    """The equations, one step at a time."""
    zs, state = [], h0
    for a_t, b_t, e in zip(a, b, eps, strict=True):

        def noisy(value: Tensor, e: Tensor = e) -> Tensor:
            return value + e if mode == "additive" else value * (1 + e)

        h = a_t * state + (noisy(b_t) if site == "increment" else b_t)
        z = h if site == "increment" else noisy(h)
        zs.append(z)
        state = h if site == "output" else z
    return torch.stack(zs), state


def operands(T: int, *sizes: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    g = torch.Generator().manual_seed(T)
    a = torch.rand(T, *sizes, generator=g, dtype=dtype)
    b = torch.randn(T, *sizes, generator=g, dtype=dtype)
    real = a.real.dtype if a.is_complex() else dtype
    eps = 0.1 * torch.randn(T, *sizes, generator=g, dtype=real)
    return a * 0.6, b, eps, torch.randn(sizes, generator=g, dtype=dtype)


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("T", LENGTHS)
def test_the_scan_is_the_loop(T: int, site: ScanSite) -> None:
    wide = [(70, 40)] if T in (3, 35) else []  # which is one chunk
    for sizes, dtype in itertools.product([(), (2, 3), *wide], [torch.float64, torch.complex128]):
        a, b, eps, h0 = operands(T, *sizes, dtype=dtype)
        for mode in ("multiplicative", "additive"):
            assert_close(
                scan(a, b, eps, h0, site=site, mode=mode),
                by_steps(a, b, eps, h0, site, mode),
                rtol=1e-12,
                atol=1e-12,
            )
        assert_close(scan(a, b), scan(a, b, h0=torch.zeros_like(h0)), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("T", LENGTHS)
def test_plain_operations_give_the_same(T: int, reverse: bool) -> None:
    a, b, _, _ = operands(T, 2, 3)
    solved = affine.solve(a[1:], b, reverse)
    assert_close(affine.doubled(a[1:], b, reverse), solved, rtol=1e-12, atol=1e-12)
    if reverse:
        assert_close(affine.solve(a[1:].flip(0), b.flip(0)).flip(0), solved, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("T", [5, 35])
def test_an_empty_batch(T: int, site: ScanSite) -> None:
    a, b = (torch.rand(T, 0, 4).requires_grad_() for _ in range(2))
    z, _ = noisin.scan(a, b, site=site, noise=noise.Gaussian(0.5))
    assert z.shape == (T, 0, 4)
    assert all(grad.shape == (T, 0, 4) for grad in torch.autograd.grad(z.sum(), (a, b)))


def test_float32_and_half_the_precision() -> None:
    a, b, eps, h0 = (v.float() for v in operands(300, 2, 3))
    expected = by_steps(a, b, eps, h0, "state")
    found = scan(a, b, eps, h0, site="state")
    assert found[0].dtype == torch.float32
    assert_close(found, expected)
    z, _ = scan(a.bfloat16(), b.bfloat16())
    assert z.dtype == torch.bfloat16
    assert scan(a, b.double())[0].dtype == torch.float64


@pytest.mark.parametrize("site", SITES)
def test_a_sequence_in_two_parts(site: ScanSite) -> None:
    a, b, eps, h0 = operands(40, 2, 3)
    whole, last = scan(a, b, eps, h0, site=site)
    first, carried = scan(a[:17], b[:17], eps[:17], h0, site=site)
    second, end = scan(a[17:], b[17:], eps[17:], carried, site=site)
    assert_close(torch.cat([first, second]), whole)
    assert_close(end, last)


def test_operands_are_broadcast() -> None:
    a, b, eps, h0 = operands(20, 2, 3)
    full = (20, 2, 3)
    expected = by_steps(a[0, 0].expand(full), b, eps[:1].expand(full), h0[0].expand(2, 3), "state")
    assert_close(scan(a[0, 0], b, eps[:1], h0[0], site="state"), expected)
    with_decay = scan(torch.tensor(0.5, dtype=torch.float64), b)[0]
    assert_close(with_decay, scan(torch.full_like(b, 0.5), b)[0])


@pytest.mark.parametrize(
    ("T", "dtype"), [(1, torch.float64), (2, torch.complex128), (18, torch.float64)]
)
def test_gradients(T: int, dtype: torch.dtype) -> None:
    a, b, eps, h0 = (v.requires_grad_() for v in operands(T, 2, dtype=dtype))
    real = dtype == torch.float64
    for site in SITES:

        def run(*args: Any, site: ScanSite = site) -> Any:
            return scan(*args, site=site)

        with warnings.catch_warnings():  # the differences of gradcheck go beyond the bound
            warnings.simplefilter("ignore", GrowingNoise)
            warnings.simplefilter("ignore", DeprecationWarning)  # of torch's forward derivatives
            assert gradcheck(
                run, (a, b, eps, h0), check_forward_ad=real, check_batched_grad=real and T > 1
            )
            if T == 2 or (real and site == "state"):
                assert gradgradcheck(run, (a, b, eps, h0))
    assert gradcheck(lambda a, b: scan(a, b)[0], (a, b))
    assert gradcheck(lambda a, b: scan(a[0], b)[0], (a, b)), "broadcast"


def test_long_gradients_are_those_of_the_loop() -> None:
    a, b, eps, h0 = operand = tuple(v.requires_grad_() for v in operands(300, 3))
    weight = torch.randn(300, 3, dtype=torch.float64)
    for site in SITES:
        expected = torch.autograd.grad((by_steps(a, b, eps, h0, site)[0] * weight).sum(), operand)
        found = torch.autograd.grad((scan(a, b, eps, h0, site=site)[0] * weight).sum(), operand)
        assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_transforms_and_the_compiler() -> None:
    a, b, eps, h0 = operands(18, 2, 3)
    expected = scan(a, b, eps, h0)[0]
    by_row = torch.func.vmap(lambda *v: scan(*v)[0], (1, 1, 1, 0), 1)(a, b, eps, h0)
    assert_close(by_row, expected)
    of_a = torch.func.grad(lambda a: scan(a, b, eps, h0)[0].square().sum())(a)
    a.requires_grad_()
    assert_close(of_a, torch.autograd.grad(scan(a, b, eps, h0)[0].square().sum(), a)[0])
    compiled = torch.compile(lambda *v: scan(*v, site="state")[0], backend="eager", fullgraph=True)
    assert_close(compiled(a, b, eps, h0), scan(a, b, eps, h0, site="state")[0])


@pytest.mark.parametrize("share", [False, True])
@pytest.mark.parametrize("mode", ["multiplicative", "additive"])
@pytest.mark.parametrize("site", SITES)
def test_the_expectation_is_exact(site: ScanSite, mode: Any, share: bool) -> None:
    """Over all signs of two-point noise, E[z] = h: no sampling.

    With one sign for all steps it is still so where z is linear in it, which ``state`` is not.
    """
    T, std = 6, 0.8
    a, b, _, h0 = operands(T, 1)
    signs = torch.tensor(list(itertools.product([-std, std], repeat=1 if share else T)))
    eps = signs.double().t().expand(T, -1).unsqueeze(-1)  # (T, all patterns, 1)
    rows = eps.shape[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GrowingNoise)
        z, _ = scan(a.unsqueeze(1), b.unsqueeze(1), eps, h0.expand(rows, 1), site=site, mode=mode)
    h, _ = scan(a, b, h0=h0)
    bias = (z.mean(1) - h).abs().max()
    if share and site == "state" and mode == "multiplicative":
        assert bias > 1e-3
    else:
        assert bias < 1e-14
    assert (z - h.unsqueeze(1)).abs().max() > 0.1, "there is noise"


@pytest.mark.parametrize("sigma", [0.3, 0.5])
def test_the_second_moment_grows_as_predicted(sigma: float) -> None:
    """``E[z_t²] = (a² (1 + σ²))ᵗ`` from ``h0 = 1`` and b = 0, by enumeration."""
    T, a = 10, 0.9
    signs = torch.tensor(list(itertools.product([-sigma, sigma], repeat=T))).double().t()
    assert noise.Gaussian(sigma).variance == pytest.approx(sigma**2)
    rows = torch.ones(2**T, dtype=torch.float64)
    grows = a**2 * (1 + sigma**2) >= 1
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        z, _ = scan(
            torch.tensor([a], dtype=torch.float64), torch.zeros(T, 1), signs, rows, site="state"
        )
    factors = torch.full((T,), a**2 * (1 + sigma**2), dtype=torch.float64)
    assert_close(z.square().mean(1), factors.cumprod(0))
    assert [w.category for w in found] == [GrowingNoise] * grows


@pytest.mark.parametrize(("a", "bound"), [(0.9, 0.484), (0.95, 0.329), (0.99, 0.142)])
def test_the_warning_is_at_the_bound(a: float, bound: float) -> None:
    coefficients = torch.tensor([[-a, a / 2]])
    b = torch.ones(4, 2)
    law = noise.Gaussian(bound + 0.001)
    with pytest.warns(GrowingNoise, match=f"{bound:.3g}"):
        scan(coefficients, b, noise=law, site="state")
    below = noise.Gaussian(bound - 0.001)
    scan(coefficients, b, noise=below, site="state")
    for site in ("increment", "output"):
        scan(coefficients, b, noise=law, site=site)
    scan(coefficients, b, noise=law, site="state", mode="additive")
    scan(torch.ones(1), b, torch.zeros(4, 2), site="state")
    with pytest.warns(GrowingNoise, match="scan: noise of standard deviation 0.5"):
        scan(coefficients, b, torch.tensor([0.5, -0.5]), site="state")


def test_noise_is_drawn() -> None:
    a, b, _, h0 = operands(5, 2, 3)
    law = noise.Gaussian(0.5)
    found = scan(a, b, h0=h0, noise=law, generator=torch.Generator().manual_seed(3))
    eps = law.sample((5, 2, 3), like=b, generator=torch.Generator().manual_seed(3))
    assert_close(found, scan(a, b, eps, h0))
    complex_a = a.to(torch.complex128)
    z, _ = scan(complex_a, b, noise=law, site="output")
    assert z.is_complex()
    assert not z.imag.any()


X = torch.zeros(4, 2, 3)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: scan(X, X[:3]), r"\(T, N, H\), with.*got a \(4, 2, 3\), b \(3, 2, 3\)\. Time"),
        (lambda: scan(X[:0], X[:0]), "T > 0"),
        (lambda: scan(X[0, 0, 0], X[0, 0, 0]), "T > 0"),
        (lambda: scan(X, X, site="read"), "site must be 'increment' or 'output' or 'state', got"),
        (lambda: scan(X, X, mode="sum"), "mode must be"),
        (lambda: scan(X, X, X[:3]), r"got a.*, eps \(3, 2, 3\)"),
        (lambda: scan(X[0], X[0], X), r"got a \(2, 3\), b \(2, 3\), eps \(4, 2, 3\)"),
        (lambda: scan(X, X, X / 0), "NaN or infinity"),
        (lambda: scan(X, X, X.long()), "floating-point tensor"),
        (lambda: scan(X, X, h0=X), r"h0 of shape \(N, H\).*h0 \(4, 2, 3\)"),
        (lambda: scan(X, X, h0=X[:, 0]), r"h0 \(4, 3\)"),
        (lambda: scan(X, X.long()), r"b must be a tensor of real or complex numbers, got.*b.float"),
        (lambda: scan(X, 1.0), "b must be a tensor, got float"),
        (lambda: scan(X, X.to("meta")), "device"),
        (lambda: scan(X, X, X, noise=noise.Gaussian(1.0)), "eps and noise are both given"),
        (lambda: scan(X, X, noise=0.5), "expected an object with `variance`"),
    ],
)  # fmt: skip
def test_bad_input(call: Any, message: str) -> None:
    with pytest.raises(NoisinError, match=message) as raised:
        call()
    assert isinstance(raised.value, InvalidValue | InvalidType)


def test_it_is_public() -> None:
    assert noisin.scan is scan
