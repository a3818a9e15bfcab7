"""Dynamic evaluation against a loop with a model's own copy, its normalisations, and its state."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import noisin
from noisin.data import Batch, Windows
from noisin.errors import InvalidType, InvalidValue, NoisinError, Unsupported
from noisin.models import Dropouts, Loss
from noisin.noise import Gaussian
from noisin.training.predictors import (
    SGD,
    Arithmetic,
    Cache,
    Clean,
    Dynamic,
    Rates,
    Statistics,
    base,
    evaluate,
    gradient_statistics,
)
from tests.training.predictors.toy import IDS, WORDS, model, score, statistics


def noisy(**settings: Any) -> Any:
    return model(noise=Gaussian(0.5), dropout=Dropouts(0.5, 0.5, 0.5, 0.5), **settings)


# M and R as printed in RECIPES 1.11: by name and by sums over tensors, in plain Python.


def m_and_r(name: str, found: Statistics) -> tuple[list[Tensor], list[Tensor]]:
    if name == "sgd":
        ones = [torch.ones_like(total) for total in found.sums]
        return ones, ones
    M = [(total if name == "mos" else total / found.n).sqrt() for total in found.sums]
    means = [m.mean() for m in M]
    if name == "lamb":
        scale = torch.cat([m.flatten() for m in M]).mean()
    else:
        scale = sum(means) if name == "mos" else sum(means) / len(means)
    return M, [m / scale for m in M]


def by_loop(lm: Any, rates: Rates, found: Statistics, segment: int) -> float:
    """On a copy of the model whose parameters are changed."""
    trained, lm = list(lm.parameters()), copy.deepcopy(lm).eval()
    M, R = m_and_r(rates.normalisation, found)
    epsilon = 0.0 if rates.normalisation == "sgd" else rates.epsilon
    total, count, state = 0.0, 0, None
    for batch in Windows(IDS, 1, segment).epoch(0):
        loss = lm.loss(batch, noisin.models.detach(state))
        state = loss.state
        total, count = total + loss.mean.item() * loss.count, count + loss.count
        lm.zero_grad()
        loss.mean.backward()
        with torch.no_grad():
            for p, p0, m, r in zip(lm.parameters(), trained, M, R, strict=True):
                clipped = (rates.decay * r).clamp(max=1)
                p += clipped * (p0 - p) - rates.lr * p.grad / (m + epsilon)
    return total / count


RATES = [
    Rates(0.01, 0.02, 1e-3, "krause"),
    Rates(0.01, 0.9, 1e-3, "krause"),  # clipped
    Rates(0.05, 0.02, 1e-2, "mos"),
    Rates(0.01, 0.02, 1e-3, "lamb"),
    Rates(0.1, 0.02, normalisation="sgd"),
    Rates(0.1, 0.0, normalisation="sgd"),
]


@pytest.mark.parametrize(
    ("rates", "segment"), [*((rates, 5) for rates in RATES), (RATES[0], 1)], ids=str
)
def test_a_loop_over_segments(rates: Rates, segment: int) -> None:
    lm = noisy()
    found = statistics(lm)
    expected = by_loop(lm, rates, found, segment)
    for length in (7, 1000):  # segments do not depend on the batches that the data come in
        measured = score(Dynamic(lm, rates, found, segment), length=length)
        assert measured.nats == pytest.approx(expected, rel=1e-10)
    assert abs(expected - score(Clean(lm)).nats) > 1e-3


class TwoEmbeddings(nn.Module):
    """A model of its own whose embeddings are of all kinds, one of them used twice and tied."""

    def __init__(self) -> None:
        super().__init__()
        self.tied = nn.Embedding(WORDS, 5)
        self.padded = nn.Embedding(WORDS, 5, padding_idx=int(IDS[0]))
        self.frequent = nn.Embedding(WORDS, 5, scale_grad_by_freq=True)
        self.double()

    def loss(self, batch: Batch, state: Any = None) -> Loss:
        log_p, state = self.log_prob(batch, state)
        return Loss(-log_p.mean(), batch.count, {}, state)

    def log_prob(self, batch: Batch, state: Any = None) -> tuple[Tensor, Any]:
        looked_up = self.tied(batch.x) * self.tied(batch.x.flip(0)) + self.padded(batch.x)
        s = (looked_up + self.frequent(batch.x)).tanh() @ self.tied.weight.t()
        found = s.log_softmax(-1).gather(-1, batch.target.long().unsqueeze(-1))
        return found.squeeze(-1), state


@pytest.mark.parametrize("build", [lambda: model(tied=False), TwoEmbeddings])
def test_a_loop_over_segments_with_other_embeddings(build: Any) -> None:
    lm = build()
    found = Statistics([torch.rand_like(p.detach()) for p in lm.parameters()], n=3)
    expected = by_loop(lm, RATES[0], found, segment=5)
    assert score(Dynamic(lm, RATES[0], found)).nats == pytest.approx(expected, rel=1e-10)
    assert not any(module._forward_hooks for module in lm.modules())


def test_gradient_statistics() -> None:
    lm = noisy()
    found = statistics(lm)
    lm = copy.deepcopy(lm).eval()
    sums, state = [torch.zeros_like(p) for p in lm.parameters()], None
    batches = list(Windows(IDS, 4, 5).epoch(0))
    for batch in batches:
        loss = lm.loss(batch, noisin.models.detach(state))
        state = loss.state
        for total, g in zip(sums, torch.autograd.grad(loss.mean, [*lm.parameters()]), strict=True):
            total += g**2
    assert found.n == len(batches) == 4
    torch.testing.assert_close(found.sums, sums)


@pytest.mark.parametrize("name", ["mos", "krause", "lamb"])
@pytest.mark.parametrize("sizes", [[(5,)], [(5,), (2, 3), (1,)]], ids=["one", "three"])
def test_the_normalisations_agree_after_conversion(name: Any, sizes: list[Any]) -> None:
    found = Statistics([torch.rand(size, dtype=torch.double) for size in sizes], n=37)
    rates = Rates(3e-2, 0.1, 2e-3, name)
    for other in ("mos", "krause", "lamb"):
        converted = rates.converted(other, found)
        assert converted.normalisation == other
        for a, b in zip(rates.steps([], found), converted.steps([], found), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=0.0)
        if len(sizes) == 1:  # the printed rule: λ by the tensors, η and ε by √n
            ratio = {"mos": math.sqrt(37)}
            s = ratio.get(other, 1.0) / ratio.get(name, 1.0)
            assert converted.lr == pytest.approx(rates.lr * s)
            assert converted.epsilon == pytest.approx(rates.epsilon * s)
            assert converted.decay == pytest.approx(rates.decay)
    old = Rates(3e-2, 0.1, 2e-3, "mos").converted("krause", found)
    assert old.decay == pytest.approx(0.1 / len(sizes))
    assert old.lr == pytest.approx(3e-2 / math.sqrt(37))


def test_a_clip_does_not_stay() -> None:
    """In public code the largest λ that was tried clips R for all that are tried later."""
    found = Statistics([torch.tensor([1.0, 100.0])], n=1)
    before = Rates(decay=0.01).steps([], found)[1][0]
    assert Rates(decay=0.9).steps([], found)[1][0].max() == 1
    assert torch.equal(Rates(decay=0.01).steps([], found)[1][0], before)


def normalised(**cell_arguments: int) -> Any:
    """With the statistics of a text that was read in windows of three steps."""
    lm = noisy(cell="batch-norm-lstm", cell_arguments=cell_arguments).train()
    state = None
    for batch in Windows(IDS, 4, 3).epoch(0):
        state = noisin.models.detach(lm.loss(batch, state).state)
    return lm.eval()


MODELS = {
    "lstm": noisy,
    "batch norm": normalised,
    "batch norm of steps": lambda: normalised(t_max=7),
    "batch norm of many steps": lambda: normalised(t_max=100),
}


@pytest.mark.parametrize("batch_size", [1, 3])
@pytest.mark.parametrize("name", MODELS)
def test_at_zero_rates_it_is_static(name: str, batch_size: int) -> None:
    lm = MODELS[name]()
    dynamic = Dynamic(lm, Rates(0.0, 0.0), statistics(lm))
    static = score(Clean(lm), batch_size, length=5)
    # Up to rounding: what MKL returns in the last digit depends on where its operands lie.
    assert score(dynamic, batch_size).nats == pytest.approx(static.nats, rel=1e-14)
    whole = score(Clean(lm), batch_size, length=1000)
    assert whole.nats == pytest.approx(static.nats, rel=1e-12)


def test_it_learns_a_repetitive_text() -> None:
    lm = model()
    windows = Windows(IDS[:9].repeat(30), 1, 35)
    static = evaluate(Clean(lm), windows.epoch(0)).nats
    assert evaluate(Dynamic(lm, SGD), windows.epoch(0)).nats < static - 0.3


def test_a_full_decay_forgets_all_but_the_last_segment() -> None:
    """With λR = 1 everywhere, the weights of a segment depend on the one before it alone."""
    lm = model()
    found = Statistics([torch.ones_like(p.detach()) for p in lm.parameters()], n=1)
    rates = Rates(0.1, 0.999999999999, 1.0)
    a, b = (Windows(IDS[first:41], 1, 5) for first in (0, 20))
    ends = []
    for windows in (a, b):
        state = None
        for batch in windows.epoch(0):
            zero = None if state is None else state._replace(inner=None)
            _, state = Dynamic(lm, rates, found)(batch, zero)
        ends.append(state.weights)
    torch.testing.assert_close(ends[0], ends[1], rtol=1e-6, atol=1e-7)


# The model is left as it was


def test_the_model_is_as_it_was_after_every_call() -> None:
    lm = noisy().train()
    before = {name: (p.data_ptr(), p.detach().clone()) for name, p in lm.named_parameters()}

    def unchanged() -> bool:
        return all(
            p.data_ptr() == before[name][0] and torch.equal(p, before[name][1]) and p.grad is None
            for name, p in lm.named_parameters()
        )

    score(Dynamic(lm, SGD))
    assert unchanged()
    assert lm.training
    batch = next(Windows(IDS, 1, 30).epoch(0))
    log_p, state = Dynamic(lm, SGD)(batch)
    assert not torch.equal(state.weights[0], next(lm.parameters()))
    again, _ = Dynamic(lm, SGD)(batch, state)
    assert torch.equal(Dynamic(lm, SGD)(batch, state)[0], again), "the state is not used up"
    assert torch.equal(Dynamic(lm, SGD)(batch)[0], log_p)


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_the_weights_are_restored_after_an_interruption(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    lm = noisy().train()
    before = [p.detach().clone() for p in lm.parameters()]
    original, calls = Clean.read, []

    def interrupted(self: Clean, *given: Any) -> Any:
        calls.append(not torch.equal(next(self.model.parameters()), before[0]))
        if len(calls) == 4:
            raise error
        return original(self, *given)

    monkeypatch.setattr(base.Clean, "read", interrupted)
    with pytest.raises(error):
        score(Dynamic(lm, SGD))
    assert calls == [False, True, True, True], "it was interrupted with adapted weights"
    assert all(torch.equal(p, b) for p, b in zip(lm.parameters(), before, strict=True))
    assert lm.training


# Composition


@pytest.mark.parametrize("outer", ["dynamic", "cache"])
def test_cache_and_dynamic_evaluation_compose(outer: str) -> None:
    lm = model()
    if outer == "dynamic":
        zero = Dynamic(Cache(lm, 9, 0.5, 0.3), Rates(0.0, 0.0, normalisation="sgd"))
        both = Dynamic(Cache(lm, 9, 0.5, 0.3), SGD)
        without: Any = Dynamic(Cache(lm, 9, 0.5, 0.0), SGD)
    else:
        zero = Cache(Dynamic(lm, Rates(0.0, 0.0, normalisation="sgd")), 9, 0.5, 0.3)
        both = Cache(Dynamic(lm, SGD), 9, 0.5, 0.3)
        without = Cache(Dynamic(lm, SGD), 9, 0.5, 0.0)
    assert score(zero).nats == pytest.approx(score(Cache(lm, 9, 0.5, 0.3)).nats, rel=1e-12)
    assert score(without).nats == pytest.approx(score(Dynamic(lm, SGD)).nats, rel=1e-12)
    assert score(both).nats not in (score(zero).nats, score(without).nats)


class OwnModel(nn.Module):
    """Counts words: a model that is no SequenceModel."""

    def __init__(self, graph: bool = True) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(7))
        self.graph = graph

    def loss(self, batch: Batch, state: Any = None) -> Loss:
        raise NotImplementedError

    def log_prob(self, batch: Batch, state: Any = None) -> tuple[Tensor, Any]:
        bias = self.bias if self.graph else self.bias.detach()
        return bias.log_softmax(0)[batch.target], None


def test_a_model_of_ones_own() -> None:
    own = OwnModel()
    assert score(Dynamic(own, SGD)).nats != score(Clean(own)).nats
    found = gradient_statistics(own, Windows(IDS, 4, 70).epoch(0))
    assert score(Dynamic(own, Rates(), found)).count == 82
    with pytest.raises(InvalidType, match="expected a SequenceModel, whose hidden states"):
        Cache(own)
    with pytest.raises(Unsupported, match="log_prob has no gradients"):
        score(Dynamic(OwnModel(graph=False), SGD))
    own.requires_grad_(False)
    with pytest.raises(InvalidValue, match="no parameters that require gradients"):
        Dynamic(own, SGD)


def test_what_is_not_scored_is_not_learnt() -> None:
    lm = model()
    batch = next(Windows(IDS, 1, 20).epoch(0))
    scored = torch.zeros(20, 1, dtype=torch.bool)
    assert score(Dynamic(lm, SGD)).count == 82
    hidden = Batch(batch.x, batch.target, scored)
    _, state = Dynamic(lm, SGD)(hidden)
    assert torch.equal(state.weights[0], next(lm.parameters()))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"segment": 0}, "segment must be a whole number, 1 or more, got 0"),
        ({"rates": 0.1}, "rates must be a Rates, got float"),
        ({"rates": Rates()}, "normalisation 'krause' needs the statistics"),
        ({"statistics": 3}, "statistics must be a Statistics, got int"),
        ({"statistics": Statistics([torch.ones(2)], 1)}, "statistics are of another model"),
        ({"predictor": None}, "expected a model or a predictor"),
        ({"predictor": nn.Linear(1, 1)}, "such as a LanguageModel, got Linear"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(NoisinError, match=message):
        Dynamic(**{"predictor": model(), "rates": SGD, **arguments})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"lr": -1}, "lr must be a finite number, 0 or more"),
        ({"lr": math.inf}, "lr must be a finite"),
        ({"decay": 1.0}, r"decay must lie in \[0, 1\), got 1.0"),
        ({"epsilon": 0}, "epsilon must be a finite number above 0"),
        ({"normalisation": "adam"}, "normalisation must be 'krause' or 'mos'"),
    ],
)
def test_bad_rates(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        Rates(**arguments)


def test_ensembles_and_empty_data_are_refused() -> None:
    with pytest.raises(InvalidType, match="which mixes samples"):
        Dynamic(Arithmetic(noisy(), 2), SGD)
    with pytest.raises(InvalidValue, match="expected training data"):
        gradient_statistics(model(), [])
    with pytest.raises(InvalidValue, match="cannot be converted"):
        SGD.converted("mos", statistics(model()))
