"""``check_noise_reaches``: whether the noise of a converted model does anything."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import noisin
from noisin import noise
from noisin.errors import NoisinError
from noisin.testing import check_noise_reaches

LAW = noise.Gaussian(0.5)


class Classifier(nn.Module):
    """Reads the last output, or the state h_n; with dropout and statistics of the batch."""

    def __init__(self, reads: str) -> None:
        super().__init__()
        self.rnn, self.reads = nn.LSTM(2, 4, batch_first=True), reads
        self.dropout, self.norm = nn.Dropout(0.5), nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        z, (h, _) = self.rnn(x)
        return {"s": self.norm(self.dropout(z[:, -1] if self.reads == "output" else h[-1]))}


X = torch.randn(6, 5, 2, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("reads", ["output", "state"])
@pytest.mark.parametrize("feedback", [True, False])
def test_noise_that_is_not_fed_back_does_not_reach_the_state(
    feedback: bool, reads: str, training: bool
) -> None:
    model = noisin.convert(Classifier(reads), LAW, feedback=feedback).train(training)
    random, buffers = torch.get_rng_state(), [b.clone() for b in model.buffers()]
    injection = model.rnn.injection
    if feedback or reads == "output":
        check_noise_reaches(model, X)
    else:
        with pytest.raises(AssertionError, match=r"the noise of 'rnn' \(LSTM\) does not change"):
            check_noise_reaches(model, X)
    assert torch.equal(random, torch.get_rng_state())
    assert all(map(torch.equal, buffers, model.buffers()))
    assert model.rnn.injection is injection
    assert model.rnn._noise_switch is None
    assert model.training == training


def test_every_module_is_asked() -> None:
    model = noisin.convert(nn.ModuleDict({"a": nn.LSTM(2, 3), "b": nn.GRU(2, 3)}), LAW)
    both = lambda m, x: [m["a"](x)[0], (m["b"](x)[0],)]  # noqa: E731
    check_noise_reaches(model, X, call=both)
    with pytest.raises(AssertionError, match=r"noise of 'b' \(GRU\)"):
        check_noise_reaches(model, X, call=lambda m, x: m["a"](x)[0])


@pytest.mark.parametrize("batch", [X, (X,), [X], {"x": X}], ids=["x", "tuple", "list", "dict"])
def test_how_a_model_is_called(batch: Any) -> None:
    check_noise_reaches(noisin.convert(Classifier("output"), LAW), batch)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: check_noise_reaches(5, X), "expected a model"),
        (lambda: check_noise_reaches(Classifier("output"), X), "Classifier contains none"),
        (lambda: check_noise_reaches(noisin.LSTM(2, 3), X), "'' has none"),
        (
            lambda: check_noise_reaches(noisin.LSTM(2, 3, noise=LAW), X, call=lambda m, x: 5),
            "found no tensors in what LSTM returns",
        ),
    ],
)
def test_bad_calls(call: Any, message: str) -> None:
    with pytest.raises(NoisinError, match=message):
        call()
