"""Affine cells as layers: all steps at once give what single steps give, with and without noise."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import noisin
from noisin import noise
from noisin.errors import GrowingNoise, InvalidValue, NoisinError
from noisin.models import Dropouts, LanguageModel
from noisin.models.layers import layer
from noisin.recurrent.injection import Injection
from noisin.recurrent.names import AFFINE_NAMES
from noisin.regularizers import WeightNoise
from tests.training import toy

T, N, F, H = 20, 3, 2, 4
D64: Any = {"dtype": torch.float64}
LAW = noise.Gaussian(0.1)
LAYERS = {"min-gru": noisin.MinGRU, "min-lstm": noisin.MinLSTM}


def inputs() -> tuple[Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    sizes = (T, N, F), (T, N, H), (N, H)
    x, eps, h0 = (torch.randn(size, generator=g, **D64) for size in sizes)
    return x, 0.1 * eps, h0


def equations(name: str, x: Tensor, h: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """The states, by the equations of the paper for one step at a time."""
    states = []
    for x_t in x:
        gates = (x_t @ weight.t() + bias).split(H, dim=-1)
        if name == "min-gru":
            z = gates[0].sigmoid()
            h = (1 - z) * h + z * gates[1]
        else:
            i, f = gates[0].sigmoid(), gates[1].sigmoid()
            h = f / (f + i) * h + i / (f + i) * gates[2]
        states.append(h)
    return torch.stack(states)


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_follows_the_equations(name: str) -> None:
    x, _, h0 = inputs()
    rnn = LAYERS[name](F, H).double()
    nn.init.normal_(rnn.cell.bias)
    for start in (h0, torch.zeros_like(h0)):
        expected = equations(name, x, start, rnn.cell.weight_ih, rnn.cell.bias)
        z, h_n = rnn(x, start)
        assert_close(z, expected, rtol=1e-12, atol=1e-12)
        assert_close(h_n, expected[-1], rtol=1e-12, atol=1e-12)
    assert_close(rnn(x)[0], expected, rtol=1e-12, atol=1e-12)
    assert_close(rnn(x[:, 0])[0], expected[:, 0], rtol=1e-12, atol=1e-12)
    assert_close(noisin.unroll(rnn.cell, x, h0), rnn(x, h0), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("mode", ["multiplicative", "additive"])
@pytest.mark.parametrize(("site", "feedback"), [("state", True), ("output", False)])
@pytest.mark.parametrize("name", LAYERS)
def test_noise_around_the_cell_is_that_of_two_sites(
    name: str, site: Any, feedback: bool, mode: Any
) -> None:
    """And its gradients; the third site is not one that a wrapper of a cell can have."""
    x, eps, h0 = inputs()
    rnn = LAYERS[name](F, H, site=site, mode=mode).double()
    loop = noisin.Unrolled(noisin.Noisy(rnn.cell, None, feedback=feedback, mode=mode))
    x.requires_grad_(), h0.requires_grad_()
    wanted = [x, h0, *rnn.cell.parameters()]
    results = []
    for module in (rnn, loop):
        z, h_n = module(x, h0, eps=eps)
        gradients = torch.autograd.grad(z.square().sum() + h_n.sum(), wanted)
        results.append((z, h_n, gradients))
    assert_close(results[0], results[1], rtol=1e-11, atol=1e-11)


def test_noise_on_the_increment() -> None:
    x, eps, h0 = inputs()
    rnn = noisin.MinGRU(F, H).double()
    a, b = rnn.cell.coefficients(x)
    assert_close(rnn(x, h0, eps=eps), noisin.scan(a, b * (1 + eps), h0=h0))


def test_gates_that_are_both_zero() -> None:
    cell = noisin.MinLSTMCell(F, H)
    nn.init.constant_(cell.bias, -200.0)
    a, b = cell.coefficients(torch.zeros(1, F))
    assert_close(a, torch.full_like(a, 0.5))
    assert b.isfinite().all()


def test_noise_follows_train_and_eval_and_the_switches() -> None:
    x, _, _ = inputs()
    rnn = noisin.MinGRU(F, H, noise=LAW, site="output").double()
    clean = copy.deepcopy(rnn).eval()(x)[0]
    assert not torch.equal(rnn(x)[0], clean)
    assert torch.equal(rnn(x)[1], clean[-1]), "the state is clean"
    with noisin.noise_off(rnn):
        assert torch.equal(rnn(x)[0], clean)
    with noisin.noise_on(rnn.eval()):
        assert not torch.equal(rnn(x)[0], clean)
    noisin.set_noise(rnn.train(), None)
    assert torch.equal(rnn(x)[0], clean)
    noisin.revert(rnn)
    assert isinstance(rnn, noisin.MinGRU), "torch has none"
    shared = noisin.MinLSTM(F, H, noise=LAW, share="sequence", site="output").double()
    factors = shared(x)[0] / shared.eval()(x)[0]
    assert_close(factors, factors[:1].expand_as(factors))


def test_the_site_can_be_changed_and_feedback_follows() -> None:
    rnn = noisin.MinGRU(F, H, noise=LAW)
    assert (rnn.site, rnn.feedback) == ("increment", True)
    rnn.site = "output"
    assert not rnn.feedback
    with pytest.raises(InvalidValue, match="feedback follows from the site"):
        rnn.feedback = True
    with pytest.raises(InvalidValue, match="MinGRU: site must be 'increment' or 'output' or"):
        rnn.site = "read"  # type: ignore[assignment]
    assert "site='output'" in repr(rnn)


def test_noise_on_the_state_warns_by_the_gates() -> None:
    rnn = noisin.MinGRU(F, H, noise=noise.Gaussian(0.5), site="state")
    with torch.no_grad():
        rnn.cell.weight_ih.zero_()
        x = torch.zeros(3, 1, F)
        rnn(x)  # a = 1/2
        rnn.cell.bias[:H] = -4.0
        with pytest.warns(GrowingNoise, match=r"MinGRU: .*largest \|a\| is 0.982"):
            rnn(x)


def test_the_compiler_and_autocast() -> None:
    x, eps, h0 = inputs()
    rnn = noisin.MinLSTM(F, H, noise=LAW, site="state").double()
    compiled = torch.compile(rnn, backend="eager", fullgraph=True)
    assert_close(compiled(x, h0, eps=eps), rnn(x, h0, eps=eps))
    rnn.float()
    with torch.autocast("cpu", torch.bfloat16):
        z, z_n = rnn(x.float(), h0.float())
        z, _ = rnn(z.new_zeros(T, N, F), z_n)
    assert z.dtype == torch.bfloat16
    assert z.isfinite().all()


class Decay(nn.Module):
    """An affine cell of a user's own: nothing but coefficients."""

    def __init__(self, input_size: int, hidden_size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(input_size, hidden_size)
        self.a = nn.Parameter(torch.full((hidden_size,), 0.5))

    def coefficients(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.a, self.linear(x)

    def forward(self, x: Tensor, state: Tensor | None = None) -> Tensor:
        a, b = self.coefficients(x)
        return b if state is None else a * state + b


@pytest.mark.parametrize("cell", [*AFFINE_NAMES, Decay])
def test_a_model_scans(cell: Any) -> None:
    """The parallel form is what runs, and its state continues a text."""
    model = LanguageModel(7, hidden_size=4, cell=cell, noise=LAW)
    found = [m for m in model.modules() if isinstance(m, noisin.Scanned)]
    assert [m.site for m in found] == ["increment"] * 2
    words = torch.randint(7, (12, 3))
    model.eval()
    whole, _ = model(words)
    first, state = model(words[:5])
    second, _ = model(words[5:], state)
    assert_close(torch.cat([first, second]), whole)


def test_the_settings_of_a_model() -> None:
    def sites(**settings: Any) -> list[Any]:
        model = LanguageModel(7, hidden_size=4, cell="min-gru", noise=LAW, **settings)
        return [(m.site, m._noise_acts()) for m in model.modules() if isinstance(m, noisin.Scanned)]

    assert sites(feedback=False) == [("output", True)] * 2
    assert sites(site="state") == [("state", True)] * 2
    assert sites(noisy_layers="last") == [("increment", False), ("increment", True)]
    for settings, message in (
        ({"feedback": False, "site": "state"}, "fed back, got feedback=False. Use site='output'"),
        ({"zoneout": (0.1, 0.0)}, "not on its increment. Use site='state'"),
        ({"weight_noise": WeightNoise(0.1, per="step")}, "not on its increment"),
        ({"site": "read it"}, "site, for a cell that is not a GRU, must be 'read' or 'increment'"),
        ({"cell_arguments": {"depth": 2}}, "depth"),
        ({"dropout": Dropouts(recurrent=0.1)}, "those of an affine cell read the input alone"),
    ):
        with pytest.raises(NoisinError, match=message):
            sites(**settings)
    by_steps = layer("min-gru", F, H, injection=Injection(LAW, site="state"), zoneout=(0.3, 0.0))
    assert isinstance(by_steps.rnn, noisin.Unrolled)
    assert by_steps(torch.zeros(5, 1, F))[0].shape == (5, 1, H)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: noisin.Scanned(nn.LSTMCell(F, H)), "a method coefficients.*noisin.Unrolled"),
        (lambda: noisin.Scanned(noisin.MinGRUCell), "a method coefficients"),
        (lambda: noisin.MinGRU(F, 0), "hidden_size must be a whole number, 1 or more"),
        (lambda: noisin.MinGRU(F, H, bias=3), "bias must be True or False"),
        (lambda: noisin.MinGRU(F, H, noise=3), "expected an object with"),
        (lambda: noisin.MinGRU(F, H, site="read"), "MinGRU: site must be"),
        (lambda: noisin.MinGRU(F, H)(torch.zeros(F)), r"\(T, N, F\)"),
        (lambda: noisin.MinGRU(F, H)(torch.zeros(0, 1, F)), "with T > 0"),
        (lambda: noisin.MinGRU(F, H)(torch.zeros(2, 1, 5)), "x with 2 features"),
        (lambda: noisin.MinGRU(F, H)(torch.zeros(2, 1, F).double()), "must be of torch.float32"),
        (lambda: noisin.MinGRU(F, H)(torch.zeros(2, 1, F), torch.zeros(2, H)), "of shape \\(1, 4"),
        (lambda: noisin.MinGRU(F, H)(torch.zeros(2, 1, F), eps=torch.zeros(2, H)), "expected eps"),
        (lambda: noisin.MinGRUCell(F, H)(torch.zeros(1, F), torch.zeros(H)), "a state of shape"),
    ],
)
def test_bad_input(call: Any, message: str) -> None:
    with pytest.raises(NoisinError, match=message):
        call()


@pytest.mark.parametrize(("cell", "site"), [("min-gru", "read"), ("min-lstm", "output")])
def test_they_train_from_a_config(cell: str, site: str, tmp_path: Path) -> None:
    settings = toy.config(
        model={"cell": cell, "dropout": {"between": 0.0, "output": 0.1}},
        noise={"gamma": 0.1, "site": site},
        train={"epochs": 1},
    )
    assert toy.run(tmp_path, settings=settings) == toy.Outcome(0, "", [])


def test_two_names_of_one_site_are_one_run() -> None:
    def hashed(site: str) -> str:
        return toy.config(model={"cell": "min-gru"}, noise={"gamma": 0.1, "site": site}).hash()

    assert hashed("read") == hashed("increment")
    assert len({hashed(site) for site in ("increment", "output", "state")}) == 3
