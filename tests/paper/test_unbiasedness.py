"""Weak and strong unbiasedness of the placements of noise, by Monte Carlo over many rows."""

from __future__ import annotations

import pytest
import torch

import noisin
from noisin import noise
from tests import stats
from tests.pairwise import table

T, K, F, H = 6, 40_000, 3, 4
FAMILIES = [family.from_variance(0.8) for family in noise.FAMILIES.values()]


def draws(rnn: torch.nn.Module) -> tuple[torch.Tensor, torch.Tensor]:
    """K noisy runs on one input, (T, K, H), and the clean run (T, 1, H)."""
    x = torch.randn(T, 1, F, dtype=torch.float64)
    with torch.no_grad():
        z, _ = rnn(x.expand(T, K, F))
        h, _ = rnn.eval()(x)
    return z, h


@pytest.mark.parametrize(
    ("cell", "law", "mode"),
    table([noisin.RNN, noisin.LSTM, noisin.GRU], FAMILIES, ["multiplicative", "additive"]),
    ids=str,
)
def test_strong_unbiasedness_without_feedback(cell: type, law: noise.Family, mode: str) -> None:
    """E[z_t] = h_t with noise on the last layer only, not fed back."""
    rnn = cell(F, H, 2, noise=law, mode=mode, feedback=False, noisy_layers="last",
               dtype=torch.float64)  # fmt: skip
    z, h = draws(rnn)
    for t in (0, T - 1):
        for unit in (0, H - 1):
            std = law.std * (abs(h[t, 0, unit].item()) if mode == "multiplicative" else 1)
            stats.assert_mean(z[t, :, unit].numpy(), h[t, 0, unit].item(), std)


@pytest.mark.parametrize("law", FAMILIES, ids=str)
def test_weak_unbiasedness_with_feedback(law: noise.Family) -> None:
    """E[z_t | z_{t-1}] = f_W(x, z_{t-1}): the residual of the Elman network has mean zero."""
    rnn = noisin.RNN(F, H, noise=law, mode="additive", dtype=torch.float64)
    x = torch.randn(T, 1, F, dtype=torch.float64).expand(T, K, F)
    with torch.no_grad():
        z, _ = rnn(x)
        f = torch.tanh(x[1:] @ rnn.weight_ih_l0.T + rnn.bias_ih_l0
                       + z[:-1] @ rnn.weight_hh_l0.T + rnn.bias_hh_l0)  # fmt: skip
    stats.assert_mean((z[1:] - f)[..., 0].numpy().ravel(), 0.0, law.std)


def test_fed_back_noise_is_not_strongly_unbiased() -> None:
    rnn = noisin.RNN(F, H, noise=noise.Gaussian(1.0), dtype=torch.float64)
    with torch.no_grad():
        rnn.weight_hh_l0.mul_(6)
    z, h = draws(rnn)
    error = z[-1].mean(0) - h[-1, 0]
    assert (error.abs() > 10 * z[-1].std(0) / K**0.5).any()
