"""Converting existing models in place, and the switches over all noise in a model."""

from __future__ import annotations

import copy
import pickle
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import noisin
from noisin import noise
from noisin.errors import InvalidType, InvalidValue, NoisinError, Unsupported
from noisin.regularizers import DropoutLSTMCell, Zoneout

F, H = 3, 4
LAW = noise.Gaussian(0.5)
TORCH = {
    nn.RNN: noisin.RNN,
    nn.LSTM: noisin.LSTM,
    nn.GRU: noisin.GRU,
    nn.RNNCell: noisin.RNNCell,
    nn.LSTMCell: noisin.LSTMCell,
    nn.GRUCell: noisin.GRUCell,
}


class Model(nn.Module):
    """An encoder used twice, a decoder cell in a loop, a head."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.LSTM(F, H, num_layers=2, batch_first=True)
        self.same = self.encoder
        self.decoder = nn.ModuleDict({"cell": nn.LSTMCell(H, H), "gru": nn.GRU(H, H)})
        self.head = nn.Linear(H, 1)
        self.unregistered = [self.encoder]

    def forward(self, x: Tensor) -> Tensor:
        z = self.same(x)[0] + self.unregistered[0](x)[0]
        state = None
        for t in range(z.shape[1]):
            state = self.decoder["cell"](z[:, t], state)
        return self.head(self.decoder["gru"](z)[0]).sum() + state[0].sum()


@pytest.mark.filterwarnings("ignore:.*carry")
@pytest.mark.parametrize("theirs", TORCH)
def test_every_class_there_and_back(theirs: type[nn.Module]) -> None:
    module = theirs(F, H)
    x = torch.randn(5, F)
    before, weights, keys = module(x)[0], list(module.parameters()), list(module.state_dict())
    attributes = set(vars(module))
    assert noisin.convert(module, LAW) is module
    assert type(module) is TORCH[theirs]
    assert not torch.equal(module(x)[0], before)
    module.eval()
    assert torch.equal(module(x)[0], before)
    assert list(map(id, module.parameters())) == list(map(id, weights))
    assert list(module.state_dict()) == keys
    assert noisin.revert(module) is module
    assert type(module) is theirs
    assert set(vars(module)) == attributes
    assert torch.equal(module.train()(x)[0], before)


def test_a_model_keeps_parameters_optimizer_sharing_and_keys() -> None:
    model, x = Model(), torch.randn(2, 5, F)
    twin = copy.deepcopy(model)
    clean = model(x)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    model = noisin.convert(model, LAW)
    assert model.encoder is model.same is model.unregistered[0]
    assert isinstance(model.encoder, noisin.LSTM)
    assert isinstance(model.decoder["cell"], noisin.LSTMCell)
    assert isinstance(model.decoder["gru"], noisin.GRU)
    noisy = model(x)
    assert not torch.equal(noisy, clean)
    noisy.backward()
    optimizer.step()
    model.eval()
    assert not torch.equal(model(x), clean), "the optimizer reaches the converted weights"
    model.load_state_dict(twin.state_dict(), strict=True)
    assert torch.equal(model(x), clean)
    twin.load_state_dict(model.state_dict(), strict=True)
    noisin.revert(model).train()
    assert torch.equal(model(x), clean)


@pytest.mark.parametrize(
    ("where", "converted"),
    [
        (None, {"encoder", "decoder.cell", "decoder.gru"}),
        ("encoder", {"encoder"}),
        ("same", {"encoder"}),  # a second name of the same module
        ("decoder.*", {"decoder.cell", "decoder.gru"}),
        (["*.gru", "encoder"], {"encoder", "decoder.gru"}),
        (lambda name, module: isinstance(module, nn.GRU), {"decoder.gru"}),
    ],
)
def test_where(where: Any, converted: set[str]) -> None:
    model = noisin.convert(Model(), LAW, where=where)
    ours = {
        name
        for name, m in model.named_modules()
        if isinstance(m, noisin.recurrent.injection.Injected)
    }
    assert ours == converted


def test_settings_reach_the_modules() -> None:
    g = torch.Generator()
    model = nn.ModuleList([nn.LSTM(F, H, 2), nn.GRU(F, H, 2)])
    noisin.convert(
        model, LAW, mode="additive", feedback=False, noisy_layers="last", share="sequence",
        generator=g, site="state",
    )  # fmt: skip
    for m in model:
        assert m.noise == LAW
        assert (m.noise_mode, m.feedback, m.noisy_layers, m.share) == (
            *("additive", False, "last", "sequence"),
        )
        assert m.generator is g
    assert model[1].site == "state"
    noisin.convert(model, [LAW, None])
    assert model[0].noise == (LAW, None)


def test_hooks_survive() -> None:
    model = Model()
    calls: list[str] = []
    handle = model.encoder.register_forward_hook(lambda *_: calls.append("forward"))
    model.encoder.register_forward_pre_hook(lambda *_: calls.append("pre"))
    model.encoder.register_full_backward_hook(lambda *_: calls.append("backward"))
    model.encoder.weight_hh_l0.register_hook(lambda *_: calls.append("weight"))
    noisin.convert(model, LAW)
    model.encoder(torch.randn(2, 5, F, requires_grad=True))[0].sum().backward()
    assert set(calls) == {"forward", "pre", "backward", "weight"}
    handle.remove()
    calls.clear()
    noisin.revert(model).encoder(torch.randn(2, 5, F, requires_grad=True))
    assert calls == ["pre"]


@pytest.mark.filterwarnings("ignore:.*weight_norm.* is deprecated")
def test_weights_computed_by_hooks_keep_working() -> None:
    rnn = nn.LSTM(F, H)
    nn.utils.weight_norm(rnn, "weight_hh_l0")
    x = torch.randn(5, 2, F)
    before = rnn(x)[0]
    noisin.convert(rnn, LAW)
    rnn(x)[0].sum().backward()
    assert rnn.weight_hh_l0_g.grad is not None
    assert torch.equal(rnn.eval()(x)[0], before)


def test_converting_again_changes_the_settings() -> None:
    rnn = noisin.convert(nn.LSTM(F, H), LAW)
    noisin.convert(rnn, noise.Gaussian(0.1), feedback=False)
    assert (rnn.noise, rnn.feedback) == (noise.Gaussian(0.1), False)


def test_wrapped_cells_are_left_alone() -> None:
    model = nn.ModuleDict({
        "noisy": noisin.Noisy(Zoneout(nn.LSTMCell(F, H)), LAW),
        "zoned": Zoneout(nn.LSTMCell(F, H), p_h=0.1),
    })  # fmt: skip
    noisin.convert(model, LAW)
    assert type(model["noisy"].cell.cell) is nn.LSTMCell
    assert type(model["zoned"].cell) is noisin.LSTMCell
    noisin.revert(model)
    assert type(model["noisy"]) is noisin.Noisy
    assert type(model["zoned"].cell) is nn.LSTMCell


class LoopingLSTM(nn.LSTM):
    """A subclass that computes its steps by itself."""

    def forward(self, input: Any, hx: Any = None) -> Any:
        return input @ self.weight_ih_l0.t(), hx


class MyNoisyLSTM(noisin.LSTM):
    pass


def parametrized() -> nn.Module:
    rnn = nn.LSTM(F, H)
    nn.utils.parametrizations.weight_norm(rnn, "weight_hh_l0")
    return rnn


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda m: noisin.convert(nn.ModuleDict({"a": m, "b": LoopingLSTM(F, H)}), LAW),
         Unsupported, "'b' is a LoopingLSTM, a subclass whose forward does not return"),
        (lambda m: noisin.convert(nn.ModuleDict({"a": m, "b": parametrized()}), LAW), Unsupported,
         "'b' is a ParametrizedLSTM, whose class belongs to torch.nn.utils.parametrize"),
        (lambda m: noisin.convert(nn.ModuleDict({"a": m, "b": DropoutLSTMCell(F, H)}), LAW),
         Unsupported, "'b' is a DropoutLSTMCell.*wrap a cell with noisin.Noisy"),
        (lambda m: noisin.convert(nn.ModuleDict({"a": m, "b": nn.LSTMCell(F, H)}), LAW,
                                  feedback=False), Unsupported, "'b' is a LSTMCell.*feedback=F"),
        (lambda m: noisin.convert(nn.ModuleDict({"a": m, "b": nn.LSTM(F, H, 3)}), [LAW]),
         InvalidValue, "needs 3 entries"),
        (lambda m: noisin.convert(m, LAW, where="decoder.*"), InvalidValue,
         "no torch RNN or cell in LSTM where 'decoder"),
        (lambda m: noisin.convert(nn.Linear(2, 2), LAW), InvalidValue, "in Linear. Wrap"),
        (lambda m: noisin.convert(m, 0.5), InvalidType, "noise.Gaussian"),
        (lambda m: noisin.convert(m, LAW, mode="x"), InvalidValue, "mode must be"),
        (lambda m: noisin.convert(m, LAW, noisy_layers="x"), InvalidValue, "noisy_layers must"),
        (lambda m: noisin.set_noise(m, LAW), InvalidValue, "Convert it first"),
        (lambda m: noisin.revert(MyNoisyLSTM(F, H)), Unsupported, "MyNoisyLSTM is a subclass"),
        (lambda m: noisin.revert(noisin.RNN(F, H, nonlinearity="sigmoid")), Unsupported,
         "no RNN with a sigmoid"),
    ],
)  # fmt: skip
def test_refusals_name_the_module_and_change_nothing(
    call: Any, error: type[Exception], message: str
) -> None:
    module = nn.LSTM(F, H)
    before = dict(vars(module))
    with pytest.raises(error, match=message):
        call(module)
    assert type(module) is nn.LSTM
    assert vars(module).keys() == before.keys()


def test_subclasses_of_ours_keep_working() -> None:
    rnn = MyNoisyLSTM(F, H, noise=LAW)
    assert not torch.equal(rnn(torch.randn(5, 2, F))[0], rnn.eval()(torch.randn(5, 2, F))[0])
    noisin.set_noise(rnn, None)


def test_converting_in_eval_stays_in_eval() -> None:
    rnn = noisin.convert(nn.LSTM(F, H).eval(), LAW)
    assert not rnn.training
    x = torch.randn(5, 2, F)
    assert torch.equal(rnn(x)[0], rnn(x)[0])


def test_a_reading_gru_cell_keeps_its_site() -> None:
    cell = noisin.convert(noisin.GRUCell(F, H, site="read"), LAW)
    assert cell.site == "read"
    with pytest.raises(Unsupported, match="has a pair"):
        noisin.revert(cell)


def test_parametrized_modules_of_ours_are_refused_with_the_right_advice() -> None:
    rnn = noisin.LSTM(F, H, noise=LAW)
    nn.utils.parametrizations.weight_norm(rnn, "weight_hh_l0")
    with pytest.raises(Unsupported, match="converted already"):
        noisin.convert(rnn, LAW)
    with pytest.raises(Unsupported, match="Remove its parametrizations"):
        noisin.revert(rnn)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m))])
def test_a_copy_made_inside_a_switch_does_not_keep_it(copied: Any) -> None:
    for module in (noisin.LSTM(F, H, noise=LAW), noisin.LSTMCell(F, H, noise=LAW)):
        with noisin.noise_off(module):
            twin = copied(module)
            assert module._noise_switch is False
        assert twin._noise_switch is None


def test_reverting_inside_a_switch_leaves_no_trace() -> None:
    rnn = noisin.LSTM(F, H, noise=LAW)
    with noisin.noise_off(rnn):
        noisin.revert(rnn)
    assert "_noise_switch" not in vars(rnn)


def test_converting_inside_a_switch_obeys_it() -> None:
    rnn = noisin.LSTM(F, H, noise=LAW)
    x = torch.randn(5, 2, F)
    with noisin.noise_off(rnn):
        noisin.convert(rnn, noise.Gaussian(1.0))
        assert torch.equal(rnn(x)[0], rnn(x)[0])
    assert not torch.equal(rnn(x)[0], rnn(x)[0])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: noisin.convert(LAW, m), "expected a model, a torch.nn.Module, got Gaussian"),
        (lambda m: noisin.set_noise(5, LAW), "set_noise: expected a model"),
        (lambda m: noisin.revert("m"), "got str"),
        (lambda m: noisin.noise_off(5).__enter__(), "noise_off: expected a model"),
        (lambda m: noisin.convert(m, LAW, where=5), "where must be a pattern"),
        (lambda m: noisin.convert(m, LAW, where=nn.LSTM), "where must be a pattern"),
        (lambda m: noisin.convert(m, LAW, where=["encoder", "typo"]), "is named 'typo'"),
        (lambda m: noisin.convert(m, LAW, site="bogus"), "site must be"),
        (lambda m: noisin.convert(nn.LSTMCell(F, H), LAW, noisy_layers="x"), "noisy_layers must"),
        (lambda m: noisin.convert(m, LAW, where="encoder", share="x"), "share must be"),
        (lambda m: noisin.convert(nn.LSTMCell(F, H), LAW, share="sequence"), "share='sequence'"),
        (lambda m: noisin.convert(m, [LAW, None], where="encoder", noisy_layers="last"), "per la"),
        (lambda m: noisin.set_noise(noisin.LSTM(F, H, 2, noisy_layers="last"), [LAW, None]),
         "give it one noise"),
    ],
)  # fmt: skip
def test_bad_calls(call: Any, message: str) -> None:
    with pytest.raises(NoisinError, match=message):
        call(Model())


def test_a_gru_cell_warns() -> None:
    with pytest.warns(UserWarning, match="carry"):
        noisin.convert(nn.GRUCell(F, H), LAW)


class TestSwitches:
    def noisy(self, model: nn.Module) -> bool:
        x = torch.randn(2, 5, F)
        return not torch.equal(model(x), model(x))

    @pytest.mark.parametrize("training", [True, False])
    def test_independent_of_train_and_eval_and_nested(self, training: bool) -> None:
        model = noisin.convert(Model(), LAW).train(training)
        assert self.noisy(model) == training
        with noisin.noise_on(model):
            assert self.noisy(model)
            with noisin.noise_off(model):
                assert not self.noisy(model)
                model.train(not training)
                assert not self.noisy(model)
                with noisin.noise_on(model.encoder):
                    assert self.noisy(model)
                assert not self.noisy(model)
            assert self.noisy(model)
            model.train(training)
        assert self.noisy(model) == training

    @pytest.mark.parametrize("switch", [noisin.noise_on, noisin.noise_off])
    def test_restored_when_the_body_raises(self, switch: Any) -> None:
        model = noisin.convert(Model(), LAW)
        with pytest.raises(KeyError), switch(model):
            raise KeyError
        assert self.noisy(model)
        assert not self.noisy(model.eval())

    def test_gradients_flow_with_the_noise_off(self) -> None:
        model = noisin.convert(Model(), LAW)
        with noisin.noise_off(model):
            model(torch.randn(2, 5, F)).backward()
        assert model.encoder.weight_hh_l0.grad.any()

    def test_all_kinds_of_noise(self) -> None:
        cells = nn.ModuleList([
            noisin.Noisy(nn.LSTMCell(F, H), LAW), noisin.LSTMCell(F, H, noise=LAW),
        ])  # fmt: skip
        x = torch.randn(5, 2, F)
        with noisin.noise_off(cells):
            for cell in cells:
                assert torch.equal(noisin.unroll(cell, x)[0], noisin.unroll(cell, x)[0])
        cells.eval()
        with noisin.noise_on(cells):
            for cell in cells:
                assert not torch.equal(noisin.unroll(cell, x)[0], noisin.unroll(cell, x)[0])

    def test_a_model_without_noise_is_left_alone(self) -> None:
        with noisin.noise_off(nn.LSTM(F, H)), noisin.noise_on(nn.Linear(1, 1)):
            pass


def test_set_noise_is_all_or_nothing() -> None:
    model = nn.ModuleList([noisin.LSTM(F, H, 2, noise=LAW), noisin.LSTM(F, H, 3, noise=LAW)])
    noisin.set_noise(model, noise.Gaussian(0.1))
    assert all(m.noise == noise.Gaussian(0.1) for m in model)
    with pytest.raises(InvalidValue, match="needs 3 entries"):
        noisin.set_noise(model, [LAW, LAW])
    assert all(m.noise == noise.Gaussian(0.1) for m in model)
    noisin.set_noise(model, None)
    x = torch.randn(5, 2, F)
    assert torch.equal(model[0](x)[0], model[0](x)[0])


def test_conversion_is_silent() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        noisin.convert(Model(), LAW)
