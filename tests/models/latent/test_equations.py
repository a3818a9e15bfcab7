"""Each model against its equations: one sequence, one step at a time."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Bernoulli as BernoulliLaw
from torch.distributions import Normal, kl_divergence

from noisin.data import Batch
from tests.models.latent.test_models import KINDS, H, N, T, Z, build, noise_for, window

State = tuple[Tensor, Tensor]


def lstm(module: Any, suffix: str, x: Tensor, state: State) -> State:
    """One step from the weights of a layer (``_l0``) or of a cell."""
    w = [getattr(module, name + suffix) for name in ("weight_ih", "weight_hh")]
    b = [getattr(module, name + suffix) for name in ("bias_ih", "bias_hh")]
    h, c = state
    i, f, g, o = (w[0] @ x + b[0] + w[1] @ h + b[1]).chunk(4)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def zeros() -> State:
    return torch.zeros(H, dtype=torch.float64), torch.zeros(H, dtype=torch.float64)


def run(stack: Any, xs: Tensor) -> Tensor:
    """All states of a layer that runs whole sequences."""
    state, found = zeros(), []
    for x in xs:
        state = lstm(stack.layers[0].rnn, "_l0", x, state)
        found.append(state[0])
    return torch.stack(found)


def law(network: Any, *parts: Tensor) -> Normal:
    x = torch.cat(parts)
    out = torch.cat([one(x) for one in network.networks])
    return Normal(out[:Z], torch.log1p((out[Z:] + 0.5).exp()) + 1e-4)


def storn(m: Any, u: Tensor, x: Tensor, eta: Tensor) -> Any:
    r, state = run(m.recognition, m.embed_x(x)), zeros()
    for t in range(T):
        q = law(m.posterior, r[t])
        z = q.mean + q.stddev * eta[t]
        state = lstm(m.layers.cells[0], "", torch.cat([m.embed_u(u[t]), z]), state)
        yield q, Normal(torch.zeros_like(z), torch.ones_like(z)), state[0]


def vrnn(m: Any, u: Tensor, x: Tensor, eta: Tensor) -> Any:
    state, z = zeros(), torch.zeros(Z, dtype=torch.float64)
    for t in range(T):
        state = lstm(m.layers.cells[0], "", torch.cat([m.embed_u(u[t]), m.embed_z(z)]), state)
        h = state[0]
        p, q = law(m.prior, h), law(m.posterior, m.embed_x(x[t]), h)
        q = Normal(p.mean + q.mean, q.stddev) if m.res_q else q
        z = q.mean + q.stddev * eta[t]
        yield q, p, torch.cat([m.embed_z(z), h])


def srnn(m: Any, u: Tensor, x: Tensor, eta: Tensor) -> Any:
    d = run(m.layers, m.embed_u(u))
    both = torch.cat([d, m.embed_x(x)], 1)
    a = run(m.future, both.flip(0)).flip(0) if m.smoothing else m.future(both)
    z = torch.zeros(Z, dtype=torch.float64)
    for t in range(T):
        p, q = law(m.prior, d[t], z), law(m.posterior, a[t], z)
        q = Normal(p.mean + q.mean, q.stddev) if m.res_q else q
        z = q.mean + q.stddev * eta[t]
        yield q, p, torch.cat([d[t], z])


def independent(m: Any, u: Tensor, x: Tensor, eta: Tensor) -> Any:
    d, b = run(m.layers, m.embed_u(u)), run(m.future, m.embed_x(x).flip(0)).flip(0)
    state = zeros()
    for t in range(T):
        p, q = law(m.prior, d[t]), law(m.posterior, b[t], d[t])
        z = q.mean + q.stddev * eta[t]
        state = lstm(m.memory.cells[0], "", torch.cat([d[t], z]), state)
        yield q, p, state[0]


def z_forcing(m: Any, u: Tensor, x: Tensor, eta: Tensor) -> Any:
    b, state = run(m.future, m.embed_x(x).flip(0)).flip(0), zeros()
    for t in range(T):
        p, q = law(m.prior, state[0]), law(m.posterior, state[0], b[t])
        z = q.mean + q.stddev * eta[t]
        state = lstm(m.layers.cells[0], "", torch.cat([m.embed_u(u[t]), z]), state)
        yield q, p, state[0]


EQUATIONS: dict[str, Any] = {
    "storn": storn,
    "vrnn": vrnn,
    "srnn-smoothing": srnn,
    "srnn-filtering": srnn,
    "srnn-independent": independent,
    "z-forcing": z_forcing,
}


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_the_bound_is_that_of_the_equations(kind: str) -> None:
    model, batch, eta = build(kind), window(), noise_for()
    bound = model.bound(batch, eta=eta)
    for n in range(N):
        u, x = batch.x[:, n].double(), batch.target[:, n].double()
        for t, (q, p, read) in enumerate(EQUATIONS[kind](model, u, x, eta[:, n])):
            head: Any = model.head
            s = model.emission(read) @ head.weight.t() + head.bias
            log_p = BernoulliLaw(logits=s).log_prob(x[t]).sum()
            torch.testing.assert_close(bound.kl[t, n], kl_divergence(q, p).sum())
            torch.testing.assert_close(bound.log_p[t, n], log_p)


def test_the_costs_of_z_forcing() -> None:
    model: Any = build("z-forcing")
    scored = torch.rand(T, N) < 0.7
    batch = Batch(window().x, window().target, scored)
    bound = model.bound(batch, eta=noise_for())
    found = model.costs(batch, bound)
    b, z = bound.inputs[1], bound.steps.z
    (network,) = model.of_future.networks
    out = network(z)
    future = Normal(out[..., :H].tanh(), torch.log1p((out[..., H:] + 0.5).exp()) + 1e-4)
    auxiliary = -future.log_prob(b.detach()).sum(-1)[scored].mean()
    before = BernoulliLaw(logits=b @ model.before.weight.t() + model.before.bias)
    backward = -before.log_prob(batch.x.double()).sum(-1)[scored].mean()
    torch.testing.assert_close(found["auxiliary"], 0.3 * auxiliary)
    torch.testing.assert_close(found["backward"], 0.2 * backward)
    gradient = torch.autograd.grad(found["auxiliary"], b, allow_unused=True, retain_graph=True)[0]
    through_z = torch.autograd.grad(0.3 * auxiliary, b, allow_unused=True)[0]
    torch.testing.assert_close(gradient, through_z)
