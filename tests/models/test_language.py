"""The language model against torch's own parts, its sizes, its randomness, and what it refuses."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

import noisin
from noisin import likelihoods, models, noise, objective
from noisin.data import Batch
from noisin.errors import InvalidType, InvalidValue, NoisinError
from noisin.models import CELLS, PRESETS, Dropouts, LanguageModel
from noisin.recurrent.names import AFFINE_NAMES, KERNEL_NAMES

WORDS, H, T, N = 11, 6, 5, 3
TORCH = {
    "lstm": nn.LSTM,
    "gru": nn.GRU,
    "elman-tanh": nn.RNN,
    "elman-relu": lambda *sizes: nn.RNN(*sizes, nonlinearity="relu"),
}
DROPOUT = Dropouts(0.1, 0.2, 0.3, 0.4)


def text(rows: int = N) -> tuple[torch.Tensor, torch.Tensor]:
    words = torch.randint(WORDS, (T + 1, rows))
    return words[:-1], words[1:]


def model(**settings: Any) -> LanguageModel:
    return LanguageModel(WORDS, **{"hidden_size": H, **settings}).double()


def count(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def flat(state: Any) -> list[torch.Tensor]:
    if isinstance(state, torch.Tensor):
        return [state]
    return [tensor for part in state for tensor in flat(part)]


# What it is made of


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("cell", TORCH)
def test_without_noise_it_is_torchs_parts(cell: str, tied: bool) -> None:
    ours = model(cell=cell, tied=tied)
    x, target = text()
    rnn = [TORCH[cell](H, H).double() for _ in ours.layers]
    for theirs, layer in zip(rnn, ours.layers, strict=True):
        theirs.load_state_dict(layer.rnn.state_dict())
    z, state = F.embedding(x, ours.embedding.weight), []
    for theirs in rnn:
        z, carried = theirs(z)
        state.append(carried)
    weight = ours.embedding.weight if tied else ours.weight
    s = F.linear(z, weight, ours.bias)
    found, found_state = ours(x)
    assert_close(found, s)
    assert_close(flat(found_state), flat(state))
    nll = F.cross_entropy(s.flatten(0, 1), target.flatten(), reduction="none").view(T, N)
    assert_close(-ours.log_prob(Batch(x, target))[0], nll)
    assert_close(ours.loss(Batch(x, target)).mean, nll.mean())


def test_without_noise_a_stack_is_torchs_stack() -> None:
    ours = model(num_layers=3)
    theirs = nn.LSTM(H, H, num_layers=3).double()
    weights = [w for layer in ours.layers for w in layer.rnn.parameters()]
    with torch.no_grad():
        for parameter, w in zip(theirs.parameters(), weights, strict=True):
            parameter.copy_(w)
    x, _ = text()
    z, (h, c) = ours.encode(x)[0], tuple(map(torch.cat, zip(*ours.encode(x)[1], strict=True)))
    expected, expected_state = theirs(ours.embedding(x))
    assert_close(z, expected)
    assert_close((h, c), expected_state)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("dropout", [Dropouts(), DROPOUT], ids=["plain", "dropout"])
def test_a_carried_state_joins_windows(cell: str, dropout: Dropouts) -> None:
    if cell in AFFINE_NAMES:  # whose gates do not read the state
        dropout = replace(dropout, recurrent=0.0)
    lm = model(cell=cell, dropout=dropout, noise=noise.Gaussian(0.5)).eval()
    x, _ = text()
    whole, end = lm(x)
    first, state = lm(x[:2])
    second, state = lm(x[2:], models.detach(state))
    assert_close(torch.cat([first, second]), whole)
    assert_close(flat(state), flat(end))


@pytest.mark.parametrize(
    ("preset", "words", "tied", "parameters"),
    [
        ("medium", 10_000, True, 13_280_400),
        ("large", 10_000, True, 51_034_000),
        ("medium", 33_278, True, 28_434_378),
        ("large", 33_278, True, 85_974_278),
        ("medium", 10_000, False, 19_780_400),
        ("large", 10_000, False, 66_034_000),
        ("small", 10_000, True, 2_653_200),
    ],
)
def test_parameters_of_the_presets(preset: str, words: int, tied: bool, parameters: int) -> None:
    num_layers, hidden_size = PRESETS[preset]
    lm = LanguageModel(words, hidden_size=hidden_size, num_layers=num_layers, tied=tied)
    assert count(lm) == parameters


@pytest.mark.parametrize(("words", "parameters"), [(10_000, 24_221_600), (33_278, 33_556_078)])
def test_parameters_of_a_stack_with_a_narrow_end(words: int, parameters: int) -> None:
    """Tied, with an embedding smaller than the layers: 400 → 1150 → 1150 → 400, AWD-LSTM's."""
    lm = LanguageModel(words, embedding_size=400, hidden_size=1150, num_layers=3)
    assert count(lm) == parameters
    assert [layer.rnn.hidden_size for layer in lm.layers] == [1150, 1150, 400]


