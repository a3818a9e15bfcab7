"""Algorithm 1 as the paper prints it, with its own letters, against the library."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

import noisin
from noisin import likelihoods, noise

T, N, F, H, O = 5, 2, 3, 4, 6  # noqa: E741


def lstm_f(x: Tensor, z: Tensor, c: Tensor, W: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
    """The paper's LSTM: f_t, i_t, o_t, c_t, h_t."""
    sigma, tanh = torch.sigmoid, torch.tanh
    f = sigma(x @ W["x1"] + z @ W["h1"])
    i = sigma(x @ W["x2"] + z @ W["h2"])
    o = sigma(x @ W["x4"] + z @ W["h4"])
    c = f * c + i * tanh(x @ W["x3"] + z @ W["h3"])
    return o * tanh(c), c


def papers_weights(lstm: torch.nn.LSTM) -> dict[str, Tensor]:
    """Torch stacks the gates as i, f, g, o; the paper numbers them f, i, c, o."""
    number = {"2": 0, "1": 1, "3": 2, "4": 3}
    return {
        f"{letter}{n}": weight[block * H : (block + 1) * H].T
        for letter, weight in (("x", lstm.weight_ih_l0), ("h", lstm.weight_hh_l0))
        for n, block in number.items()
    }


@pytest.mark.parametrize("law", [family.from_variance(0.5) for family in noise.FAMILIES.values()])
def test_loss_and_gradients(law: noise.Family) -> None:
    lstm = noisin.LSTM(F, H, bias=False, noise=law, dtype=torch.float64)
    V = torch.randn(H, O, dtype=torch.float64, requires_grad=True)
    x = torch.randn(T, N, F, dtype=torch.float64)
    target = torch.randint(O, (T, N))

    # The paper: sample the noise of mean one, compute the state, compute the loss.
    torch.manual_seed(7)
    epsilon = 1 + law.sample((T, N, H), like=x)
    W = papers_weights(lstm)
    z = c = torch.zeros(N, H, dtype=torch.float64)
    loss = torch.zeros((), dtype=torch.float64)
    for t in range(T):
        h, c = lstm_f(x[t], z, c, W)
        z = h * epsilon[t]
        s = z @ V
        one_hot = torch.nn.functional.one_hot(target[t], O).double()
        loss = loss - ((s * one_hot).sum(-1) - torch.logsumexp(s, -1)).sum()
    parameters = (lstm.weight_ih_l0, lstm.weight_hh_l0, V)
    expected = torch.autograd.grad(loss, parameters)

    # The library, from the same seed.
    torch.manual_seed(7)
    states, _ = lstm(x)
    ours = likelihoods.Categorical().nll(s=states @ V, x=target).sum()
    torch.testing.assert_close(ours, loss)
    torch.testing.assert_close(torch.autograd.grad(ours, parameters), expected)
