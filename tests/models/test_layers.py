"""Layers of any cell: with kernels, with zoneout or dropout inside, and a user's own."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import noisin
from noisin import noise
from noisin.data import Batch
from noisin.errors import NoisinError
from noisin.models import Dropout, Dropouts, LanguageModel, detach
from noisin.models.layers import layer
from noisin.recurrent.injection import Injection, injected_modules
from noisin.recurrent.names import KERNEL_NAMES
from noisin.regularizers import DropoutLSTMCell, Zoneout, ZoneoutMasks
from noisin.regularizers.windowed import WindowCell
from tests import stats

WORDS, T, N, F, H = 11, 5, 3, 4, 6
LAW = noise.Gaussian(0.5)


class Minimal(nn.Module):
    """The minimal gated unit: a cell without a twin in torch."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.gate = nn.Linear(input_size + hidden_size, hidden_size)
        self.candidate = nn.Linear(input_size + hidden_size, hidden_size)
        self.scale = nn.Parameter(torch.ones(hidden_size))

    def forward(self, x: Tensor, h: Tensor | None = None) -> Tensor:
        h = x.new_zeros(*x.shape[:-1], self.gate.out_features) if h is None else h
        u = self.gate(torch.cat([x, h], -1)).sigmoid()
        n = self.candidate(torch.cat([x, u * h], -1)).tanh()
        return self.scale * ((1 - u) * h + u * n)


MODELS: dict[str, dict[str, Any]] = {
    "zoneout": {"zoneout": (0.1, 0.5)},
    "zoneout-elman": {"cell": "elman-sigmoid", "zoneout": (0.1, 0.0)},
    "zoneout-gru": {"cell": "gru", "zoneout": (0.1, 0.0)},
    "zoneout and dropout": {"zoneout": (0.1, 0.5), "dropout": Dropouts(recurrent=0.2)},
    "gate dropout": {"gate_dropout": (0.5, 0.4)},
    "both": {"gate_dropout": (0.5, 0.4), "zoneout": (0.1, 0.5)},
    "locked gates": {"gate_dropout": (0.5, 0.4, True, "before")},
    "updates": {"update_dropout": (0.3,)},
    "updates-gru": {"cell": "gru", "update_dropout": (0.3, True), "feedback": False},
    "highway": {"cell": "highway", "cell_arguments": {"depth": 3}},
    "highway-dropout": {"cell": "highway", "dropout": Dropouts(recurrent=0.2, locked=True)},
    **{name: {"cell": name} for name in ("melis-lstm", "mogrifier-lstm")},
    "batch-norm": {"cell": "batch-norm-lstm"},
    "batch-norm of steps": {
        "cell": "batch-norm-lstm",
        "cell_arguments": {"t_max": 3},
        "zoneout": (0.1, 0.2),
    },
    "layer-norm": {"cell": "layer-norm-lstm", "zoneout": (0.1, 0.2)},
    "layer-norm-gru": {"cell": "layer-norm-gru", "cell_arguments": {"scope": "gate"}},
    "own class": {"cell": Minimal},
    "own name": {"cell": f"{__name__}:Minimal"},
    "own with zoneout": {"cell": Minimal, "zoneout": (0.1, 0.0)},
}


def model(**settings: Any) -> LanguageModel:
    torch.manual_seed(1)
    return LanguageModel(WORDS, hidden_size=H, noise=LAW, **settings).double()


def words() -> tuple[Tensor, Tensor]:
    x = torch.randint(WORDS, (T + 1, N), generator=torch.Generator().manual_seed(2))
    return x[:-1], x[1:]


@pytest.mark.parametrize("name", MODELS)
def test_a_language_model_of_it_learns_and_carries_its_state(name: str) -> None:
    lm = model(**MODELS[name])
    x, target = words()
    optimizer = torch.optim.SGD(lm.parameters(), lr=0.1 if "norm" in name else 1.0)
    batch = Batch(x, target)
    before, state = lm.eval().log_prob(batch)
    lm.train()
    for _ in range(30):
        optimizer.zero_grad()
        lm.loss(batch, detach(state)).mean.backward()
        assert all(p.grad is not None for p in lm.parameters())
        optimizer.step()
    after, _ = lm.eval().log_prob(batch)
    assert after.mean() > before.mean() + 0.1
    first, state = lm(x[:2])
    second, _ = lm(x[2:], state)
    assert_close(torch.cat([first, second]), lm(x)[0])