def test_an_untied_model_keeps_its_sizes() -> None:
    lm = model(embedding_size=4, tied=False)
    assert [(la.rnn.input_size, la.rnn.hidden_size) for la in lm.layers] == [(4, H), (H, H)]
    assert lm.V.shape == (H, WORDS)


def test_initialisation_is_the_papers() -> None:
    lm = LanguageModel(500, embedding_size=50, hidden_size=100, tied=False)
    for name, parameter in lm.named_parameters():
        if "bias" in name:
            assert not parameter.any(), name
            continue
        bound = 0.1 if name == "embedding.weight" else 100**-0.5
        assert 0.98 * bound < parameter.abs().max() <= bound, name
        assert abs(parameter.mean()) < 0.05 * bound, name  # 8 standard errors at 20,000 weights


def test_tied_weights_are_stored_once() -> None:
    lm = model()
    assert "weight" not in lm.state_dict()
    assert lm.V.data_ptr() == lm.embedding.weight.data_ptr()
    copied = copy.deepcopy(lm)
    assert copied.V.data_ptr() == copied.embedding.weight.data_ptr()


@pytest.mark.parametrize("tied", [True, False])
def test_weights_do_not_depend_on_noise_and_dropout(tied: bool) -> None:
    """So a state dict moves between a clean model, a noisy one and one with dropout."""
    noisy = model(tied=tied, noise=noise.Gumbel(0.5), dropout=DROPOUT)
    clean = model(tied=tied)
    clean.load_state_dict(noisy.state_dict())
    x, _ = text()
    assert_close(clean(x), noisy.eval()(x), rtol=0, atol=0)
    again = pickle.loads(pickle.dumps(noisy))
    assert_close(again(x), noisy(x), rtol=0, atol=0)


# Noise


def test_bernoulli_noise_on_the_last_layer_is_output_dropout() -> None:
    """Not fed back, digit by digit: the two draw the same mask from the same stream."""
    noisy = model(noise=noise.Bernoulli(0.6), feedback=False, noisy_layers="last")
    dropped = model(dropout=Dropouts(output=0.4))
    dropped.load_state_dict(noisy.state_dict())
    x, target = text()
    results = []
    for lm in (noisy, dropped):
        torch.manual_seed(3)
        found = lm.loss(Batch(x, target))
        loss, state = found.mean, found.state
        loss.backward()
        results.append((loss, flat(state), [p.grad for p in lm.parameters()]))
    assert_close(results[0], results[1], rtol=0, atol=0)
    assert not torch.equal(results[0][0], noisy.eval().loss(Batch(x, target)).mean)


