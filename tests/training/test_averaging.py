"""Average: the mean of the iterates, by torch's own averaging and in float64."""
# ruff: noqa: E501 - a message is one line, as its reader sees it

from __future__ import annotations

import io
import re
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel
from torch.utils._python_dispatch import TorchDispatchMode

from noisin.errors import InvalidType, InvalidValue, Unsupported
from noisin.training import Average


class Tied(nn.Module):
    """A model with one weight in two places, and a recurrent layer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.rnn = nn.LSTM(4, 4)
        self.decoder = nn.Linear(4, 7)
        self.decoder.weight = self.embedding.weight

    def forward(self, x: Any) -> Any:
        return self.decoder(self.rnn(self.embedding(x))[0])


def iterates(model: nn.Module, steps: int) -> Any:
    """Move the parameters as SGD would."""
    generator = torch.Generator().manual_seed(3)
    for _ in range(steps):
        with torch.no_grad():
            for p in model.parameters():
                p += torch.randn(p.shape, generator=generator, dtype=p.dtype)
        yield [p.detach().clone() for p in model.parameters()]


def values(model: nn.Module) -> list[torch.Tensor]:
    return [p.detach().clone() for p in model.parameters()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_is_the_mean_of_the_iterates(dtype: torch.dtype) -> None:
    model = Tied().to(dtype)
    average, oracle = Average(model.parameters()), AveragedModel(model)
    history = []
    for count, iterate in enumerate(iterates(model, steps=50), start=1):
        average.update()
        oracle.update_parameters(model)
        history.append(iterate)
        assert average.count == count
    means = [torch.stack(path).double().mean(0) for path in zip(*history, strict=True)]
    with average.applied():
        for found, torchs, mean in zip(
            model.parameters(), oracle.module.parameters(), means, strict=True
        ):
            assert found.dtype == dtype
            torch.testing.assert_close(found, torchs)
            tolerance = 10 * torch.finfo(dtype).eps
            torch.testing.assert_close(found.double(), mean, rtol=tolerance, atol=tolerance)


def test_the_first_update_is_the_iterate_itself() -> None:
    model = Tied()
    average = Average(model.parameters())
    (first,) = iterates(model, steps=1)
    average.update()
    list(iterates(model, steps=1))
    with average.applied():
        assert all(map(torch.equal, values(model), first))


def test_weights_come_back_bit_for_bit_whatever_happens_within() -> None:
    model = Tied()
    average = Average(model.parameters())
    for _ in iterates(model, steps=3):
        average.update()
    list(iterates(model, steps=1))
    before = values(model)
    with average.applied():
        inside = values(model)
        assert not any(map(torch.equal, inside, before))
        with average.applied():  # again is the same
            assert all(map(torch.equal, values(model), inside))
        assert all(map(torch.equal, values(model), inside))
    assert all(map(torch.equal, values(model), before))
    with pytest.raises(ZeroDivisionError), average.applied():
        _ = 1 / 0
    assert all(map(torch.equal, values(model), before))
    with average.applied():  # and the mean has not changed
        assert all(map(torch.equal, values(model), inside))


def test_a_tied_weight_stays_tied_and_counts_once() -> None:
    model = Tied()
    average = Average([*model.parameters(), model.decoder.weight])
    for _ in iterates(model, steps=2):
        average.update()
    assert len(average.state_dict()["means"]) == len(list(model.parameters()))
    with average.applied():
        assert model.decoder.weight is model.embedding.weight


def test_before_the_first_update_nothing_is_held_and_nothing_applied() -> None:
    model = Tied()
    average = Average(model.parameters())
    assert average.state_dict() == {"count": 0, "means": []}
    before = values(model)
    with average.applied():
        assert all(map(torch.equal, values(model), before))


class Operations(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func._overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def test_an_update_is_one_call_for_all_parameters() -> None:
    model = Tied()
    average = Average(model.parameters())
    average.update()
    with Operations() as operations:
        average.update()
    assert operations.names == ["_foreach_lerp_"]


def test_it_trains_on_after_it_was_applied() -> None:
    """The optimizer and the graph see nothing of it."""
    torch.manual_seed(0)
    model, x = Tied(), torch.randint(7, (5, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    average = Average(model.parameters())
    for _ in range(3):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        average.update()
        with average.applied(), torch.no_grad():
            model(x)
    trained = values(model)
    torch.manual_seed(0)
    model, x = Tied(), torch.randint(7, (5, 2))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for _ in range(3):
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    assert all(map(torch.equal, values(model), trained))


@pytest.mark.parametrize("steps", [0, 4])
def test_a_saved_average_goes_on_as_if_nothing_had_happened(steps: int) -> None:
    model = Tied()
    average = Average(model.parameters())
    for _ in iterates(model, steps):
        average.update()
    file = io.BytesIO()
    torch.save(average.state_dict(), file)
    file.seek(0)
    state = torch.load(file, weights_only=True)
    resumed = Average(model.parameters())
    resumed.load_state_dict(state)
    for mean in state["means"]:
        mean.fill_(torch.nan)  # the state stays the caller's
    for _ in iterates(model, steps=2):
        average.update()
        resumed.update()
    assert resumed.count == average.count == steps + 2
    for a, b in zip(average.state_dict()["means"], resumed.state_dict()["means"], strict=True):
        assert torch.equal(a, b)


WEIGHT = nn.Parameter(torch.zeros(2, 3))


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ([], InvalidValue, "Average: got no parameters. Pass model.parameters(), before using it."),
        (nn.Linear(1, 1), InvalidType, "Average: expected parameters, got Linear. Pass model.parameters()."),
        (WEIGHT, InvalidType, "Average: expected parameters, got Parameter. Pass model.parameters()."),
        ([WEIGHT, "W"], InvalidType, "Average: expected floating-point tensors, got str. Pass model.parameters()."),
        ([torch.arange(3)], InvalidType, "Average: expected floating-point tensors, got torch.int64. Pass model.parameters()."),
    ],
)  # fmt: skip
def test_errors_of_the_parameters(parameters: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        Average(parameters)


@pytest.mark.parametrize(
    ("state", "given", "expected"),
    [
        ({"count": 2, "means": [torch.zeros(3, 2)]}, "[(3, 2)] after 2 updates", "[(2, 3)]"),
        ({"count": 2, "means": []}, "[] after 2 updates", "[(2, 3)]"),
        ({"count": 0, "means": [torch.zeros(2, 3)]}, "[(2, 3)] after 0 updates", "[]"),
    ],
)
def test_a_state_of_another_model_is_refused(state: Any, given: Any, expected: Any) -> None:
    average = Average([WEIGHT])
    average.update()
    message = (
        f"Average: the state has means of the shapes {given}, expected {expected}. Load it for the "
        "model it was saved from."
    )
    with pytest.raises(InvalidValue, match=f"^{re.escape(message)}$"):
        average.load_state_dict(state)
    assert average.count == 1


def test_updating_within_is_refused() -> None:
    average = Average([WEIGHT])
    average.update()
    message = (
        "Average: update() within applied() would average the average. Leave the with block first."
    )
    with average.applied(), pytest.raises(Unsupported, match=f"^{re.escape(message)}$"):
        average.update()
    assert average.count == 1