@pytest.mark.parametrize("name", MODELS)
def test_noise_reaches_it_and_clean_layers_stay_clean(name: str) -> None:
    lm = model(**MODELS[name], noisy_layers="last", num_layers=3)
    assert len([m for m in injected_modules(lm) if m.injection.layers != ()]) == 1
    noisin.set_noise(lm, noise.Gaussian(0.9))
    inside: list[Tensor] = []
    for each in lm.layers[:-1]:
        each.register_forward_hook(lambda _m, _i, out: inside.append(out[0]))
    x, _ = words()
    for module in lm.modules():  # only the noise
        if isinstance(module, Zoneout | ZoneoutMasks | DropoutLSTMCell | Dropout | WindowCell):
            module.training = False
    first, second = lm(x)[0], lm(x)[0]
    assert_close(inside[:2], inside[2:], rtol=0, atol=0)
    assert not torch.equal(first, second)


@pytest.mark.parametrize("cell", KERNEL_NAMES)
def test_zoneout_without_rates_is_the_layer_without_it(cell: str) -> None:
    x = torch.randn(T, N, F).double()
    kernel, zoned = (layer(cell, F, H, **z).double() for z in ({}, {"zoneout": (0.0, 0.0)}))
    zoned.load_state_dict(kernel.state_dict())
    assert_close(zoned(x), kernel(x), rtol=0, atol=0)


def test_gate_dropout_without_rates_is_the_layer_of_the_kernels() -> None:
    """It runs step by step and computes the same."""
    x = torch.randn(T, N, F).double()
    kernel, loop = (layer("lstm", F, H, **g).double() for g in ({}, {"gate_dropout": (0.0, 0.0)}))
    own = dict(loop.named_parameters())
    with torch.no_grad():
        for name, weight in kernel.rnn.named_parameters():
            (found,) = [own[n] for n in own if n.endswith(name.removesuffix("_l0"))]
            found.copy_(weight)
    (expected, state), (z, carried) = kernel(x), loop(x)
    assert_close(z, expected)
    for a, b in zip(_parts(carried), _parts(state), strict=True):
        assert_close(a, b[0])


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("cell", ["lstm", "gru", "elman-tanh"])
def test_zoneout_draws_masks_of_its_rates_and_has_their_mean_in_eval(
    cell: str, training: bool
) -> None:
    """What the layer computes is its RNN with the masks that it drew."""
    rates = (0.3, 0.5 if cell == "lstm" else 0.0)
    made = layer(cell, F, H, injection=Injection(LAW), zoneout=rates).double().train(training)
    x = torch.randn(40, 25, F).double()
    assert made.zoneout is not None
    torch.manual_seed(3)
    keep = made.zoneout(x, H)
    expected = made.rnn(x, keep=keep)
    torch.manual_seed(3)
    assert_close(made(x), expected, rtol=0, atol=0)
    if not training:
        assert keep == rates
    for k, p in zip(keep, rates, strict=True):
        if isinstance(k, Tensor):
            assert set(k.unique().tolist()) == {0.0, 1.0}
            stats.assert_mean(k.numpy().ravel(), p, (p * (1 - p)) ** 0.5)


def test_zoneout_from_train_to_eval_and_back_and_in_a_copy() -> None:
    made = layer("lstm", F, H, injection=Injection(LAW), zoneout=(0.3, 0.5)).double()
    x, copied = torch.randn(T, N, F).double(), copy.deepcopy(made)

    def run(module: nn.Module) -> Any:
        torch.manual_seed(4)
        return module(x)[0]

    before = run(made)
    assert not torch.equal(made(x)[0], made(x)[0])
    clean = run(made.eval())
    assert torch.equal(clean, made(x)[0])
    assert not torch.equal(clean, before)
    assert torch.equal(run(made.train()), before)
    assert torch.equal(run(copied), before)
    torch_layer = noisin.revert(made)
    assert type(torch_layer.rnn) is nn.LSTM
    assert_close(run(torch_layer.eval()), clean)


def _parts(state: Any) -> tuple[Tensor, ...]:
    return state if isinstance(state, tuple) else (state,)


