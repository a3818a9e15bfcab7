"""Inside a Lightning loop: nothing to do but to use noisin's modules.

Lightning calls ``train()`` and ``eval()`` as every loop does, and the noise follows; the same holds
for the Trainer of Hugging Face transformers, whose models ``noisin.convert`` takes as any other.
A schedule of the noise is a callback that calls ``noisin.set_noise``; that of ``noisin.lightning``
also converts a model with torch's RNNs. Lightning is no dependency of noisin: ``pip install
lightning`` to run this.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import noisin
from noisin import likelihoods, noise


def module_and_callback(lightning: Any) -> tuple[Any, Any]:
    """A LightningModule with a noisy LSTM, and a callback that anneals the noise."""

    class Parity(lightning.LightningModule):
        """Is the number of ones so far odd?"""

        def __init__(self) -> None:
            super().__init__()
            self.rnn = noisin.LSTM(1, 32, batch_first=True, noise=noise.Gaussian(0.2))
            self.V = nn.Linear(32, 1)

        def loss(self, bits: Tensor) -> Tensor:
            s = self.V(self.rnn(bits.unsqueeze(-1))[0]).squeeze(-1)
            return likelihoods.Bernoulli().nll(s=s, x=bits.cumsum(1) % 2).mean()

        def training_step(self, batch: list[Tensor], _: int) -> Tensor:
            return self.loss(batch[0])  # noisy: Lightning has called train()

        def validation_step(self, batch: list[Tensor], _: int) -> None:
            self.log("valid", self.loss(batch[0]))  # clean: it has called eval()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.Adam(self.parameters(), lr=1e-2)

    class Anneal(lightning.Callback):
        def on_train_epoch_start(self, trainer: Any, module: nn.Module) -> None:
            left = 1 - trainer.current_epoch / trainer.max_epochs
            noisin.set_noise(module, noise.Gaussian(0.2 * left))

    return Parity(), Anneal()


def main(num_epochs: int = 5) -> float | None:
    try:
        import lightning
    except ModuleNotFoundError:
        print("This example needs Lightning: pip install lightning")
        return None
    lightning.seed_everything(1111, verbose=False)
    module, anneal = module_and_callback(lightning)
    bits = torch.randint(2, (2000, 16)).float()
    loaders = [DataLoader(TensorDataset(part), batch_size=50) for part in bits.split(1800)]
    trainer = lightning.Trainer(
        max_epochs=num_epochs, callbacks=[anneal], accelerator="cpu", logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(module, *loaders)
    loss = float(trainer.callback_metrics["valid"])
    print(f"validation loss after {num_epochs} epochs: {loss:.3f} nats a step (chance 0.693)")
    return loss


if __name__ == "__main__":
    main()
