"""Terms: the penalties of Merity et al. against their definitions, and padding left out."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from noisin.data import Batch
from noisin.errors import NoisinError
from noisin.models import LanguageModel
from noisin.regularizers.terms import ActivationPenalty, SlownessPenalty, Trace

TERMS: dict[str, Any] = {"ar": ActivationPenalty, "tar": SlownessPenalty}

T, N, H = 4, 3, 5


def trace() -> Trace:
    emitted, read = torch.randn(T, N, H), torch.randn(T, N, H)
    return Trace((torch.randn(T, N, 2), emitted), (torch.randn(T, N, 2), read), None)


def batch(scored: Any = None) -> Batch:
    return Batch(torch.zeros(T, N), torch.zeros(T, N), scored)


def test_definitions() -> None:
    left = trace()
    z, h = left.read[-1], left.emitted[-1]
    assert torch.allclose(ActivationPenalty(2.0)(left, batch()), 2 * (z**2).mean())
    steps = torch.stack([(h[t] - h[t - 1]) ** 2 for t in range(1, T)])
    assert torch.allclose(SlownessPenalty(3.0)(left, batch()), 3 * steps.mean())


@pytest.mark.parametrize("name", TERMS)
def test_padding_does_not_count(name: str) -> None:
    left = trace()
    scored = torch.arange(T).unsqueeze(1) < torch.tensor([4, 2, 1])
    term = TERMS[name](1.0)
    assert term.name == name
    value = term(left, batch(scored))
    for tensors in (left.emitted, left.read):
        tensors[-1][~scored] = 1e9
    assert torch.equal(term(left, batch(scored)), value)


def test_a_single_step_has_no_slowness() -> None:
    z = torch.randn(1, N, H)
    one = Batch(torch.zeros(1, N), torch.zeros(1, N))
    assert SlownessPenalty(1.0)(Trace((z,), (z,), None), one) == 0


def test_a_model_adds_its_terms_to_the_loss() -> None:
    torch.manual_seed(0)
    model = LanguageModel(9, hidden_size=4, terms=[ActivationPenalty(2.0), SlownessPenalty(1.0)])
    words = torch.randint(9, (6, 3))
    loss = model.loss(Batch(words[:-1], words[1:]))
    z, _ = model.encode(words[:-1])
    assert list(loss.terms) == ["ar", "tar"]
    assert torch.allclose(loss.terms["ar"], 2 * z.square().mean())
    assert torch.allclose(loss.objective, loss.mean + sum(loss.terms.values()))


def test_a_weight_is_not_negative() -> None:
    with pytest.raises(NoisinError, match="weight"):
        ActivationPenalty(-1.0)
