"""The chain of an SRNN: the values and the gradients of a loop over its steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from noisin.models.latent import SRNN, LatentModel
from noisin.models.latent.chain import chain
from tests.models.latent.test_models import N, T, Z, build, noise_for, window

M, C = 7, 4


def f(x: Tensor) -> Tensor:
    return x.tanh()


def g(o: Tensor, eta: Tensor) -> Tensor:
    """Depends on all outputs, also on those of another law, and on eta other than linearly."""
    a, b, c, d = o.unbind(-2)
    return a + 0.3 * c * b.sin() + d.sigmoid() * eta.tanh()


def arguments() -> list[Tensor]:
    random = torch.Generator().manual_seed(5)
    shapes = (T, N, M), (T, N, Z), (N, Z), (Z, M), (M, C * Z), (C * Z,)
    return [
        torch.randn(shape, dtype=torch.float64, generator=random).mul_(0.7).requires_grad_()
        for shape in shapes
    ]


def by_loop(known: Tensor, eta: Tensor, z: Tensor, V: Tensor, W: Tensor, b: Tensor) -> Tensor:
    found = []
    for t in range(T):
        found.append((f(known[t] + z @ V) @ W + b).view(N, C, Z))
        z = g(found[-1], eta[t])
    return torch.stack(found)


def test_values_and_gradients_are_those_of_a_loop() -> None:
    ours, theirs = arguments(), arguments()
    o, expected = chain(*ours, f=f, g=g), by_loop(*theirs)
    torch.testing.assert_close(o, expected)
    weights = torch.randn_like(o)
    for loss in (o * weights).sum(), (expected * weights).sum():
        loss.backward()
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one.grad, other.grad)


def test_gradients_numerically() -> None:
    assert torch.autograd.gradcheck(lambda *given: chain(*given, f=f, g=g), arguments())


def test_second_derivatives_and_batches_of_gradients() -> None:
    def o(*given: Tensor) -> Tensor:
        return chain(*given, f=f, g=g)

    few = [part[:2] if part.dim() == 3 else part for part in arguments()]
    few = [part.detach().requires_grad_() for part in few]
    assert torch.autograd.gradgradcheck(o, few)
    assert torch.autograd.gradcheck(o, few, check_batched_grad=True)


def test_an_output_that_depends_on_nothing_that_is_learned() -> None:
    """Of a single step, o depends on no eta."""
    known, eta, *rest = (part.detach() for part in arguments())
    eta = eta[:1].requires_grad_()
    o = chain(known[:1], eta, *rest, f=f, g=g)
    assert torch.autograd.grad(o.sum(), eta, create_graph=True, allow_unused=True) == (None,)


@pytest.mark.filterwarnings("ignore:.*torch.jit")  # of forward-mode derivatives in torch
def test_transforms() -> None:
    first, *rest = arguments()

    def loss(known: Tensor) -> Tensor:
        return chain(known, *rest, f=f, g=g).square().sum()

    expected = torch.autograd.grad(loss(first), first)[0]
    torch.testing.assert_close(torch.func.grad(loss)(first), expected)
    along = torch.randn_like(first)
    _, slope = torch.func.jvp(loss, (first,), (along,))
    torch.testing.assert_close(slope, (expected * along).sum())
    several = torch.stack([first, 2 * first])
    torch.testing.assert_close(
        torch.func.vmap(loss)(several), torch.stack([loss(first), loss(2 * first)])
    )


@pytest.mark.parametrize("kind", ["srnn-smoothing", "srnn-filtering"])  # without and with res_q
@pytest.mark.parametrize("targets", [True, False])
def test_the_steps_of_an_srnn_are_those_one_by_one(kind: str, targets: bool) -> None:
    def run(steps: Any) -> list[Tensor]:
        model = build(kind)
        batch = window()
        inputs, _ = model.context(batch, None) if targets else model.prior_context(batch.x, None)
        state = torch.ones(N, Z, dtype=torch.float64, requires_grad=True)
        found, after = steps(model, inputs, state, noise_for())
        parts = [found.z, *found.q, *found.p, found.read, after]
        sum(part.square().sum() for part in parts).backward()
        grads = [p.grad for p in model.parameters() if p.grad is not None]
        assert state.grad is not None
        return [*parts, state.grad, *grads]

    for one, other in zip(run(SRNN.steps), run(LatentModel.steps), strict=True):
        torch.testing.assert_close(one, other)


def test_under_autocast() -> None:
    model = build("srnn-smoothing").float()
    batch = window()
    expected = model.bound(batch, eta=noise_for().float())
    with torch.autocast("cpu", torch.bfloat16):
        found = model.bound(batch, eta=noise_for().float())
    torch.testing.assert_close(found.kl.float(), expected.kl, rtol=0.1, atol=0.1)
    (found.kl - found.log_p).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.prior.parameters())
