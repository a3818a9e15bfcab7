"""GluonTS's DeepAR, trained with noise by a callback of its trainer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.frameworks import drawn

gluonts = pytest.importorskip("gluonts")
pytest.importorskip("lightning")
import pandas as pd  # type: ignore[import-not-found, import-untyped, unused-ignore]  # noqa: E402
from gluonts.dataset.common import ListDataset  # noqa: E402
from gluonts.torch import DeepAREstimator  # noqa: E402

from noisin.lightning import NoiseCallback  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def test_deepar(tmp_path: Path) -> None:
    series = [{"start": pd.Period("2020-01-01", "D"), "target": np.sin(np.arange(60) / 3 + k)}
              for k in range(3)]  # fmt: skip
    estimator = DeepAREstimator(
        freq="D", prediction_length=3, context_length=6, hidden_size=4, batch_size=4,
        num_batches_per_epoch=2, num_parallel_samples=5,
        trainer_kwargs={
            "max_epochs": 1, "accelerator": "cpu", "callbacks": [NoiseCallback(drawn.law())],
            "enable_progress_bar": False, "logger": False, "default_root_dir": str(tmp_path),
        },
    )  # fmt: skip
    predictor = estimator.train(ListDataset(series, freq="D"))
    drawn.assert_trained_with_noise(predictor.prediction_net)
    forecast = next(iter(predictor.predict(ListDataset(series, freq="D"))))
    assert np.isfinite(forecast.mean).all()
