"""K noise samples of every row: what K copies of the rows would give, on one pass if possible."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence
from torch.testing import assert_close

import noisin
from noisin import likelihoods, noise, objective
from noisin._util import states
from noisin.errors import InvalidValue, Unsupported
from noisin.noise.sampling import Shard, set_shard
from noisin.recurrent import samples
from noisin.regularizers import WeightDrop
from noisin.regularizers.weights import RandomWeights
from tests.pairwise import table

T, N, F, H, K = 4, 3, 5, 6, 4
CELLS = {
    "tanh": (noisin.RNN, {}),
    "sigmoid": (noisin.RNN, {"nonlinearity": "sigmoid"}),
    "LSTM": (noisin.LSTM, {}),
    "proj": (noisin.LSTM, {"proj_size": 2}),
    "GRU": (noisin.GRU, {}),
}
STRONG = {"feedback": False, "noisy_layers": "last"}


def build(cell: str = "LSTM", **options: Any) -> Any:
    module, more = CELLS[cell]
    torch.manual_seed(1)
    options = {"noise": noise.Gaussian(0.7), "dtype": torch.float64} | more | options
    return module(F, H, **options)


def state_of(rnn: Any, rows: int = N) -> Any:
    depth = rnn.num_layers * rnn._directions
    parts = tuple(torch.randn(depth, rows, size, dtype=torch.float64) for size in rnn._state_sizes)
    return parts if len(parts) > 1 else parts[0]


class Rows:
    """The numbers of rows that the recurrences of a stack ran on."""

    def __init__(self, rnn: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen: set[int] = set()
        for name in ("_kernel", "_loop"):
            monkeypatch.setattr(rnn, name, self.noted(getattr(rnn, name)))

    def noted(self, method: Any) -> Any:
        def run(*args: Any) -> Any:
            (x,) = (a for a in args if isinstance(a, Tensor))
            self.seen.add(x.shape[1])
            return method(*args)

        return run


def compared(rnn: Any, x: Tensor, hx: Any, **given: Any) -> None:
    """Outputs, states and gradients of K samples against those of K copies, with one draw."""
    dim = 0 if rnn.batch_first else 1
    x = x.requires_grad_()
    found = []
    for call in (
        lambda: rnn(x, hx, samples=K, **given),
        lambda: rnn(torch.cat([x] * K, dim), states.spread(hx, N, K), **given),
    ):
        torch.manual_seed(7)
        z, final = call()
        parts = (z, *(final if isinstance(final, tuple) else (final,)))
        loss = sum((torch.arange(p.numel()).view_as(p) * p.sin()).sum() for p in parts)
        found.append((*parts, *torch.autograd.grad(loss, [x, *rnn.parameters()])))
    for a, b in zip(*found, strict=True):
        assert_close(a, b, rtol=1e-12, atol=1e-12 * float(b.detach().abs().max()))


@pytest.mark.parametrize(
    ("cell", "layers", "bidirectional", "batch_first", "mode", "share", "start", "given"),
    table(
        CELLS, (1, 2), (False, True), (False, True), ("multiplicative", "additive"),
        ("step", "sequence"), ("zeros", "one", "copies"), (False, True),
    ),
)  # fmt: skip
def test_samples_are_what_copies_of_the_rows_give(
    cell: str, layers: int, bidirectional: bool, batch_first: bool, mode: Any, share: Any,
    start: str, given: bool, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    rnn = build(
        cell, num_layers=layers, bidirectional=bidirectional, batch_first=batch_first, mode=mode,
        share=share, **STRONG,
    )  # fmt: skip
    x = torch.randn((N, T, F) if batch_first else (T, N, F), dtype=torch.float64)
    hx = None if start == "zeros" else state_of(rnn)
    hx = states.repeat(hx, K) if start == "copies" else hx
    depth = layers * rnn._directions
    eps = torch.randn(depth, T, K * N, rnn._output_size, dtype=torch.float64) if given else None
    compared(rnn, x, hx, eps=eps)
    rows = Rows(rnn, monkeypatch)
    rnn(x, hx, samples=K, eps=eps)
    assert rows.seen == {N}


RANDOM: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "feedback": ({"feedback": True, "noisy_layers": "last"}, {}),
    "noise in the first layer": ({"feedback": False, "num_layers": 2}, {}),
    "dropout between the layers": (STRONG | {"num_layers": 2, "dropout": 0.5}, {}),
    "a mask": (STRONG, {"read_mask": torch.ones(1, T, K * N, H, dtype=torch.float64)}),
    "copies that differ": (STRONG, {"hx": lambda rnn: state_of(rnn, K * N)}),
    "copies with gradients": (
        STRONG,
        {"hx": lambda rnn: states.map(Tensor.requires_grad_, states.repeat(state_of(rnn), K))},
    ),
    "no noise": (STRONG | {"noise": None}, {}),
}


@pytest.mark.parametrize("why", RANDOM)
def test_samples_with_nothing_in_common_are_copies_of_the_rows(
    why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    options, given = RANDOM[why]
    rnn = build(**options)
    make = given.get("hx")
    given = {name: value for name, value in given.items() if name != "hx"}
    hx, x = make(rnn) if make else None, torch.randn(T, N, F, dtype=torch.float64)
    rows = Rows(rnn, monkeypatch)
    torch.manual_seed(5)
    found = rnn(x, hx, samples=K, **given)
    assert rows.seen <= {K * N}
    torch.manual_seed(5)
    expected = rnn(torch.cat([x] * K, 1), hx, **given)
    assert_close(found, expected, rtol=0, atol=0)


def test_a_gradient_reaches_every_copy_of_a_state() -> None:
    rnn = build(**STRONG)
    hx = states.map(Tensor.requires_grad_, states.repeat(state_of(rnn), K))
    z, _ = rnn(torch.randn(T, N, F, dtype=torch.float64), hx, samples=K)
    (d_h, *_) = torch.autograd.grad(z.sum(), hx)
    assert (d_h.abs().amax((0, 2)) > 0).all()


def test_dropout_that_does_not_act_is_in_common(monkeypatch: pytest.MonkeyPatch) -> None:
    rnn = build(**STRONG, num_layers=2, dropout=0.5).eval()
    rows = Rows(rnn, monkeypatch)
    with noisin.noise_on(rnn):
        rnn(torch.randn(T, N, F, dtype=torch.float64), samples=K)
    assert rows.seen == {N}


def test_weights_that_are_given() -> None:
    rnn, x = build(**STRONG), torch.randn(T, N, F, dtype=torch.float64)
    weights = {"weight_hh_l0": torch.randn(4 * H, H, dtype=torch.float64)}
    found = []
    for rows, more in ((x, {"samples": K}), (torch.cat([x] * K, 1), {})):
        torch.manual_seed(7)
        found.append(rnn(rows, weights=weights, **more))
    assert_close(*found, rtol=1e-12, atol=1e-12)


def test_processes_that_share_a_batch_draw_what_one_draws() -> None:
    rnn, x = build(**STRONG), torch.randn(T, N, F, dtype=torch.float64)
    torch.manual_seed(2)
    whole = rnn(x, samples=K)[0].unflatten(1, (K, N))
    for start, size in ((0, 1), (1, 2)):
        set_shard(rnn, Shard(start, size, N))
        torch.manual_seed(2)
        own = rnn(x[:, start : start + size], samples=K)[0].unflatten(1, (K, size))
        assert_close(own, whole[:, :, start : start + size])


def test_samples_are_independent() -> None:
    rnn = build(**STRONG)
    z = rnn(torch.randn(T, N, F, dtype=torch.float64), samples=2)[0].unflatten(1, (2, N))
    assert not torch.isclose(z[:, 0], z[:, 1]).any()


@pytest.mark.parametrize("K", [0, -1, 1.5, None, "2"])
def test_a_number_of_samples_that_is_none(K: Any) -> None:
    with pytest.raises(InvalidValue, match="LSTM: samples must be a whole number of noise samples"):
        build()(torch.randn(T, N, F, dtype=torch.float64), samples=K)


def test_inputs_without_rows_to_copy() -> None:
    rnn = build()
    with pytest.raises(Unsupported, match="samples are K copies .* got an unbatched input"):
        rnn(torch.randn(T, F, dtype=torch.float64), samples=2)
    packed = pack_sequence([torch.randn(3, F, dtype=torch.float64)])
    with pytest.raises(Unsupported, match="got a PackedSequence. Pad the sequences"):
        rnn(packed, samples=2)


class TestOffered:
    def test_by_stacks_and_not_by_torchs(self) -> None:
        assert samples.offered(build())
        assert not samples.offered(nn.LSTM(F, H))
        assert not samples.offered(lambda x, samples: x)

    def test_by_a_model_all_of_whose_methods_take_it(self) -> None:
        class One(nn.Module):
            def forward(self, x: Tensor, *, samples: int = 1) -> Tensor:
                return x

        class Two(One):
            def loss(self, batch: Any, state: Any = None) -> Any:
                raise NotImplementedError

        class Positional(nn.Module):
            def forward(self, x: Tensor, samples: int) -> Tensor:
                return x

        assert [samples.offered(kind()) for kind in (One, Two, Positional)] == [True, False, False]


@pytest.mark.parametrize("rows_first", [False, True])
def test_dropped_weights_are_drawn_for_each_sample(rows_first: bool) -> None:
    """All rows have them in common, so that the samples are passes."""

    class Dropped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = noisin.LSTM(2, 3, batch_first=rows_first)
            self.draw = RandomWeights(WeightDrop(0.5))
            self.batch_first = rows_first

        def forward(self, x: Tensor, state: Any = None) -> Any:
            return self.rnn(x, state, weights=self.draw(dict(self.rnn.named_parameters())))

    model, K = Dropped(), 4
    x = torch.randn(5, 6, 2)
    torch.manual_seed(3)
    found = objective.predict(model, x, K, likelihood=likelihoods.Gaussian())
    torch.manual_seed(3)
    each = [model(x) for _ in range(K)]
    assert torch.equal(found.s, torch.stack([z for z, _ in each]))
    assert not torch.equal(found.s[0], found.s[1])
    h = torch.cat([state[0] for _, state in each], 1)
    assert torch.equal(found.state[0], h)
    again = objective.predict(model, x, K, found.state, likelihood=likelihoods.Gaussian())
    assert again.s.shape == found.s.shape
