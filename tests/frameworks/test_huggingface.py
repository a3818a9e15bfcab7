"""The Trainer of Hugging Face transformers, and a loop of accelerate."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import noisin
from tests.frameworks import drawn

pytestmark = pytest.mark.filterwarnings("ignore")


class Regressor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.V = nn.GRU(1, 4, batch_first=True), nn.Linear(4, 1)

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        s = self.V(self.rnn(x)[0][:, -1])
        return {"loss": (s - labels).pow(2).mean(), "logits": s}


def test_trainer(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    from noisin.huggingface import NoiseTrainerCallback

    data = [{"x": torch.randn(5, 1), "labels": torch.randn(1)} for _ in range(8)]
    model = Regressor()
    trainer = transformers.Trainer(
        model=model, train_dataset=data, callbacks=[NoiseTrainerCallback(drawn.law())],
        args=transformers.TrainingArguments(
            output_dir=str(tmp_path), num_train_epochs=2, per_device_train_batch_size=4,
            use_cpu=True, report_to=[], disable_tqdm=True, save_strategy="no",
        ),
    )  # fmt: skip
    trainer.train()
    drawn.assert_trained_with_noise(model)


def test_accelerate() -> None:
    """No callback: convert, prepare, revert."""
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    model: Any = noisin.convert(Regressor(), drawn.law())
    loader = DataLoader(TensorDataset(torch.randn(8, 5, 1), torch.randn(8, 1)), batch_size=4)
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.Adam(model.parameters()), loader
    )
    for x, labels in loader:
        accelerator.backward(model(x, labels)["loss"])
        optimizer.step()
        optimizer.zero_grad()
    noisin.revert(model)
    drawn.assert_trained_with_noise(accelerator.unwrap_model(model))
