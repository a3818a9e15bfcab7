"""K samples of a sequence model share its layers in strong mode, whoever asks for them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import noisin
from noisin import likelihoods, models, noise, objective
from noisin._util import states
from noisin.data import Batch
from noisin.recurrent import samples
from noisin.regularizers import WeightDrop, WeightNoise, terms
from noisin.training import predictors
from noisin.training import samples as training_samples

T, N, WORDS, H, K = 4, 3, 9, 6, 5
STRONG = {"feedback": False, "noisy_layers": "last"}


@pytest.fixture(autouse=True)
def _double() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def language(**options: Any) -> models.LanguageModel:
    torch.manual_seed(1)
    given = {"hidden_size": H, "noise": noise.Gaussian(0.7), **STRONG} | options
    return models.LanguageModel(WORDS, **given)


def evaluated(model: models.LanguageModel) -> models.LanguageModel:
    """In eval(), except for the noise."""
    model.eval()
    for layer in model.layers:
        layer.rnn.train()
    return model


def music(**options: Any) -> models.SequenceModel:
    torch.manual_seed(1)
    rnn = noisin.GRU(4, H, num_layers=2, noise=noise.Gaussian(0.7), **STRONG)
    head = models.Dense(H, 4, likelihoods.Bernoulli())
    return models.SequenceModel(models.Values(4), [rnn], head, **options)


def batch_of(model: nn.Module) -> Batch:
    torch.manual_seed(2)
    if isinstance(model, models.LanguageModel):
        x = torch.randint(WORDS, (T + 1, N))
    else:
        x = torch.rand(T + 1, N, 4).round()
    return Batch(x[:-1], x[1:], scored=torch.rand(T, N) > 0.2)


def rows_of(model: Any) -> list[int]:
    """The rows that the encoder gets from now on."""
    seen: list[int] = []
    encode = model.encoder.forward

    def noted(x: Tensor) -> Any:
        seen.append(x.shape[1])
        return encode(x)

    model.encoder.forward = noted
    return seen


@contextmanager
def copied(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Everybody makes copies of the rows, as if no model took samples."""
    with monkeypatch.context() as patched:
        for module in (samples, training_samples):
            patched.setattr(module, "offered", lambda model: False)
        yield


ASKED: dict[str, Callable[[Any, Batch, Any], Any]] = {
    "loss": lambda model, batch, state: training_samples.loss(model, batch, state, K).mean,
    "log_prob": lambda model, batch, state: training_samples.log_prob(model, batch, state, K),
    "encode": lambda model, batch, state: training_samples.encode(model, batch, state, K),
    "estimate": lambda model, batch, state: (
        objective.estimate(
            model,
            objective.Window(batch.x, batch.target, state),
            K,
            likelihood=model.head.likelihood,
        ).log_p
    ),
    "predict": lambda model, batch, state: (
        objective.predict(model, batch.x, K, state, likelihood=model.head.likelihood).s
    ),
}
PREDICTORS = {
    "marginal": lambda model: predictors.Marginal(model, K),
    "arithmetic": lambda model: predictors.Arithmetic(model, K, temperature=1.3),
    "geometric": lambda model: predictors.Geometric(model, K),
}
MODELS: dict[str, Callable[[], Any]] = {
    "language": language,
    "one layer": lambda: language(num_layers=1),
    "gru": lambda: language(cell="gru"),
    "additive": lambda: language(mode="additive", share="sequence"),
    "output dropout": lambda: language(dropout=models.Dropouts(output=0.4)),
    "penalties": lambda: language(terms=(terms.ActivationPenalty(0.3), terms.SlownessPenalty(0.2))),
    "weight drop": lambda: language(weight_drop=WeightDrop(0.5)),
    "word dropout, off": lambda: evaluated(language(dropout=models.Dropouts(words=0.5))),
    "music": music,
}


