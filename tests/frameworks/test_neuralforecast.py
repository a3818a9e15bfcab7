"""NeuralForecast's LSTM and GRU, trained with noise by a callback of their trainer."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frameworks import drawn

pytest.importorskip("neuralforecast")
import pandas as pd  # type: ignore[import-not-found, import-untyped, unused-ignore]
from neuralforecast import NeuralForecast
from neuralforecast.models import GRU, LSTM

from noisin.lightning import NoiseCallback

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.mark.parametrize("kind", [LSTM, GRU])
def test_a_recurrent_model(kind: Any) -> None:
    days = pd.date_range("2020-01-01", periods=60)
    frame = pd.DataFrame({"unique_id": "a", "ds": days, "y": np.sin(np.arange(60) / 3)})
    model = kind(
        h=3, input_size=8, encoder_hidden_size=4, decoder_hidden_size=4, max_steps=3,
        accelerator="cpu", callbacks=[NoiseCallback(drawn.law())], enable_progress_bar=False,
        logger=False, enable_checkpointing=False,
    )  # fmt: skip
    forecaster = NeuralForecast(models=[model], freq="D")
    forecaster.fit(frame)
    drawn.assert_trained_with_noise(forecaster.models[0])
    assert np.isfinite(forecaster.predict()[kind.__name__]).all()
