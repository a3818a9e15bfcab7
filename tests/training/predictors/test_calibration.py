"""How often the likeliest word is right: on models whose calibration is known."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from noisin import data
from noisin.data import Batch
from noisin.errors import InvalidType
from noisin.models import LanguageModel
from noisin.models.pointer import PointerSentinel
from noisin.training.predictors import Clean, Confidence, evaluate
from tests import stats

WORDS, T, N = 5, 400, 20


def indifferent(logits: list[float]) -> LanguageModel:
    """A model that predicts the same at every step."""
    model = LanguageModel(len(logits), hidden_size=3, tied=False)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.bias.copy_(torch.tensor(logits))
    return model


def batch(p: list[float]) -> Batch:
    """Targets of these frequencies."""
    generator = torch.Generator().manual_seed(0)
    target = torch.multinomial(torch.tensor(p), T * N, replacement=True, generator=generator)
    return Batch(torch.zeros(T, N, dtype=torch.int64), target.view(T, N))


def test_a_model_that_says_what_is_so() -> None:
    p = [0.4, 0.3, 0.1, 0.1, 0.1]
    watched = Confidence(Clean(indifferent(np.log(p).tolist())))
    score = evaluate(watched, [batch(p)])
    found = watched.to_json(bins=1)
    assert score.nats == evaluate(watched.clean, [batch(p)]).nats
    assert found["confidence"] == pytest.approx(0.4)
    hits = (batch(p).target == 0).double().flatten()
    assert found["accuracy"] == float(hits.mean())
    stats.assert_mean(hits.numpy(), 0.4, float(np.sqrt(0.24)))
    assert found["error"] == pytest.approx(abs(found["accuracy"] - 0.4), abs=1e-6)


@pytest.mark.parametrize("temperature", [0.5, 2.0])
def test_too_sure_and_not_sure_enough(temperature: float) -> None:
    p = [0.4, 0.3, 0.1, 0.1, 0.1]
    watched = Confidence(Clean(indifferent(np.log(p).tolist()), temperature))
    evaluate(watched, [batch(p)])
    found = watched.to_json()
    said = torch.tensor(p).pow(1 / temperature)
    assert found["confidence"] == pytest.approx(float((said / said.sum()).max()), rel=1e-5)
    assert found["error"] > abs(found["confidence"] - 0.4) / 2


def test_against_a_loop() -> None:
    model = LanguageModel(WORDS, hidden_size=8)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(20)  # so that it is sure of some words
    ids = np.random.default_rng(0).integers(WORDS, size=500)
    windows = data.Windows(ids, batch_size=4, length=30)
    watched = Confidence(Clean(model))
    evaluate(watched, windows.epoch(0))
    pairs, state = [], None
    model.eval()
    with torch.no_grad():
        for b in windows.epoch(0):
            s, state = model(b.x, state)
            for t in range(len(b.x)):
                for n in range(4):
                    p = s[t, n].softmax(-1)
                    pairs.append((float(p.max()), int(p.argmax()) == int(b.target[t, n])))
    pairs.sort(key=lambda pair: pair[0])
    size = -(-len(pairs) // 15)
    bins = [pairs[k : k + size] for k in range(0, len(pairs), size)]
    gaps = [abs(sum(right for _, right in b) - sum(p for p, _ in b)) for b in bins]
    found = watched.to_json()
    assert found["error"] == pytest.approx(sum(gaps) / len(pairs), rel=1e-3)
    assert found["accuracy"] == pytest.approx(sum(right for _, right in pairs) / len(pairs))


def test_what_is_not_scored_does_not_count() -> None:
    whole = batch([0.2] * 5)
    scored = torch.zeros(T, N, dtype=torch.bool)
    scored[:10] = True
    watched, part = (Confidence(Clean(indifferent([1.0, 0, 0, 0, 0]))) for _ in range(2))
    evaluate(watched, [Batch(whole.x, whole.target, scored)])
    evaluate(part, [whole.rows(slice(0, 10))])
    assert watched.to_json() == part.to_json()


def test_other_models_are_refused() -> None:
    pointer = LanguageModel(WORDS, hidden_size=4, head=PointerSentinel)
    with pytest.raises(InvalidType, match="from its state alone, got LanguageModel with the head"):
        Confidence(Clean(pointer))
