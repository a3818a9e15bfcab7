"""Padding has no effect: on no score, no likelihood, no gradient and no convention."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import noisin
from noisin.data import Batch
from noisin.errors import InvalidType
from noisin.likelihoods import LIKELIHOODS, SCALED
from noisin.models import Dense, LanguageModel, LearntScale, SequenceModel, Values
from noisin.tasks.sequences import EVAL_ROWS, Sequences, Steps, cut, padded
from noisin.training import predictors
from noisin.training.predictors.conventions import Conventions
from tests.pairwise import table

LENGTHS = (5, 2, 9, 7)
VALUES = ("bernoulli", "poisson", "gaussian", "scaled-gaussian", "student-t")
PREDICTORS = {
    "clean": predictors.Clean,
    "marginal": lambda model: predictors.Marginal(model, 3, length=4),
    "arithmetic": lambda model: predictors.Arithmetic(model, 3),
    "geometric": lambda model: predictors.Geometric(model, 3),
    "monte-carlo": lambda model: predictors.MonteCarlo(model, 3),
    "dynamic": lambda model: predictors.Dynamic(
        model, predictors.Rates(lr=0.1, decay=0.0, normalisation="sgd"), segment=2
    ),
}


def some(lengths: tuple[int, ...] = LENGTHS) -> list[Steps]:
    random = np.random.RandomState(0)
    return [
        Steps(
            random.standard_normal((n, 3)).astype(np.float32),
            random.randint(2, size=(n, 2)).astype(np.float32),
            np.ones(n, bool),
        )
        for n in lengths
    ]


def model_of(likelihood: str) -> Any:
    torch.manual_seed(0)
    layer = noisin.LSTM(3, 4, noise=noisin.noise.Gaussian(0.5))
    if likelihood in SCALED:
        head: nn.Module = LearntScale(4, 2, SCALED[likelihood]())
    else:
        head = Dense(4, 2, LIKELIHOODS[likelihood]())
    return SequenceModel(Values(3), [layer], head).double()


def garbage(batch: Batch) -> Batch:
    """Other inputs and targets where nothing is scored."""
    hidden = ~batch.scored
    x, target = batch.x.clone(), batch.target.clone()
    x[hidden] = 77.0
    target[hidden] = 1 - target[hidden]
    return replace(batch, x=x, target=target)


def longer(batch: Batch) -> Batch:
    """More padding."""
    assert batch.scored is not None
    x, target, scored = (
        torch.cat([part, torch.zeros_like(part[:3])])
        for part in (batch.x, batch.target, batch.scored)
    )
    return Batch(x, target, scored, carries=False)


@pytest.mark.parametrize(("kind", "likelihood"), table(PREDICTORS, VALUES))
def test_a_score_does_not_depend_on_what_padding_contains(kind: str, likelihood: str) -> None:
    def scored(batch: Batch) -> Any:
        torch.manual_seed(1)
        found = Conventions()
        predictor = PREDICTORS[kind](model_of(likelihood))
        score = predictors.evaluate(predictor, [batch], each=found.add)
        return score.nats, score.count, str(score.stderr), found.to_json()

    batch = padded(some())
    if kind == "geometric" and likelihood in SCALED:
        with pytest.raises(InvalidType, match="with a linear head only, got LearntScale"):
            scored(batch)
        return
    assert scored(garbage(batch)) == scored(batch)
    assert scored(batch)[1] == sum(LENGTHS)


@pytest.mark.parametrize("likelihood", VALUES)
def test_a_score_is_that_of_the_sequences_one_by_one(likelihood: str) -> None:
    def scored(batches: Iterator[Batch] | list[Batch]) -> tuple[float, int, Any]:
        found = Conventions()
        clean = predictors.Clean(model_of(likelihood))
        score = predictors.evaluate(clean, batches, each=found.add)
        return score.nats, score.count, found.to_json()

    nats, count, conventions = scored([padded([steps]) for steps in some()])
    for batches in ([padded(some())], [longer(padded(some()))]):
        found = scored(batches)
        assert found[:2] == (pytest.approx(nats, rel=1e-12), count)
        assert found[2]["mean"] == pytest.approx(conventions["mean"], rel=1e-12)
        after, expected = found[2]["after_first"], conventions["after_first"]
        assert after["count"] == expected["count"] == sum(LENGTHS) - len(LENGTHS)
        assert after["nats"] == pytest.approx(expected["nats"], rel=1e-12)


@pytest.mark.parametrize("likelihood", VALUES)
def test_a_gradient_does_not_depend_on_padding(likelihood: str) -> None:
    def gradient(batch: Batch) -> list[torch.Tensor]:
        model = model_of(likelihood).eval()  # without noise, whose draws depend on the shape
        loss = model.loss(batch)
        return list(torch.autograd.grad(loss.objective, list(model.parameters())))

    batch = padded(some())
    for other in (garbage(batch), longer(batch)):
        torch.testing.assert_close(gradient(other), gradient(batch), rtol=1e-10, atol=1e-12)


def test_words_in_padded_columns() -> None:
    """The categorical likelihood has its own path, in chunks."""
    torch.manual_seed(0)
    model = LanguageModel(7, hidden_size=4).double()
    x, target = torch.randint(7, (6, 3)), torch.randint(7, (6, 3))
    scored = torch.arange(6).unsqueeze(1) < torch.tensor([6, 2, 4])
    batch = Batch(x, target, scored, carries=False)
    other = replace(batch, x=x.where(scored, 0), target=target.where(scored, 3))
    losses = [model.loss(b).mean for b in (batch, other)]
    assert losses[0] == losses[1]
    scores = [predictors.evaluate(predictors.Clean(model), [b]) for b in (batch, other)]
    assert scores[0] == scores[1]
    assert scores[0].count == 12


def task(*lengths: int, **settings: Any) -> Sequences:
    splits = {"train": some(lengths), "valid": some((4,)), "test": some((3,))}
    return Sequences(splits, batch_size=2, eval_batch_size=3, **settings)


def test_a_long_sequence_is_cut_for_training_alone() -> None:
    found = task(10, 3, longest=4)
    parts = list(found._train)
    assert [len(part.x) for part in parts] == [3, 3, 4, 3]
    assert np.array_equal(np.concatenate([p.target for p in parts[:3]]), some((10, 3))[0].target)
    assert found.extent == 4
    assert sum(b.count for b in found.batches("train")) == 13
    assert [b.x.shape[:2] for b in found.batches("train_clean")] == [(10, 2)]


def test_layers_are_told_of_the_padding() -> None:
    """In training and in scoring: a batch that says so may be computed without it."""
    found = task(10, 3)
    assert {b.padded for split in found.splits for b in found.batches(split)} == {True}
    (batch,) = found.batches("train")
    assert batch.lengths is not None
    assert sorted(batch.lengths.tolist()) == [3, 10]


def test_sequences_of_like_length_are_scored_together() -> None:
    splits = {name: some((9, 2, 8, 3, 1, 7)) for name in ("train", "valid", "test")}
    found = Sequences(splits, batch_size=6, eval_batch_size=2)
    for split in "valid", "test", "train_clean":
        assert [b.scored.sum(0).tolist() for b in found.batches(split)] == [[1, 2], [3, 7], [8, 9]]


def test_cut() -> None:
    for T in range(1, 30):
        (steps,) = some((T,))
        for longest in (1, 4, 29, None):
            lengths = [len(part.x) for part in cut(steps, longest)]
            assert sum(lengths) == T
            assert max(lengths) - min(lengths) <= 1
            assert longest is None or max(lengths) <= longest
            assert len(lengths) == (1 if longest is None else -(-T // longest))


def test_how_much_of_train_is_scored_without_noise() -> None:
    def clean(steps: int) -> int:
        found = task(5, 4, 6, clean_steps=steps)
        return sum(b.count for b in found.batches("train_clean"))

    assert [clean(n) for n in (1, 5, 9, 10, 15, 99)] == [5, 5, 9, 9, 15, 15]
    assert "train_clean" not in task(5, clean_steps=0).splits


def test_a_very_long_sequence_is_scored_in_windows() -> None:
    steps = Steps(
        np.ones((EVAL_ROWS + 3, 3), np.float32),
        np.ones((EVAL_ROWS + 3, 2)),
        np.ones(EVAL_ROWS + 3, bool),
    )
    found = Sequences(
        {"train": [steps], "valid": [steps], "test": [steps]}, batch_size=1, eval_batch_size=1
    )
    first, second = found.batches("test")
    assert (len(first.x), first.carries) == (EVAL_ROWS, False)
    assert (len(second.x), second.carries) == (3, True)


def test_the_error_of_several_batches_of_sequences() -> None:
    """Two groups of sequences are independent: their variances add up."""
    model = model_of("bernoulli")
    groups = [padded(some((4, 6))), padded(some((5, 3, 2)))]
    torch.manual_seed(1)
    each = [predictors.evaluate(predictors.Arithmetic(model, 4), [group]) for group in groups]
    torch.manual_seed(1)
    both = predictors.evaluate(predictors.Arithmetic(model, 4), groups)
    total = sum((score.stderr * score.count) ** 2 for score in each) ** 0.5
    assert both.count == 20
    assert both.stderr == pytest.approx(total / 20, rel=1e-9)


def test_conventions_of_windows_are_those_of_the_whole() -> None:
    model = model_of("bernoulli")
    found, windows = Conventions(), Conventions()
    predictors.evaluate(predictors.Clean(model), [padded(some())], each=found.add)
    parts = list(predictors.base.in_rows([padded(some())], 4))
    assert [p.carries for p in parts] == [False, True, True]
    predictors.evaluate(predictors.Clean(model), parts, each=windows.add)
    expected, got = found.to_json(), windows.to_json()
    assert expected is not None
    assert got is not None
    assert got["mean"] == pytest.approx(expected["mean"], rel=1e-12)
    assert got["after_first"]["nats"] == pytest.approx(expected["after_first"]["nats"], rel=1e-12)


def test_conventions_by_brute_force() -> None:
    model, nll = model_of("bernoulli"), []
    for steps in some():
        log_p, _ = predictors.Clean(model)(padded([steps]))
        nll.append(-log_p[:, 0])
    found = Conventions()
    predictors.evaluate(predictors.Clean(model), [padded(some())], each=found.add)
    told = found.to_json()
    assert told is not None
    assert told["mean"] == pytest.approx(float(np.mean([float(n.mean()) for n in nll])))
    later = torch.cat([n[1:] for n in nll])
    assert told["after_first"] == {
        "nats": pytest.approx(float(later.mean())),
        "count": len(later),
    }
    assert told["sequences"] == len(LENGTHS)


def test_a_stream_has_no_other_conventions() -> None:
    x = torch.zeros(3, 2, 3)
    found = Conventions()
    found.add(Batch(x, x), -torch.ones(3, 2))
    assert found.to_json() is None
    found.add(Batch(x[:, :1], x[:, :1], carries=False), -torch.ones(3, 1))
    assert found.to_json() is None, "nor has a single sequence"
