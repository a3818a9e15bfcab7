"""Convert: noise for a model that exists, with its optimizer, hooks and checkpoints.

``noisin.convert`` changes the RNNs and cells inside a model in place. Parameters stay the same
objects, so the optimizer made before stays valid; ``state_dict`` keys stay the same, so checkpoints
load as ever; ``noisin.revert`` undoes it.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

import noisin
from noisin import noise


class Forecaster(nn.Module):
    """An existing model: an encoder, a decoder cell in its own loop, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.GRU(1, 24, batch_first=True)
        self.decoder = nn.LSTMCell(1, 24)
        self.head = nn.Linear(24, 1)

    def forward(self, past: Tensor, steps: int) -> Tensor:
        output, _ = self.encoder(past)
        h, c = output[:, -1], torch.zeros_like(output[:, -1])
        value, forecast = past[:, -1], []
        for _ in range(steps):
            h, c = self.decoder(value, (h, c))
            value = self.head(h)
            forecast.append(value)
        return torch.stack(forecast, dim=1)


def waves(size: int) -> Tensor:
    """Noisy sine waves of random phase, (size, 30, 1)."""
    phase = 6.28 * torch.rand(size, 1, 1)
    return torch.sin(phase + 0.4 * torch.arange(30).view(1, 30, 1)) + 0.1 * torch.randn(size, 30, 1)


def main(num_epochs: int = 150) -> float:
    torch.manual_seed(1111)
    model = Forecaster()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    keys = list(model.state_dict())

    noisin.convert(model, noise.Bernoulli.from_variance(0.2))
    print(model)

    for epoch in range(num_epochs):
        # A schedule: the noise fades out over the last third.
        fade = min(1.0, 3 * (1 - epoch / num_epochs))
        noisin.set_noise(model, noise.Bernoulli.from_variance(0.2 * fade))
        series = waves(32)
        loss = (model(series[:, :20], 10) - series[:, 20:]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    noisin.revert(model)
    assert type(model.encoder) is nn.GRU
    assert list(model.state_dict()) == keys
    series = waves(500)
    with torch.no_grad():
        error = (model(series[:, :20], 10) - series[:, 20:]).square().mean().item()
    print(f"squared error on new waves, back in torch's own modules: {error:.3f}")
    return error


if __name__ == "__main__":
    main()