def both(model: Any, ask: Callable[[], Any], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is found by sharing and by copies, with the same noise, and that it is so found."""
    found = []
    rows = rows_of(model)
    for shares in (True, False):
        rows.clear()
        torch.manual_seed(3)
        if shares:
            found.append(ask())
        else:
            with copied(monkeypatch):
                found.append(ask())
        assert set(rows) == {N if shares else K * N}
    return found


# Of dropped weights, which all rows have in common, only the loss is that of copies: the others are
# passes, each with weights of its own.
CASES = [(kind, ask) for kind in MODELS for ask in ASKED if kind != "weight drop" or ask == "loss"]


@pytest.mark.parametrize("start", ["zeros", "one", "copies"])
@pytest.mark.parametrize(("kind", "ask"), CASES)
def test_samples_that_share_the_layers_are_those_of_copies(
    kind: str, ask: str, start: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, state = MODELS[kind](), None
    batch = batch_of(model)
    if start != "zeros":
        state = states.detach(model.log_prob(batch)[1])
        state = states.map(torch.randn_like, state)
    if start == "copies":
        state = states.repeat(state, K)
    if ask in ("loss", "log_prob", "encode") and start == "one":
        state = states.repeat(state, K)  # as a trainer carries it
    found = both(model, lambda: ASKED[ask](model, batch, state), monkeypatch)
    assert_close(*found, rtol=1e-12, atol=1e-12)


def test_gradients_are_those_of_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    for make in MODELS.values():
        model = make()
        batch = batch_of(model)

        def gradients(model: Any = model, batch: Batch = batch) -> Any:
            loss = training_samples.loss(model, batch, None, K)
            return torch.autograd.grad(loss.objective, [*model.parameters()])

        assert_close(*both(model, gradients, monkeypatch), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("kind", PREDICTORS)
def test_predictors_share_and_carry_on(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Over two batches: the state of the first is that of copies, and is found to be common."""
    model = language(dropout=models.Dropouts(0.5, 0.5, 0.5))  # which is off in evaluation
    batches = [batch_of(model)] * 2

    def scored() -> Any:
        score = predictors.evaluate(PREDICTORS[kind](model), batches)
        return torch.tensor([score.nats, score.stderr or 0.0])

    assert_close(*both(model, scored, monkeypatch), equal_nan=True)


def test_a_bare_stack_as_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    rnn = noisin.LSTM(2, 3, noise=noise.Gaussian(0.7), **STRONG)
    x = torch.randn(T, N, 2)
    window = objective.Window(x, torch.randn(T, N, 3), (torch.randn(1, N, 3),) * 2)
    found = []
    for _ in range(2):
        torch.manual_seed(4)
        found.append(objective.estimate(rnn, window, K, likelihoods.Gaussian()))
        monkeypatch.setattr(samples, "offered", lambda model: False)
    assert_close(found[0].log_p, found[1].log_p, rtol=1e-12, atol=1e-12)
    assert_close(found[0].state, found[1].state, rtol=1e-12, atol=1e-12)
    assert found[0].state[0].shape == (1, K * N, 3)


def hooked(model: Any) -> Any:
    model.layers[0].register_forward_hook(lambda *_: None)
    return model


class Guessing(models.Words):
    """An encoder whose class is not known to draw nothing."""


def guessing() -> Any:
    model = language()
    model.embedding.__class__ = Guessing
    return model


REPEATED: dict[str, Callable[[], Any]] = {
    "feedback": lambda: language(feedback=True),
    "noise in all layers": lambda: language(noisy_layers="all"),
    "feedback in all layers": lambda: language(feedback=True, noisy_layers="all"),
    "dropout of the input": lambda: language(dropout=models.Dropouts(input=0.4)),
    "dropout between": lambda: language(dropout=models.Dropouts(between=0.4)),
    "recurrent dropout": lambda: language(dropout=models.Dropouts(recurrent=0.4)),
    "zoneout": lambda: language(zoneout=(0.1, 0.1)),
    "gate dropout": lambda: language(gate_dropout=(0.1, 0.1)),
    "dropout of words": lambda: language(dropout=models.Dropouts(words=0.4)),
    "weight noise per step": lambda: language(weight_noise=WeightNoise(0.1, per="step")),
    "no noise": lambda: language(noise=None),
    "a hook": lambda: hooked(language()),
    "an unknown encoder": guessing,
}


@pytest.mark.parametrize("why", REPEATED)
def test_samples_that_differ_before_the_last_layer_are_copies(why: str) -> None:
    """Bit for bit, with the same draws."""
    model = REPEATED[why]()
    batch, rows, found = batch_of(model), rows_of(model), []
    for ask in (
        lambda: model.loss(batch, samples=K),
        lambda: model.loss(batch.repeat(K)),
    ):
        torch.manual_seed(5)
        loss = ask()
        found.append((loss.mean, loss.state))
    assert set(rows) == {K * N}
    assert_close(*found, rtol=0, atol=0)


def test_carried_copies_that_differ_are_not_taken_for_one() -> None:
    model = language()
    batch, rows = batch_of(model), rows_of(model)
    state = states.map(torch.randn_like, model.log_prob(batch.repeat(K))[1])
    rows.clear()
    found = []
    for given, more in ((batch, {"samples": K}), (batch.repeat(K), {})):
        torch.manual_seed(6)
        found.append(model.log_prob(given, state, **more))
    assert set(rows) == {K * N}
    assert_close(*found, rtol=0, atol=0)


def test_a_model_with_methods_of_its_own_gets_copies() -> None:
    class Own(models.LanguageModel):
        def encode(self, x: Tensor, state: Any = None) -> Any:  # type: ignore[override]
            return super().encode(x, state)

    torch.manual_seed(1)
    model = Own(WORDS, hidden_size=H, noise=noise.Gaussian(0.7), **STRONG)
    batch, rows = batch_of(model), rows_of(model)
    for ask in ("log_prob", "estimate", "predict", "encode"):
        ASKED[ask](model, batch, None)
    predictors.evaluate(predictors.Geometric(model, K), [batch])
    assert set(rows) == {K * N}


def test_the_memory_of_a_head_has_the_rows_of_all_samples() -> None:
    class Remembering(models.Dense):
        def nll(self, z: Tensor, batch: Batch, memory: Any = None) -> tuple[Tensor, Any]:
            nll, _ = super().nll(z, batch)
            before = 0 if memory is None else memory
            assert memory is None or memory.shape == (z.shape[1], 1)
            return nll, before + z.mean((0, 2)).unsqueeze(1)

    torch.manual_seed(1)
    rnn = noisin.GRU(4, H, noise=noise.Gaussian(0.7), **STRONG)
    model = models.SequenceModel(
        models.Values(4), [rnn], Remembering(H, 4, likelihoods.Bernoulli())
    )
    batch = batch_of(model)
    found = []
    for given, more in ((batch, {"samples": K}), (batch.repeat(K), {})):
        torch.manual_seed(6)
        _, state = model.log_prob(given, **more)
        found.append(model.log_prob(given, states.detach(state), **more))
    assert_close(*found, rtol=1e-12, atol=1e-12)
