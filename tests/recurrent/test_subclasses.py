"""Converting subclasses of torch's RNNs and cells: noise where their methods cooperate."""

from __future__ import annotations

import copy
import io
import pickle
from abc import ABC, abstractmethod
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import noisin
from noisin import noise
from noisin.errors import Unsupported

F, H = 3, 4
LAW = noise.Gaussian(0.5)


class LastOfBatch(ABC, nn.RNNBase):
    """An abstract base beside torch's class, as in pytorch-forecasting."""

    @abstractmethod
    def scale(self) -> float: ...

    def forward(self, x: Tensor, hx: Any = None, factor: float = 1.0) -> Any:
        z, state = super().forward(self.scale() * x, hx)
        return factor * z, state


class TheirLSTM(LastOfBatch, nn.LSTM):
    def scale(self) -> float:
        return 2.0


class TheirGRU(LastOfBatch, nn.GRU):
    def scale(self) -> float:
        return 0.5


class TheirRNN(nn.RNN):
    pass


class TheirCell(nn.LSTMCell):
    def forward(self, x: Tensor, state: Any = None) -> Any:
        return super().forward(-x, state)


SUBCLASSES = (TheirLSTM, TheirGRU, TheirRNN, TheirCell)


def through_a_file(module: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    loaded: nn.Module = torch.load(file, weights_only=False)
    return loaded


@pytest.mark.parametrize("theirs", SUBCLASSES)
def test_there_and_back(theirs: type[nn.Module]) -> None:
    module, x = theirs(F, H), torch.randn(5, F)
    before, weights, keys = module(x)[0], list(module.parameters()), list(module.state_dict())
    attributes, random = set(vars(module)), torch.get_rng_state()
    assert noisin.convert(module, LAW) is module
    assert torch.equal(random, torch.get_rng_state()), "the trial draws from no global stream"
    assert isinstance(module, theirs)
    assert isinstance(module, getattr(noisin, theirs.__mro__[-4].__name__, nn.Module))
    assert type(module).__name__ == theirs.__name__
    assert not torch.equal(module(x)[0], before)
    assert torch.equal(module.eval()(x)[0], before)
    assert list(map(id, module.parameters())) == list(map(id, weights))
    assert list(module.state_dict()) == keys
    noisin.set_noise(module, noise.Gaussian(0.1))
    noisin.convert(module, LAW)  # again
    assert module.noise == LAW
    assert noisin.revert(module.train()) is module
    assert type(module) is theirs
    assert set(vars(module)) == attributes
    assert torch.equal(module(x)[0], before)


@pytest.mark.parametrize("theirs", [TheirLSTM, TheirGRU])
def test_their_arguments_and_our_noise(theirs: type[nn.Module]) -> None:
    """What their forward does around torch's is what it does around ours."""
    module, x = theirs(F, H), torch.randn(5, 2, F)
    torch_class = nn.LSTM if theirs is TheirLSTM else nn.GRU
    plain = noisin.convert(torch_class(F, H), LAW)
    plain.load_state_dict(module.state_dict())
    noisin.convert(module, LAW)
    torch.manual_seed(3)
    found = module(x, factor=3.0)[0]
    torch.manual_seed(3)
    assert torch.equal(found, 3 * plain(module.scale() * x)[0])


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), through_a_file],
    ids=["deepcopy", "pickle", "torch.save"],
)  # fmt: skip
@pytest.mark.parametrize("theirs", SUBCLASSES)
def test_copies(theirs: type[nn.Module], copied: Any) -> None:
    module, x = noisin.convert(theirs(F, H), LAW), torch.randn(5, F)
    with noisin.noise_off(module):
        twin = copied(module)
    assert type(twin) is type(module), "one class for all of them"
    found = []
    for each in (module, twin):
        torch.manual_seed(3)
        found.append(each(x)[0])
    assert torch.equal(*found)
    twin(x)[0].sum().backward()
    assert all(p.grad is None for p in module.parameters())
    assert type(noisin.revert(twin)) is theirs


class Bypassing(nn.LSTM):
    """Torch's forward by its name: ours is never called."""

    def forward(self, input: Any, hx: Any = None) -> Any:
        return nn.LSTM.forward(self, input, hx)


class BypassingInEval(nn.LSTM):
    def forward(self, input: Any, hx: Any = None) -> Any:
        return super().forward(input, hx) if self.training else nn.LSTM.forward(self, input, hx)


class Discarding(nn.LSTMCell):
    def forward(self, x: Tensor, state: Any = None) -> Any:
        super().forward(x, state)
        return x, x


class Demanding(nn.GRU):
    def forward(self, input: Any, hx: Any = None, *, lengths: Any) -> Any:  # type: ignore[override]
        return super().forward(input[: len(lengths)], hx)


class Named(nn.GRU):
    def _run(self) -> None: ...


class WithNoise(nn.GRU):
    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.noise = "mine"


@pytest.mark.parametrize(
    ("theirs", "message"),
    [
        (Bypassing, "'rnn' is a Bypassing, a subclass whose forward does not return what super"),
        (BypassingInEval, "'rnn' is a BypassingInEval, a subclass whose forward does not"),
        (Discarding, "'rnn' is a Discarding, a subclass whose forward does not return"),
        (Demanding, r"could not be tried on an input of its size \(TypeError: .*lengths.*where="),
        (Named, "attributes of noisin's: _run. Derive it"),
        (WithNoise, "attributes of noisin's: noise. Derive it"),
    ],
)
def test_what_does_not_cooperate_is_refused_and_left_alone(
    theirs: type[nn.Module], message: str
) -> None:
    model = nn.ModuleDict({"other": nn.LSTM(F, H), "rnn": theirs(F, H)})
    before = set(vars(model["rnn"]))
    with pytest.raises(Unsupported, match=message):
        noisin.convert(model, LAW)
    assert type(model["rnn"]) is theirs
    assert type(model["other"]) is nn.LSTM
    assert set(vars(model["rnn"])) == before


def test_a_subclass_of_ours_takes_the_settings() -> None:
    class Mine(noisin.LSTM):
        pass

    rnn = noisin.convert(Mine(F, H), LAW, feedback=False)
    assert type(rnn) is Mine
    assert (rnn.noise, rnn.feedback) == (LAW, False)
