"""skorch, with a callback of its own that scikit-learn can clone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from noisin import noise
from tests.frameworks import drawn

skorch = pytest.importorskip("skorch")
from sklearn.base import clone  # noqa: E402

from noisin.skorch import NoiseNetCallback  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


class Regressor(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.V = nn.LSTM(1, 4, batch_first=True), nn.Linear(4, 1)

    def forward(self, X: Any) -> Tensor:
        s: Tensor = self.V(self.rnn(X)[0][:, -1])
        return s


def test_a_net_trains_with_scheduled_noise() -> None:
    X = np.random.default_rng(1).normal(size=(16, 5, 1)).astype(np.float32)
    schedule = noise.Ramp("linear", epochs=2)
    callback = NoiseNetCallback(drawn.law(), schedule=schedule, settings={"feedback": False})
    net = skorch.NeuralNetRegressor(
        Regressor, max_epochs=2, callbacks=[("noise", callback)], verbose=0, train_split=None
    )
    net = clone(net)
    net.fit(X, X.sum(1))
    drawn.assert_trained_with_noise(net.module_)
    assert type(net.module_.rnn) is nn.LSTM
    assert torch.is_tensor(net.module_.rnn.weight_hh_l0)
