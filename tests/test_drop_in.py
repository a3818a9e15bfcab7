"""Where other people's code expects torch's RNNs: the same errors, names, leaves and gradients."""

from __future__ import annotations

import copy
import io
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

import noisin
from noisin import noise
from noisin._util import products
from noisin.errors import NoisinError, Unsupported
from noisin.recurrent import kernels
from noisin.recurrent.kernels.products import LAYER
from tests.cases import KINDS, Case, F, H

LAW = noise.Gaussian(0.5)
KERNELS = ("c", "eager", "reference")
zeros = torch.zeros

# A wrong input of a stack, by what is wrong: its shape, and those of (h_0, c_0).
WRONG_STATES = {
    "rows": ((5, 2, F), (1, 3, H)),
    "dimensions": ((5, 2, F), (2, H)),
    "units": ((5, 2, F), (1, 2, H + 1)),
    "layers": ((5, 2, F), (2, 2, H)),
    "unbatched": ((5, F), (1, 1, H)),
    "no steps": ((0, 2, F), (1, 2, H)),
    "four dimensions": ((1, 5, 2, F), (1, 2, H)),
    "features": ((5, 2, F + 1), (1, 2, H)),
}
WRONG_CELL_STATES = {
    "rows": ((2, F), (3, H)),
    "units": ((2, F), (2, H + 1)),
    "features": ((2, F + 1), (2, H)),
    "three dimensions": ((1, 2, F), (2, H)),
}


def state_of(kind: str, shape: Any, dtype: torch.dtype = torch.float32) -> Any:
    state = zeros(shape, dtype=dtype)
    return (state, state) if kind.startswith("LSTM") else state


def error_of(module: nn.Module, x: Tensor, state: Any) -> Exception:
    with pytest.raises(Exception) as caught:  # noqa: PT011 - compared with torch's
        module(x, state)
    return caught.value


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("wrong", WRONG_STATES)
def test_a_wrong_shape_raises_torchs_exception(wrong: str, kind: str, training: bool) -> None:
    x, state = WRONG_STATES[wrong]
    theirs = error_of(getattr(nn, kind)(F, H), zeros(x), state_of(kind, state))
    noisy = getattr(noisin, kind)(F, H, noise=LAW).train(training)
    assert isinstance(error_of(noisy, zeros(x), state_of(kind, state)), type(theirs))


@pytest.mark.parametrize("wrong", WRONG_CELL_STATES)
@pytest.mark.parametrize("kind", ["RNNCell", "LSTMCell", "GRUCell"])
def test_a_wrong_shape_of_a_cell_raises_torchs_exception(kind: str, wrong: str) -> None:
    x, state = WRONG_CELL_STATES[wrong]
    theirs = error_of(getattr(nn, kind)(F, H), zeros(x), state_of(kind, state))
    for site in ("state", "read") if kind == "GRUCell" else (None,):
        ours = getattr(noisin, kind)(F, H, **({} if site is None else {"site": site}))
        assert isinstance(error_of(ours, zeros(x), state_of(kind, state)), type(theirs))


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU", "RNNCell", "LSTMCell", "GRUCell"])
def test_a_state_of_another_dtype_raises_torchs_exception(kind: str) -> None:
    x, state = ((2, F), (2, H)) if kind.endswith("Cell") else ((5, 2, F), (1, 2, H))
    wrong = state_of(kind, state, torch.float64)
    theirs = error_of(getattr(nn, kind)(F, H), zeros(x), wrong)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ours = error_of(getattr(noisin, kind)(F, H, noise=LAW), zeros(x), wrong)
    assert isinstance(ours, type(theirs))
    assert isinstance(ours, NoisinError)
    assert isinstance(ours, TypeError)


@pytest.fixture
def replaced() -> Iterator[None]:
    """``torch.nn`` with noisin's classes in place of torch's."""
    names = ("RNN", "LSTM", "GRU", "RNNCell", "LSTMCell", "GRUCell")
    before = {name: getattr(nn, name) for name in names}
    try:
        for name in names:
            setattr(nn, name, getattr(noisin, name))
        yield
    finally:
        for name, theirs in before.items():
            setattr(nn, name, theirs)


@pytest.mark.filterwarnings("ignore:.*carry")
@pytest.mark.usefixtures("replaced")
@pytest.mark.parametrize("name", ["RNN", "LSTM", "GRU", "RNNCell", "LSTMCell", "GRUCell"])
@pytest.mark.parametrize("law", [None, LAW])
def test_in_place_of_torchs_classes(name: str, law: Any) -> None:
    """``torch.nn.GRUCell = noisin.GRUCell`` gives other people's code noise, without recursion."""
    module = getattr(nn, name)(F, H, noise=law)
    x = torch.randn(5, F)
    for mode in (True, False):
        module.train(mode)
        assert torch.equal(module(x)[0], module(x)[0]) == (law is None or not mode)
    if name == "GRUCell":
        noisin.Noisy(module, LAW)


