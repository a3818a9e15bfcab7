"""Series: inputs are the past and what is known in advance; nothing of the future."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from noisin.data.series import Scaling, SeriesSet, SeriesTable
from noisin.errors import InvalidData, InvalidValue
from noisin.tasks import Series
from noisin.tasks.base import Observation

T = 40


def data(likelihood: str = "poisson", targets: int = 2, **given: Any) -> SeriesSet:
    random = np.random.RandomState(0)
    x = random.poisson(9.0, (T, targets)).astype(float)
    if likelihood == "bernoulli":
        x = (x > 9).astype(float)
    known = np.stack([np.arange(T) % 2, 100.0 + random.standard_normal(T)], 1)
    table = SeriesTable("toy", x, known, np.ones(T, bool))
    return SeriesSet(
        "toy",
        tuple(f"y{i}" for i in range(targets)),
        ("odd", "price"),
        likelihood,
        [table.rows(0, 24)],
        [table.rows(24, 32, 5)],
        [table.rows(32, T, 5)],
        **{"seasons": (4,), "sha256": "sha", "source": "toy", **given},
    )


def test_an_input_is_the_step_before_and_the_covariates_of_the_step() -> None:
    found = data()
    task = Series(found, eval_batch_size=1)
    (batch,) = task.batches("train_clean")
    x = found.train[0].target
    assert torch.equal(batch.target[:, 0], torch.from_numpy(x).float()), "counts as they are"
    log = np.log1p(x)
    scaled = (log - log.mean(0)) / log.std(0)
    assert batch.x[0, 0, :2].tolist() == [0.0, 0.0], "nothing precedes the first"
    np.testing.assert_allclose(batch.x[1:, 0, :2], scaled[:-1], rtol=1e-5, atol=1e-6)
    assert batch.x[:, 0, 2].tolist() == [i % 2 for i in range(24)], "zeros and ones stay"
    price = found.train[0].covariates[:, 1]
    np.testing.assert_allclose(batch.x[:, 0, 3], (price - price.mean()) / price.std(), rtol=1e-4)
    assert task.observation == Observation("poisson", 2, inputs=4)
    assert task.observation.bias == pytest.approx(np.log((x.sum(0) + 0.5) / 25).tolist())
    assert task.observation.to_json() == {"likelihood": "poisson", "size": 2, "inputs": 4}


@pytest.mark.parametrize("likelihood", ["gaussian", "scaled-gaussian", "student-t"])
def test_real_values_are_standardised_by_train(likelihood: str) -> None:
    found = data(likelihood)
    task = Series(found, eval_batch_size=1)
    (train,) = task.batches("train_clean")
    torch.testing.assert_close(train.target[:, 0].mean(0), torch.zeros(2), atol=1e-6, rtol=0)
    torch.testing.assert_close(train.target[:, 0].std(0, correction=0), torch.ones(2))
    (test,) = task.batches("test")
    x = found.train[0].target
    expected = (found.test[0].target - x.mean(0)) / x.std(0)
    np.testing.assert_allclose(test.target[:, 0], expected, rtol=1e-5)
    np.testing.assert_allclose(test.x[1:, 0, :2], expected[:-1], rtol=1e-5)


def test_context_is_read_and_not_scored() -> None:
    task = Series(data(), eval_batch_size=1)
    (batch,) = task.batches("valid")
    assert batch.scored[:, 0].tolist() == [False] * 5 + [True] * 8
    assert batch.count == 8


@pytest.mark.parametrize("changes", [False, True])
@pytest.mark.parametrize("likelihood", ["bernoulli", "poisson", "gaussian", "student-t"])
def test_the_next_input_is_that_of_the_data(likelihood: str, changes: bool) -> None:
    """What a path of samples reads is what teacher forcing reads, if the samples are the data."""
    found = data(likelihood, changes=changes)
    task, table = Series(found), found.test[0]
    steps = task.steps(table)
    before, level = np.zeros((1, 2)), np.zeros((1, 2))
    for t in range(len(table)):
        x = task.inputs(level, before, table.covariates[t : t + 1])
        np.testing.assert_allclose(x, steps.x[t : t + 1], atol=1e-5)
        before = level
        level, values = task.after(steps.target[t : t + 1], level)
        np.testing.assert_allclose(values[0], table.target[t], rtol=1e-4, atol=1e-5)


def test_the_density_of_a_change_is_that_of_the_value() -> None:
    """A model of changes and a model of values with the same mean have the same score."""
    plain, changes = (Series(data("gaussian", changes=c), eval_batch_size=1) for c in (False, True))
    (value,), (change,) = plain.batches("test"), changes.batches("test")
    torch.testing.assert_close(change.target + value.x[..., :2], value.target)
    assert change.x.shape[-1] == value.x.shape[-1] + 2
    assert changes.observation.inputs == 6
    for likelihood in ("poisson", "bernoulli"):
        assert not Series(data(likelihood, changes=True)).changes, "counts do not change by counts"


def test_training_reads_parts_of_bptt_steps() -> None:
    task = Series(data(), batch_size=3, bptt=7)
    batches = list(task.batches("train"))
    assert [tuple(b.x.shape) for b in batches] == [(6, 3, 4), (6, 1, 4)]
    assert task.identity["longest"] == 7
    targets = {tuple(row) for b in batches for row in b.target.flatten(0, 1).tolist()}
    assert targets == set(map(tuple, data().train[0].target.tolist()))


def test_a_scaling_and_its_inverse() -> None:
    x = np.array([[0.0, 5.0, 3.0], [1.0, 5.0, 8.0], [1.0, 5.0, 40.0]])
    for logarithm in (False, True):
        scaling = Scaling.of([x], logarithm)
        np.testing.assert_allclose(scaling.undo(scaling(x)), x, atol=1e-12)
        assert scaling.std[1] == 1, "a constant column is not divided by zero"
    kept = Scaling.of([x], binary=True)
    assert (kept.mean[0], kept.std[0]) == (0, 1)
    assert kept.mean[2] == 17


@pytest.mark.parametrize(
    ("likelihood", "value", "message"),
    [
        ("poisson", -1.0, r"'y1' has -1 in row 4, and the likelihood poisson needs a whole number"),
        ("poisson", 0.5, "has 0.5 in row 4.* For real values use scaled-gaussian"),
        ("bernoulli", 2.0, "has 2 in row 4, and the likelihood bernoulli needs 0 or 1"),
        ("student-t", math.inf, "has inf in row 4.* needs a finite number"),
        ("gaussian", math.nan, "has nan in row 4"),
    ],
)
def test_values_that_do_not_fit_the_likelihood(likelihood: str, value: float, message: str) -> None:
    found = data("bernoulli")
    found.train[0].target[3, 1] = value
    with pytest.raises(InvalidData, match=message):
        found.with_likelihood(likelihood)


def test_an_unknown_likelihood() -> None:
    with pytest.raises(InvalidValue, match="expected the likelihood bernoulli, poisson"):
        data().with_likelihood("cauchy")
