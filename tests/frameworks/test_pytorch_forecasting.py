"""PyTorch Forecasting's models, whose RNNs are subclasses of torch's, trained with noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import noisin
from noisin.testing import check_noise_reaches
from tests.frameworks import drawn

pf = pytest.importorskip("pytorch_forecasting")
import lightning.pytorch as pl  # noqa: E402 - after the package that brings it
import pandas as pd  # type: ignore[import-not-found, import-untyped, unused-ignore]  # noqa: E402

from noisin.lightning import NoiseCallback  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


def dataset() -> Any:
    t, value = np.arange(40), np.sin(np.arange(40) / 3)
    frame = pd.concat(
        [pd.DataFrame({"t": t, "value": value + k, "group": str(k)}) for k in range(3)],
        ignore_index=True,
    )
    return pf.TimeSeriesDataSet(
        frame, time_idx="t", target="value", group_ids=["group"], max_encoder_length=8,
        min_encoder_length=4, max_prediction_length=3, time_varying_unknown_reals=["value"],
        target_normalizer=pf.data.GroupNormalizer(groups=["group"]),
    )  # fmt: skip


MODELS = {
    "DeepAR": lambda data: pf.DeepAR.from_dataset(data, hidden_size=4, rnn_layers=2),
    "DeepAR-GRU": lambda data: pf.DeepAR.from_dataset(data, hidden_size=4, cell_type="GRU"),
    "RecurrentNetwork": lambda data: pf.RecurrentNetwork.from_dataset(data, hidden_size=4),
    "TFT": lambda data: pf.TemporalFusionTransformer.from_dataset(
        data, hidden_size=4, attention_head_size=1, hidden_continuous_size=4, output_size=7,
        loss=pf.QuantileLoss(),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_model_trains_with_noise_and_is_saved_without(name: str, tmp_path: Path) -> None:
    data = dataset()
    model, law = MODELS[name](data), drawn.law()
    trainer = pl.Trainer(
        max_epochs=1, limit_train_batches=2, accelerator="cpu", logger=False,
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
        callbacks=[NoiseCallback(law)],
    )  # fmt: skip
    loader = data.to_dataloader(train=True, batch_size=8, num_workers=0)
    trainer.fit(model, loader)
    drawn.assert_trained_with_noise(model)
    loaded = type(model).load_from_checkpoint(
        trainer.checkpoint_callback.best_model_path, weights_only=False
    )
    assert list(loaded.state_dict()) == list(model.state_dict())


@pytest.mark.parametrize("name", MODELS)
def test_noise_reaches_the_output_of_a_converted_model(name: str) -> None:
    data = dataset()
    model = MODELS[name](data)
    theirs = [type(m) for m in model.modules() if isinstance(m, torch.nn.RNNBase)]
    assert theirs
    assert not {*theirs} & {torch.nn.LSTM, torch.nn.GRU}, "theirs are subclasses"
    noisin.convert(model, drawn.law())
    x, _ = next(iter(data.to_dataloader(train=True, batch_size=8, num_workers=0)))
    model.train()
    check_noise_reaches(model, x, call=lambda model, x: model(x)["prediction"])
    noisin.revert(model)
    assert [type(m) for m in model.modules() if isinstance(m, torch.nn.RNNBase)] == theirs
