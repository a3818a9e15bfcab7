"""Darts' RNNModel, trained with noise by a callback of its trainer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.frameworks import drawn

darts = pytest.importorskip("darts")
from darts.models import RNNModel  # noqa: E402

from noisin.lightning import NoiseCallback  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_rnn_model(kind: str, tmp_path: Path) -> None:
    series = darts.TimeSeries.from_values(np.sin(np.arange(60) / 3).astype(np.float32))
    model = RNNModel(
        input_chunk_length=6, training_length=10, model=kind, hidden_dim=4, n_epochs=1,
        batch_size=8, work_dir=str(tmp_path),
        pl_trainer_kwargs={
            "accelerator": "cpu", "callbacks": [NoiseCallback(drawn.law())],
            "enable_progress_bar": False, "logger": False,
        },
    )  # fmt: skip
    model.fit(series)
    drawn.assert_trained_with_noise(model.model)
    assert np.isfinite(model.predict(3).values()).all()
