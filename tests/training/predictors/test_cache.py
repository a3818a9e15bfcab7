"""The continuous cache against a loop over words, and what it composes with."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from noisin.data import Batch, Windows
from noisin.errors import InvalidType, InvalidValue, NoisinError, Unsupported
from noisin.likelihoods import Bernoulli
from noisin.models import Dense, SequenceModel, Values
from noisin.noise import Gaussian
from noisin.recurrent.modules import LSTM
from noisin.training.predictors import Arithmetic, Cache, Clean, MonteCarlo, cache, evaluate
from tests.pairwise import table
from tests.training.predictors import toy
from tests.training.predictors.toy import WORDS, model, score

IDS = toy.IDS[:41]


def columns(batch_size: int) -> Batch:
    (whole,) = Windows(IDS, batch_size, 1000).epoch(0)
    return whole


@torch.no_grad()
def by_loop(lm: Any, batch: Batch, window: int, theta: float, lam: float) -> Tensor:
    """Grave's equations, one word at a time and in plain probabilities."""
    z, _ = lm.encode(batch.x)
    p = lm(batch.x)[0].softmax(-1)
    T, N = batch.target.shape
    log_p = torch.empty(T, N, dtype=torch.double)
    for n in range(N):
        for t in range(T):
            mass = torch.zeros(WORDS, dtype=torch.double)
            for i in range(max(0, t - window), t):
                mass[batch.target[i, n]] += torch.exp(theta * z[t, n] @ z[i, n])
            q = p[t, n] if t == 0 else (1 - lam) * p[t, n] + lam * mass / mass.sum()
            assert q.sum() == pytest.approx(1)
            log_p[t, n] = q[batch.target[t, n]].log()
    return log_p


@pytest.mark.parametrize(
    ("window", "batch_size", "theta", "lam", "length", "rows"),
    table([1, 6, 500], [1, 3], [0.0, 0.7, 3.0], [0.1, 0.9], [1, 5, 1000], [2, 64]),
)
def test_a_loop_over_words(
    window: int,
    batch_size: int,
    theta: float,
    lam: float,
    length: int,
    rows: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cache, "ROWS", rows)
    lm = model(noise=Gaussian(0.5)).eval()
    expected = by_loop(lm, columns(batch_size), window, theta, lam)
    found, state = [], None
    for batch in Windows(IDS, batch_size, length).epoch(0):
        log_p, state = Cache(lm, window, theta, lam)(batch, state)
        found.append(log_p)
    torch.testing.assert_close(torch.cat(found), expected, rtol=1e-10, atol=1e-12)
    assert len(state.keys) == min(window, len(expected))


def test_without_a_share_it_is_the_model() -> None:
    lm = model()
    assert score(Cache(Clean(lm, 0.8), lambda_=0.0)) == score(Clean(lm, 0.8))


def test_the_probabilities_of_all_words_sum_to_one() -> None:
    """With every word in turn as the last target, which must not be in its own cache."""
    lm, batch = model(), columns(2)
    total = torch.zeros(2, dtype=torch.double)
    for word in range(WORDS):
        target = batch.target.clone()
        target[-1] = word
        total += Cache(lm, 30, 0.5, 0.4)(Batch(batch.x, target))[0][-1].exp()
    torch.testing.assert_close(total, torch.ones(2, dtype=torch.double))


def test_the_gradient_is_finite_where_the_cache_is_empty_or_has_not_the_word() -> None:
    lm = model()
    batch = columns(1).rows(slice(0, 4))
    reading = Cache(lm, 2, 0.5, 0.3).read(batch)
    gradients = torch.autograd.grad(reading.log_p.sum(), list(lm.parameters()))
    assert all(g.isfinite().all() for g in gradients)

    def log_p(z: Tensor) -> Tensor:
        (before,) = reading.log_p.detach()[:1].unbind()
        return Cache(lm, 2, 0.5, 0.3)._mixed(
            before.expand(4, 1), z, batch.target[..., None], z, batch.target[..., None]
        )

    assert torch.autograd.gradcheck(log_p, reading.z.detach().requires_grad_())


def test_a_repetitive_text_is_learnt() -> None:
    lm = model()
    ids = IDS[:9].tolist() * 20
    windows = Windows(torch.tensor(ids).numpy(), 1, 35)
    static = evaluate(Clean(lm), windows.epoch(0)).nats
    assert evaluate(Cache(lm, 100, 2.0, 0.9), windows.epoch(0)).nats < static - 0.3


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"window": 0}, "window must be a whole number, 1 or more, got 0"),
        ({"window": 2.5}, "window must be"),
        ({"theta": -1}, "theta must be a finite number, 0 or more"),
        ({"theta": math.nan}, "got nan"),
        ({"lambda_": 1}, r"lambda_ must lie in \[0, 1\), got 1"),
        ({"lambda_": -0.1}, "lambda_ must be a finite number, 0 or more"),
        ({"lambda_": "x"}, "lambda_ must be"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        Cache(model(), **arguments)


def test_an_ensemble_has_no_hidden_state_to_compare() -> None:
    lm = model(noise=Gaussian(0.5))
    for mixed in (Arithmetic(lm, 2), MonteCarlo(lm, 2)):
        with pytest.raises(InvalidType, match="mixes samples that have a hidden state each"):
            Cache(mixed)
    for wrong in (None, 3, Clean, "Clean"):
        with pytest.raises(NoisinError, match="expected a model or a predictor"):
            Cache(wrong)


def test_notes_are_refused() -> None:
    notes = SequenceModel(Values(3), [LSTM(3, 4)], Dense(4, 3, Bernoulli()))
    frames = torch.zeros(5, 1, 3)
    with pytest.raises(Unsupported, match="expected words to predict"):
        Cache(notes)(Batch(frames, frames))
