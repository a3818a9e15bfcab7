"""Noise that is biased on purpose, and laws beyond the paper's table."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from scipy import stats as scipy_stats
from torch.testing import assert_close

import noisin
from noisin import analysis, noise
from noisin.errors import InvalidType, InvalidValue
from noisin.noise import Biased, Gaussian
from noisin.noise.others import StudentT, TwoPoint
from noisin.testing import NoiseContract
from tests import stats
from tests.laws import draw


def test_its_factor_has_the_mean_and_the_coefficient_of_variation() -> None:
    biased = Biased(Gaussian(0.5), mean=1.25)
    factor = 1 + draw(biased)
    stats.assert_mean(factor, 1.25, biased.std)
    spread = 1.25**2 * 0.25
    assert biased.variance == pytest.approx(spread)
    stats.assert_mean((factor - 1.25) ** 2, spread, math.sqrt(2) * spread)


def test_a_mean_of_one_is_the_noise_itself() -> None:
    x = torch.randn(5, 4, 2)
    runs = []
    for law in (Gaussian(0.5), Biased(Gaussian(0.5), 1.0)):
        torch.manual_seed(3)
        rnn = noisin.LSTM(2, 3, noise=law)
        runs.append(torch.cat([rnn(x)[0], rnn.eval()(x)[0]]))
    assert_close(*runs)


@pytest.mark.parametrize("mean", [0.8, 1.25])
def test_rescaled_it_is_unbiased_noise_on_larger_weights(mean: float) -> None:
    """The mean may as well be in the weights that read z: those of the recurrence and the head."""
    x = torch.randn(5, 4, 2, dtype=torch.float64)
    biased = noisin.LSTM(2, 3, num_layers=2, noise=Biased(Gaussian(0.5), mean)).double()
    folded = copy.deepcopy(biased)
    noisin.set_noise(folded, Gaussian(0.5))
    with torch.no_grad():
        for name in ("weight_hh_l0", "weight_ih_l1", "weight_hh_l1"):
            getattr(folded, name).mul_(mean)
    for training in (True, False):
        outputs = []
        for rnn in (biased, folded):
            torch.manual_seed(1)
            outputs.append(rnn.train(training)(x)[0])
        assert_close(outputs[0], mean * outputs[1])


def test_without_rescaling_the_clean_rnn_is_evaluated() -> None:
    x = torch.randn(5, 4, 2)
    rnn = noisin.LSTM(2, 3, noise=Biased(Gaussian(0.5), 0.8, rescaled=False)).eval()
    clean = noisin.revert(copy.deepcopy(rnn))
    assert_close(rnn(x)[0], clean(x)[0])


@pytest.mark.parametrize("share", ["step", "sequence"])
@pytest.mark.parametrize("feedback", [True, False])
def test_a_cell_that_is_unrolled_is_scaled_once(feedback: bool, share: Any) -> None:
    x = torch.randn(5, 4, 2)
    law = Biased(Gaussian(0.5), 0.8)
    layer = noisin.LSTM(2, 3, noise=law, feedback=feedback, share=share).eval()
    cell = noisin.LSTMCell(2, 3, noise=law, feedback=feedback, share=share).eval()
    with torch.no_grad():
        for name, p in cell.named_parameters():
            p.copy_(getattr(layer, f"{name}_l0"))
    assert_close(noisin.unroll(cell, x)[0], layer(x)[0])


@pytest.mark.parametrize("rescaled", [True, False])
def test_check_unbiased_finds_the_bias_of_what_is_evaluated(rescaled: bool) -> None:
    rnn = noisin.LSTM(
        2, 3, noise=Biased(Gaussian(0.5), 0.8, rescaled), feedback=False, noisy_layers="last"
    )
    found = analysis.check_unbiased(rnn, torch.randn(4, 2))
    assert found.verdict == ("no bias found" if rescaled else "biased")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Biased(Gaussian(0.5), 0.0), "mean must be above 0 and at most 1000, got 0"),
        (lambda: Biased(Gaussian(0.5), 1e39), "at most 1000, got 1e"),
        (lambda: Biased(Gaussian(0.5), math.nan), "mean"),
        (lambda: noisin.LSTM(2, 3, noise=Biased(Gaussian(0.5), 0.8), mode="additive"),
         "mode must be 'multiplicative', got 'additive'"),
        (lambda: noisin.LSTM(2, 3, num_layers=2, noise=[None, Biased(Gaussian(0.5), 0.8)]),
         "the same in all layers"),
        (lambda: analysis.Penalty(noisin.likelihoods.Categorical(), Biased(Gaussian(0.5), 0.8)),
         "that of unbiased noise"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(make: Any, says: str) -> None:
    with pytest.raises(InvalidValue, match=says):
        make()
    with pytest.raises(InvalidType):
        Biased(0.5, 0.8)


# Laws without tails and with heavy ones


class TestTwoPoint(NoiseContract):
    def noise(self) -> noise.Noise:
        return TwoPoint(0.7)


class TestStudentT(NoiseContract):
    def noise(self) -> noise.Noise:
        return StudentT(0.7)


def test_the_laws() -> None:
    assert {*draw(TwoPoint(0.7)).tolist()} == {-0.7, 0.7}
    law = scipy_stats.t(5, scale=0.7 * math.sqrt(3 / 5))
    stats.assert_law(draw(StudentT(0.7), 200_000), law.cdf)
    eps = torch.linspace(-3, 3, 7, dtype=torch.float64)
    assert_close(StudentT(0.7).log_prob(eps), torch.from_numpy(law.logpdf(eps.numpy())))
    assert StudentT.from_variance(0.25) == StudentT(0.5)