class Model(nn.Module):
    """An RNN whose output and state are both used."""

    def __init__(self, rnn: nn.Module) -> None:
        super().__init__()
        self.rnn, self.V = rnn, nn.Linear(H, 1, dtype=torch.float64)

    def forward(self, x: Tensor) -> Tensor:
        z, state = self.rnn(x)
        z, _ = self.rnn(x, state)
        out: Tensor = self.V(z)
        return out


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "lstm-proj"])
def test_fx_takes_an_rnn_as_a_leaf(kind: str) -> None:
    """As it does torch's: the traced model has the same noise, and can be reverted as well."""
    case = Case(kind)
    model, x = Model(case.make()), torch.randn(3, 2, F, dtype=torch.float64)
    traced = torch.fx.symbolic_trace(model)
    assert [n.op for n in traced.graph.nodes].count("call_module") == 3
    found = []
    for each in (model, traced):
        torch.manual_seed(3)
        found.append(each(x))
    assert torch.equal(*found)
    if case.kind != "sigmoid":
        theirs = torch.fx.symbolic_trace(noisin.revert(copy.deepcopy(model)))
        assert [n.op for n in theirs.graph.nodes] == [n.op for n in traced.graph.nodes]
        assert torch.equal(noisin.revert(traced)(x), theirs(x)), "no argument that torch lacks"


@pytest.mark.parametrize(
    "make",
    [
        lambda: noisin.LSTMCell(F, H, noise=LAW),
        lambda: noisin.GRUCell(F, H, noise=LAW, site="read"),
        lambda: noisin.Noisy(nn.LSTMCell(F, H), LAW),
        lambda: noisin.MinGRU(F, H, noise=LAW),
    ],
)
def test_fx_takes_cells_and_scans_as_leaves(make: Any) -> None:
    model, x = nn.Sequential(make()), torch.randn(5, 2, F)
    x = x if isinstance(model[0], noisin.MinGRU) else x[0]
    traced = torch.fx.symbolic_trace(model)
    found = []
    for each in (model, traced):
        torch.manual_seed(3)
        found.append(each(x)[0])
    assert torch.equal(*found)


@pytest.mark.filterwarnings("ignore")  # torch's quantization is deprecated
def test_quantization_is_refused_not_ignored() -> None:
    """Torch looks modules up by their exact class, and would leave a converted one in float."""
    model = Model(noisin.convert(nn.LSTM(F, H), LAW)).eval().float()
    quantize = torch.ao.quantization.quantize_dynamic
    with pytest.raises(Unsupported, match=r"noisin.revert\(copy.deepcopy\(model\)\)"):
        quantize(model, {nn.LSTM, nn.Linear})
    clean = quantize(noisin.revert(copy.deepcopy(model)), {nn.LSTM, nn.Linear})
    assert type(clean.rnn) is torch.ao.nn.quantized.dynamic.LSTM
    assert not hasattr(model.rnn, "qconfig")


@pytest.mark.parametrize("family", noise.FAMILIES.values(), ids=lambda family: family.__name__)
def test_a_noise_in_a_checkpoint_is_loaded_with_weights_only(family: Any) -> None:
    """As Lightning loads the hyperparameters that a module has saved."""
    law, file = family.from_variance(0.5), io.BytesIO()
    torch.save({"hyper_parameters": {"noise": law}}, file)
    file.seek(0)
    assert torch.load(file, weights_only=True) == {"hyper_parameters": {"noise": law}}


def test_a_noise_in_a_checkpoint_is_checked() -> None:
    law, file = noise.Gaussian(0.5), io.BytesIO()
    object.__setattr__(law, "gamma", -1.0)
    torch.save(law, file)
    file.seek(0)
    with pytest.raises(Exception, match="gamma"):
        torch.load(file, weights_only=True)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_are_contiguous(kind: str, kernel: str) -> None:
    """As ``parameters_to_vector`` and optimizers of flat vectors need them."""
    rnn = Case(kind, num_layers=1).make(dtype=torch.float32)
    for candidate in products.CHOICES[1:] if kernel == "c" else products.CHOICES[1:2]:
        choice = dict.fromkeys(LAYER.names(), candidate)
        with products.using(choice), kernels.using(kernel):
            # Of many rows, a product may be computed as its transpose.
            for T in (3,) if kernel == "reference" else (3, 80):
                x = torch.randn(T, 30, F)
                gradients = torch.autograd.grad(rnn(x)[0].sum(), list(rnn.parameters()))
                assert all(gradient.is_contiguous() for gradient in gradients)
                assert len(parameters_to_vector(gradients)) > 0