@pytest.mark.parametrize("cell", KERNEL_NAMES)
@pytest.mark.parametrize("feedback", [True, False])
@pytest.mark.parametrize("dropout", [Dropouts(), DROPOUT], ids=["plain", "dropout"])
def test_the_switches_work(cell: str, feedback: bool, dropout: Dropouts) -> None:
    lm = model(cell=cell, noise=noise.Gaussian(0.5), feedback=feedback, dropout=dropout)
    x, _ = text()

    def seeded() -> torch.Tensor:
        torch.manual_seed(5)
        return lm(x)[0]

    noisy = seeded()
    with noisin.noise_off(lm):
        quiet = seeded()
    assert not torch.equal(noisy, quiet)
    noisin.set_noise(lm, None)
    assert torch.equal(seeded(), quiet)
    noisin.set_noise(lm, noise.Gaussian(0.5))
    assert torch.equal(seeded(), noisy)
    lm.eval()
    clean = seeded()
    assert torch.equal(clean, quiet) == (dropout == Dropouts())
    with noisin.noise_on(lm):
        assert not torch.equal(seeded(), clean)
    noisin.convert(lm, noise.Laplace(0.1), mode="additive")
    lm.train()
    assert not torch.equal(seeded(), quiet)
    assert all(layer.rnn.noise_mode == "additive" for layer in lm.layers)


def test_clean_layers_stay_clean_when_the_noise_changes() -> None:
    lm = model(noise=noise.Gaussian(0.5), feedback=False, noisy_layers="last", num_layers=3)
    x, _ = text()
    noisin.set_noise(lm, noise.Gaussian(0.9))
    inside: list[torch.Tensor] = []
    for layer in lm.layers[:-1]:
        layer.register_forward_hook(lambda _m, _i, out: inside.append(out[0]))
    first, second = lm(x)[0], lm(x)[0]
    assert_close(inside[:2], inside[2:], rtol=0, atol=0)
    assert not torch.equal(first, second)


def test_noise_per_layer() -> None:
    laws = [None, noise.Gaussian(0.5)]
    lm = model(noise=laws)
    assert [layer.rnn.noise for layer in lm.layers] == laws


def test_revert_leaves_dropout() -> None:
    lm = model(noise=noise.Gaussian(0.5), dropout=Dropouts(recurrent=0.5))
    x, _ = text()
    torch.manual_seed(2)
    with noisin.noise_off(lm):
        expected = lm(x)[0]
    noisin.revert(lm)
    torch.manual_seed(2)
    assert torch.equal(lm(x)[0], expected)


def test_the_objective_and_the_ensembles_take_it() -> None:
    lm = model(noise=noise.Gaussian(0.5)).eval()
    x, target = text()
    assert isinstance(lm.likelihood, likelihoods.Categorical)
    estimate = objective.estimate(lm, objective.Window(x, target), K=4)
    assert estimate.bound < estimate.marginal < 0
    estimate = objective.estimate(lm, objective.Window(x, target, estimate.state), K=4)
    ensemble = objective.predict(lm, x, K=4, state=estimate.state)
    assert ensemble.arithmetic(target).shape == (T, N)
    noisin.set_noise(lm, noise.Gaussian(0.0))
    silent = objective.estimate(lm, objective.Window(x, target), K=2)
    assert_close(silent.bound, lm.log_prob(Batch(x, target))[0].sum())


# Randomness


@pytest.mark.parametrize("dropout", [Dropouts(), DROPOUT], ids=["plain", "dropout"])
def test_a_generator_is_the_only_source(dropout: Dropouts) -> None:
    """Initialisation, noise and dropout all draw from it, and none from the global stream."""
    x, target = text()

    def run(seed: int) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        lm = model(noise=noise.Gaussian(0.5), dropout=dropout, generator=generator)
        return lm.state_dict(), lm.loss(Batch(x, target)).mean

    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = run(7)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert_close(run(7), first, rtol=0, atol=0)
    assert run(8)[1] != first[1]


def test_the_global_seed_decides_without_a_generator() -> None:
    losses = []
    for _ in range(2):
        torch.manual_seed(4)
        lm = model(noise=noise.Gaussian(0.5), dropout=DROPOUT)
        losses.append(lm.loss(Batch(*text())).mean)
    assert torch.equal(losses[0], losses[1])


# Derivatives and precision


def test_gradients_flow_to_every_parameter() -> None:
    lm = model(tied=False, noise=noise.Gaussian(0.5), dropout=DROPOUT)
    lm.loss(Batch(*text())).mean.backward()
    assert all(p.grad is not None and p.grad.any() for p in lm.parameters())


