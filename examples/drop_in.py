"""Drop-in: torch.nn.LSTM becomes noisin.LSTM in a classifier of sequences of different lengths.

The task: has a sequence of plus and minus ones more of the former? Two things to see: sequences
packed by torch work as ever, and a classifier should read the last *output* rather than h_n where
``feedback=False``, for only the output is noisy then.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

import noisin
from noisin import likelihoods, noise

HIDDEN, LONGEST = 32, 20


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        # self.rnn = nn.LSTM(1, HIDDEN, batch_first=True)
        self.rnn = noisin.LSTM(
            1, HIDDEN, batch_first=True, noise=noise.Gaussian(gamma=0.5), feedback=False
        )
        self.V = nn.Linear(HIDDEN, 1)

    def forward(self, sequences: list[Tensor]) -> Tensor:
        packed = pack_sequence(sequences, enforce_sorted=False)
        z, lengths = pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        last = z[torch.arange(len(z)), lengths - 1]
        return self.V(last).squeeze(-1)


def batch(size: int, generator: torch.Generator) -> tuple[list[Tensor], Tensor]:
    """Sequences of an odd number of signs, and whether plus has the majority."""
    sequences = []
    for _ in range(size):
        length = 2 * int(torch.randint(LONGEST // 2, (), generator=generator)) + 1
        sequences.append(2.0 * torch.randint(2, (length, 1), generator=generator) - 1)
    return sequences, torch.stack([(s.sum() > 0).float() for s in sequences])


def main(num_epochs: int = 200) -> float:
    torch.manual_seed(1111)
    generator = torch.Generator().manual_seed(1)
    model, likelihood = Classifier(), likelihoods.Bernoulli()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(num_epochs):
        sequences, majority = batch(64, generator)
        loss = likelihood.nll(s=model(sequences), x=majority).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()  # exactly torch's LSTM from here on
    theirs = nn.LSTM(1, HIDDEN, batch_first=True)
    theirs.load_state_dict(model.rnn.state_dict())
    x = torch.randn(2, 5, 1)
    assert torch.equal(theirs(x)[0], model.rnn(x)[0])
    sequences, majority = batch(1000, generator)
    accuracy = ((model(sequences) > 0) == majority.bool()).float().mean().item()
    print(f"accuracy on 1000 new sequences after {num_epochs} steps: {accuracy:.1%}")
    return accuracy


if __name__ == "__main__":
    main()
