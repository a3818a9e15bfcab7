"""Your own cell: any transition ``(x, state) -> state``, with noise around it.

The cell here is a minimal gated unit. ``Noisy`` wraps it, ``unroll`` runs it, and the task is to
repeat the symbol of two steps ago.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import noisin
from noisin import likelihoods, noise

SYMBOLS, HIDDEN, T, DELAY = 6, 48, 12, 2


class MinimalGatedCell(nn.Module):
    """One gate: ``h = (1 - f) h_prev + f tanh(W [x, f h_prev])``.

    The state is a pair, what the gates read and what is carried on. Noise is injected into the
    first, so that it does not pile up in the memory.
    """

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        self.gate = nn.Linear(input_size + hidden_size, hidden_size)
        self.candidate = nn.Linear(input_size + hidden_size, hidden_size)

    def forward(self, x: Tensor, state: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor]:
        if state is None:
            zeros = x.new_zeros(len(x), self.hidden_size)
            state = (zeros, zeros)
        read, carry = state
        f = self.gate(torch.cat([x, read], -1)).sigmoid()
        h = (1 - f) * carry + f * self.candidate(torch.cat([x, f * read], -1)).tanh()
        return h, h


def main(num_epochs: int = 300) -> float:
    torch.manual_seed(1111)
    cell = noisin.Noisy(MinimalGatedCell(SYMBOLS, HIDDEN), noise.Gamma(0.4, alpha=2.0))
    V = nn.Linear(HIDDEN, SYMBOLS)
    likelihood = likelihoods.Categorical()
    optimizer = torch.optim.Adam([*cell.parameters(), *V.parameters()], lr=5e-3)
    for _ in range(num_epochs):
        x = torch.randint(SYMBOLS, (T, 32))
        z, _ = noisin.unroll(cell, nn.functional.one_hot(x, SYMBOLS).float())
        loss = likelihood.nll(s=V(z[DELAY:]), x=x[:-DELAY]).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    cell.eval()
    x = torch.randint(SYMBOLS, (T, 1000))
    z, _ = noisin.unroll(cell, nn.functional.one_hot(x, SYMBOLS).float())
    accuracy = (V(z[DELAY:]).argmax(-1) == x[:-DELAY]).float().mean().item()
    print(f"the symbol of {DELAY} steps ago is recalled {accuracy:.1%} of the time (chance 16.7%)")
    return accuracy


if __name__ == "__main__":
    main()