def test_the_keys_of_weights_stay() -> None:
    keys = [key for key in model().state_dict() if key.startswith("layers.0")]
    names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    assert keys == [f"layers.0.rnn.{name}_l0" for name in names]


def test_an_own_cell_keeps_its_initialisation_from_a_stream_of_its_own() -> None:
    """It follows from the seed or the generator, and the rest of the model does not notice."""
    lm, again = model(cell=Minimal), model(cell=Minimal)
    assert_close(lm.state_dict(), again.state_dict(), rtol=0, atol=0)
    cells = [m for m in lm.modules() if isinstance(m, Minimal)]
    assert all(torch.equal(m.scale, torch.ones(H).double()) for m in cells)
    assert not torch.equal(cells[0].gate.weight, cells[1].gate.weight)
    assert torch.equal(lm.embedding.weight, model().embedding.weight)
    generator = torch.Generator().manual_seed(3)
    torch.manual_seed(7)
    first = LanguageModel(WORDS, hidden_size=H, cell=Minimal, generator=generator)
    generator.manual_seed(3)
    torch.manual_seed(8)
    second = LanguageModel(WORDS, hidden_size=H, cell=Minimal, generator=generator)
    assert_close(first.state_dict(), second.state_dict(), rtol=0, atol=0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cell": 3}, "cell must be a name, .* or a class .* got 3"),
        ({"cell": Minimal(F, H)}, "Each layer creates its own cell"),
        ({"cell": "no_module:Cell"}, "there is no module no_module"),
        ({"cell": lambda *_: 3}, "expected a cell"),
        ({"cell": "gru", "gate_dropout": (0.5, 0.4)}, "Use cell='lstm'"),
        ({"cell": Minimal, "gate_dropout": (0.5, 0.4)}, "Use cell='lstm'"),
        ({"gate_dropout": 0.5}, r"gate_dropout must be None or \(x, h\), got 0.5"),
        ({"gate_dropout": (0.5, 1.0)}, "p_h is a probability"),
        ({"zoneout": (0.1,)}, r"zoneout must be None or \(p_h, p_c\)"),
        ({"zoneout": (-0.1, 0.0)}, "p_h is a probability"),
        ({"gate_dropout": (0.1, 0.5), "dropout": Dropouts(recurrent=0.5)}, "dropout.recurrent = 0"),
        ({"cell": Minimal, "dropout": Dropouts(recurrent=0.5)}, "dropout.recurrent = 0"),
        ({"cell": "gru", "zoneout": (0.1, 0.1)}, "p_c = 0.1 of zoneout is for a memory c"),
        (
            {"cell": "elman-tanh", "update_dropout": (0.1,)},
            "for an LSTM and a GRU. Use cell='lstm'",
        ),
        ({"cell": "highway", "update_dropout": (0.1,)}, "need a layer with kernels"),
        ({"update_dropout": (0.1,), "gate_dropout": (0.1, 0.1)}, "Use one or the other"),
        ({"update_dropout": 0.1}, r"must be None or \(p,\) or \(p, locked\), got 0.1"),
        ({"cell_arguments": {"bias": False}}, "this cell takes no cell_arguments, got bias"),
        ({"cell_arguments": 3}, "cell_arguments must be a dict, .* got 3"),
        ({"cell": "highway", "cell_arguments": {"width": 3}}, "unexpected keyword .*'width'"),
        ({"cell": "highway", "cell_arguments": {"depth": 0}}, "depth must be a whole number"),
        ({"cell": "highway", "cell_arguments": {"p_h": 0.1}}, "has p_h, which the model sets"),
        ({"cell": Minimal, "cell_arguments": {"scale": 3}}, "unexpected keyword .*'scale'"),
    ],
)
def test_what_cannot_be_combined_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(NoisinError, match=message):
        model(**settings)


def test_zoneout_of_a_gru_without_fed_back_noise() -> None:
    lm = LanguageModel(WORDS, hidden_size=H, cell="gru", zoneout=(0.1, 0.0))
    assert lm.loss(Batch(*words())).mean > 0
    drop = layer(noisin.LSTM, F, H, injection=Injection(LAW), dropout=Dropout(0.5))
    assert drop(torch.zeros(T, N, F))[0].shape == (T, N, H)
