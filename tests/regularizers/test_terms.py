"""Terms: penalties of activations and of weights against their definitions, without padding."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from noisin.data import Batch
from noisin.errors import NoisinError
from noisin.models import Dropouts, LanguageModel
from noisin.noise import Gaussian
from noisin.regularizers.terms import (
    ActivationPenalty,
    L1Penalty,
    L2Penalty,
    SlownessPenalty,
    Trace,
)

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


def test_ar_is_of_the_dropped_output_and_tar_of_the_undropped_one() -> None:
    """As in AWD-LSTM: of the last layer alone, by means over steps, rows and units."""
    torch.manual_seed(0)
    terms = [ActivationPenalty(2.0), SlownessPenalty(1.0)]
    dropout = Dropouts(0.1, 0.3, 0.5, locked=True)
    model = LanguageModel(9, hidden_size=H, noise=Gaussian(0.5), dropout=dropout, terms=terms)
    words, outputs = torch.randint(9, (T + 1, N)), []
    model.layers[-1].register_forward_hook(lambda _m, _i, out: outputs.append(out[0]))
    model.dropouts[-1].register_forward_hook(lambda _m, _i, out: outputs.append(out))
    loss = model.loss(Batch(words[:-1], words[1:]))
    raw, dropped = (output.detach() for output in outputs)
    assert (dropped == 0).any()
    assert not (raw == 0).any()
    alpha, beta = 0.0, 0.0
    for t in range(T):
        for n in range(N):
            alpha += 2.0 * float((dropped[t, n] ** 2).sum()) / (T * N * H)
            if t:
                beta += float(((raw[t, n] - raw[t - 1, n]) ** 2).sum()) / ((T - 1) * N * H)
    assert float(loss.terms["ar"].detach()) == pytest.approx(alpha, rel=1e-5)
    assert float(loss.terms["tar"].detach()) == pytest.approx(beta, rel=1e-5)


@pytest.mark.parametrize("tied", [True, False])
def test_l1_and_l2_are_of_every_parameter_once(tied: bool) -> None:
    torch.manual_seed(0)
    terms = [L1Penalty(0.1), L2Penalty(0.2)]
    model = LanguageModel(9, hidden_size=4, tied=tied, terms=terms)
    with torch.no_grad():
        model.bias.fill_(0.5)  # biases count
    words = torch.randint(9, (6, 3))
    loss = model.loss(Batch(words[:-1], words[1:]))
    w = torch.cat([p.flatten() for p in model.parameters()])
    assert torch.allclose(loss.terms["l1"], 0.1 * w.abs().sum())
    assert torch.allclose(loss.terms["l2"], 0.2 * 0.5 * w.square().sum())
    gradients = torch.autograd.grad(loss.terms["l2"], [*model.parameters()], retain_graph=True)
    for gradient, p in zip(gradients, model.parameters(), strict=True):
        assert torch.allclose(gradient, 0.2 * p)
    assert torch.allclose(loss.objective, loss.mean + sum(loss.terms.values()))


def test_l2_is_the_weight_decay_of_sgd_without_clipping() -> None:
    found = []
    words = torch.randint(9, (6, 3))
    for terms, decay in (([L2Penalty(0.1)], 0.0), ([], 0.1)):
        torch.manual_seed(1)
        model = LanguageModel(9, hidden_size=4, terms=terms).double()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.5, weight_decay=decay)
        model.loss(Batch(words[:-1], words[1:])).objective.backward()
        optimizer.step()
        found.append(model.state_dict())
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("term", [L1Penalty(1.0), L2Penalty(1.0)])
def test_penalties_of_weights_need_them(term: Any) -> None:
    with pytest.raises(NoisinError, match="has no parameters. Give the model this term"):
        term(trace(), batch())


def test_a_model_without_terms_gathers_no_parameters() -> None:
    made, _ = LanguageModel(9, hidden_size=4)._trace(torch.zeros(2, 1, dtype=torch.int64), None)
    assert made.parameters == {}


@pytest.mark.parametrize("term", [ActivationPenalty, SlownessPenalty, L1Penalty, L2Penalty])
def test_a_weight_is_not_negative(term: Any) -> None:
    with pytest.raises(NoisinError, match="weight"):
        term(-1.0)
