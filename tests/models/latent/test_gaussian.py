"""Gaussians against torch's own, and the KL divergence against Monte Carlo."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.distributions import Independent, Normal, kl_divergence

from noisin.models.latent import DiagonalGaussian, GaussianNetwork
from noisin.models.latent.gaussian import JointNetworks
from tests import stats


def two(*shape: int) -> tuple[DiagonalGaussian, DiagonalGaussian]:
    random = torch.Generator().manual_seed(1)

    def one() -> DiagonalGaussian:
        mean, s = torch.randn(2, *shape, dtype=torch.float64, generator=random)
        return DiagonalGaussian(mean, s.exp())

    return one(), one()


def torchs(law: DiagonalGaussian) -> Any:
    return Independent(Normal(law.mean, law.std), 1)


def test_density_and_divergence_are_torchs() -> None:
    q, p = two(5, 3)
    z = torch.randn(5, 3, dtype=torch.float64)
    torch.testing.assert_close(q.log_prob(z), torchs(q).log_prob(z))
    torch.testing.assert_close(q.kl(p), kl_divergence(torchs(q), torchs(p)))
    assert (q.kl(q) == 0).all()


def test_the_divergence_is_the_mean_of_the_log_ratio() -> None:
    q, p = two(4)
    z = q.at(torch.randn(20_000, 4, dtype=torch.float64))
    ratio = (q.log_prob(z) - p.log_prob(z)).numpy()
    stats.assert_mean(ratio, float(q.kl(p)), float(ratio.std()))


def test_gradients() -> None:
    q, p = two(2, 3)
    parts = [part.requires_grad_() for part in (*q, *p)]

    def kl(*given: torch.Tensor) -> torch.Tensor:
        return DiagonalGaussian(*given[:2]).kl(DiagonalGaussian(*given[2:]))

    assert torch.autograd.gradcheck(kl, parts)


def test_an_untrained_network_is_near_the_standard_normal() -> None:
    law = GaussianNetwork(6, 4, 8, separate=True)(torch.zeros(3, 2), torch.zeros(3, 4))
    torch.testing.assert_close(law.mean, torch.zeros(3, 4))
    torch.testing.assert_close(law.std, torch.ones(3, 4), atol=0.05, rtol=0)
    assert (GaussianNetwork(6, 4, None)(-1e4 * torch.ones(3, 6)).std > 0).all()


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("count", [1, 2])
def test_networks_together_are_each_of_them(separate: bool, count: int) -> None:
    options: dict[str, Any] = {"separate": separate, "activation": "clipped-leaky-relu"}
    networks = [GaussianNetwork(size, 4, 8, **options).double() for size in (6, 3)]
    known = [torch.randn(5, size, dtype=torch.float64, requires_grad=True) for size in (3, 0)]
    v = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    joint = JointNetworks(networks, 3)
    together = joint(joint.known(*known[:count]), v)
    apart = [network(x, v) for network, x in zip(networks[:count], known, strict=False)]
    read = [v, known[0], *networks[0].parameters(), *networks[count - 1].parameters()]
    for one, other in zip(together, apart, strict=True):
        torch.testing.assert_close(one, other)
    sums = [sum((law.mean.sin() * law.std).sum() for law in laws) for laws in (together, apart)]
    torch.testing.assert_close(*(torch.autograd.grad(total, read) for total in sums))