@pytest.mark.parametrize("dropout", [Dropouts(), DROPOUT], ids=["plain", "dropout"])
def test_half_precision(dropout: Dropouts) -> None:
    """Under autocast it computes what it computes in single precision, noise and masks alike."""
    lm = model(noise=noise.Gaussian(0.5), dropout=dropout).float()
    x, target = text()
    losses = []
    for half in (False, True):
        torch.manual_seed(1)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
            state = lm.loss(Batch(x, target)).state
            losses.append(lm.loss(Batch(x, target), models.detach(state)).mean)
    assert losses[0] != losses[1]
    assert_close(losses[0], losses[1], rtol=0, atol=0.02)


# What it refuses


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_words": 0}, "num_words must be a whole number, 1 or more, got 0"),
        ({"hidden_size": 6.5}, "hidden_size must be a whole number, 1 or more, got 6.5"),
        ({"num_layers": True}, "num_layers must be a whole number"),
        ({"embedding_size": -1}, "embedding_size must be a whole number"),
        ({"cell": "lstn"}, "cell must be 'lstm' or 'gru' or .* got 'lstn'"),
        ({"tied": 1}, "tied must be True or False, got 1"),
        ({"embedding_size": 4, "num_layers": 1}, "must be hidden_size .6. for one layer with tied"),
        ({"noisy_layers": "none"}, "noisy_layers must be 'all' or 'last', .* got 'none'"),
        ({"noise": [None]}, "needs 2 entries .* got 1"),
        ({"noise": [None, None], "noisy_layers": "last"}, "noisy_layers must be 'all', got 'last'"),
        ({"noise": "gaussian"}, "noise.FAMILIES"),
        ({"site": "state"}, "not a GRU, must be 'read'"),
        ({"dropout": 0.5}, "dropout must be a Dropouts, got 0.5. Pass"),
        ({"mode": "both"}, "mode must be"),
        ({"generator": 1111}, r"torch.Generator\(\).manual_seed\(1111\)"),
    ],
)
def test_bad_settings(settings: dict[str, Any], message: str) -> None:
    arguments = {"num_words": WORDS, "hidden_size": H, **settings}
    with pytest.raises(NoisinError, match=message):
        LanguageModel(**arguments)


@pytest.mark.filterwarnings("ignore:.*carry")
def test_a_literal_gru_has_no_recurrent_dropout() -> None:
    with pytest.raises(NoisinError, match="Use site='read'"):
        model(cell="gru", site="state", dropout=Dropouts(recurrent=0.5))


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(3, dtype=torch.int64), r"non-empty integer tensor \(T, N\), got \(3,\)"),
        (torch.zeros(3, 2), "got .* of torch.float32"),
        (torch.full((3, 2), WORDS), rf"must lie in 0 ... {WORDS - 1}, got {WORDS} ... {WORDS}"),
        (torch.full((3, 2), -1), "got -1 ... -1"),
        (torch.zeros(0, 2, dtype=torch.int64), "non-empty integer tensor"),
    ],
)
def test_bad_words(x: torch.Tensor, message: str) -> None:
    with pytest.raises(InvalidValue, match=message):
        model()(x)
    with pytest.raises(InvalidType, match="x must be a tensor, got list"):
        model()([[1]])


@pytest.mark.parametrize("dropout", [Dropouts(), Dropouts(recurrent=0.5)], ids=["plain", "dropout"])
def test_bad_states(dropout: Dropouts) -> None:
    lm = model(dropout=dropout, noise=noise.Gaussian(0.5))
    x, _ = text()
    _, state = lm(x)
    with pytest.raises(InvalidType, match="one part for each of 2 layers, got 1 parts"):
        lm(x, state[:1])
    with pytest.raises(InvalidType, match="got Tensor"):
        lm(x, state[0][0])
    with pytest.raises(InvalidValue, match="expected an initial state of shape"):
        lm(text(rows=N + 1)[0], state)
