"""``keep=`` and ``update_mask=`` of a forward pass, against cells run step by step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck
from torch.nn.utils.rnn import pack_padded_sequence
from torch.testing import assert_close

import noisin
from noisin import noise
from noisin.errors import InvalidType, InvalidValue, Unsupported
from noisin.recurrent import kernels
from noisin.recurrent.cells import ElmanCell
from noisin.regularizers import Zoneout
from tests.compiler import needs_compiler

T, N, F, H = 5, 3, 3, 4
D64: Any = {"dtype": torch.float64}
KERNELS = ["reference", "eager", pytest.param("c", marks=needs_compiler)]
# Layers and the cells of one step that they consist of.
KINDS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "lstm": (noisin.LSTM, nn.LSTMCell, {}),
    "gru": (noisin.GRU, nn.GRUCell, {}),
    "tanh": (noisin.RNN, nn.RNNCell, {}),
    "relu": (noisin.RNN, nn.RNNCell, {"nonlinearity": "relu"}),
    "sigmoid": (noisin.RNN, ElmanCell, {"nonlinearity": "sigmoid"}),
}


class Scripted(Zoneout):
    """Zoneout by given masks, one of h and then one of c at each step."""

    script: Iterator[Tensor]

    def _mask(self, p: Any, shape: Any, like: Tensor, *_: Any, **__: Any) -> Tensor:
        return 1 - next(self.script)


def pair(kind: str, **options: Any) -> tuple[Any, Any]:
    """A layer and a cell with the same weights."""
    layer, cell, arguments = KINDS[kind]
    own = {"site": "state"} if kind == "gru" else {}
    rnn = layer(F, H, **arguments, **own, **options, **D64)
    step = cell(F, H, **arguments, **D64)
    step.load_state_dict({name[:-3]: w for name, w in rnn.state_dict().items()})
    return rnn, step


def masks(kind: str, p: float = 0.5) -> tuple[Tensor, Tensor | None]:
    h, c = (torch.rand(2, 1, T, N, H, **D64) < p).double()
    return h, c if kind == "lstm" else None


@pytest.mark.parametrize("feedback", [True, False])
@pytest.mark.parametrize("mode", ["multiplicative", "additive"])
@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_noise_around_zoneout_around_the_cell(
    kind: str, kernel: str, mode: Any, feedback: bool
) -> None:
    """With the same masks and the same noise: what is emitted and what is carried."""
    rnn, step = pair(kind, mode=mode, feedback=feedback)
    x, eps, (keep_h, keep_c) = torch.randn(T, N, F, **D64), torch.randn(T, N, H, **D64), masks(kind)
    zoned = Scripted(step, 0.5, 0.5 if kind == "lstm" else 0.0)
    steps = zip(keep_h[0], keep_h[0] if keep_c is None else keep_c[0], strict=True)
    zoned.script = (m for both in steps for m in both[: 1 if keep_c is None else 2])
    noisy = noisin.Noisy(zoned, None, mode=mode, feedback=feedback)
    expected, state = noisin.unroll(noisy, x, eps=eps)
    with kernels.using(kernel):
        z, carried = rnn(x, eps=eps[None], keep=(keep_h, keep_c))
    assert_close(z, expected)
    found = carried if isinstance(carried, tuple) else (carried,)
    for a, b in zip(found, state if isinstance(state, tuple) else (state,), strict=True):
        assert_close(a[0], b)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", KINDS)
def test_numbers_are_the_expectation_in_eval(kind: str, kernel: str) -> None:
    rnn, step = pair(kind)
    x, rates = torch.randn(T, N, F, **D64), (0.25, 0.5 if kind == "lstm" else 0.0)
    expected, _ = noisin.unroll(Zoneout(step, *rates).eval(), x)
    with kernels.using(kernel):
        assert_close(rnn.eval()(x, keep=rates)[0], expected)


@pytest.mark.parametrize("keep", [(0.0, 0.0), (None, 0), (0, None), None])
def test_nothing_kept_is_torchs_module_exactly(keep: Any) -> None:
    torch.manual_seed(1)
    ours, theirs = noisin.LSTM(F, H, 2), nn.LSTM(F, H, 2)
    theirs.load_state_dict(ours.state_dict())
    x = torch.randn(T, N, F)
    assert_close(ours(x, keep=keep), theirs(x), rtol=0, atol=0)


@pytest.mark.parametrize("ones", [1.0, 1, torch.ones(4, 1, N, H, **D64)])
def test_ones_freeze_a_stack(ones: Any) -> None:
    """In each direction of two layers, and where a mask is one for the whole sequence."""
    rnn = noisin.LSTM(F, H, 2, bidirectional=True, **D64)
    hx = tuple(torch.randn(4, N, H, **D64) for _ in range(2))
    z, final = rnn(torch.randn(T, N, F, **D64), hx, keep=(ones, ones))
    assert_close(final, hx, rtol=0, atol=0)
    assert_close(z, torch.cat([hx[0][2], hx[0][3]], -1).expand(T, N, 2 * H), rtol=0, atol=0)


@pytest.mark.parametrize("kernel", KERNELS)
def test_packed_sequences_are_run_one_by_one(kernel: str) -> None:
    """In both directions, with a projection, read masks, replaced weights and all factors."""
    rnn = noisin.LSTM(F, H, bidirectional=True, proj_size=2, batch_first=True, **D64)
    lengths = [3, 5, 1]
    x, eps = torch.randn(N, T, F, **D64), torch.randn(2, T, N, 2, **D64)
    w = {"weight_hh_l0_reverse": torch.randn_like(rnn.weight_hh_l0_reverse)}
    given = {"eps": eps, "read_mask": torch.rand(2, T, N, 2, **D64)}
    keep_h, (keep_c, update) = torch.rand_like(eps), torch.rand(2, 2, T, N, H, **D64)
    packed = pack_padded_sequence(x, torch.tensor(lengths), True, enforce_sorted=False)
    with kernels.using(kernel):
        found, (z_n, c_n) = rnn(
            packed, weights=w, keep=(keep_h, keep_c), update_mask=update, **given
        )
        padded, _ = nn.utils.rnn.pad_packed_sequence(found, batch_first=True)
        for n, length in enumerate(lengths):

            def own(value: Tensor, n: int = n, length: int = length) -> Tensor:
                return value[:, :length, n : n + 1]

            z, (z_1, c_1) = rnn(
                x[n : n + 1, :length],
                weights=w,
                keep=(own(keep_h), own(keep_c)),
                update_mask=own(update),
                **{name: own(value) for name, value in given.items()},
            )
            assert_close(padded[n, :length], z[0])
            assert_close((z_n[:, n], c_n[:, n]), (z_1[:, 0], c_1[:, 0]))


@pytest.mark.parametrize("kernel", KERNELS)
def test_an_update_mask_is_on_what_a_memory_adds(kernel: str) -> None:
    """By the equations: c = f c + m i g, and a GRU's h = (1 - u) m n + u h."""
    x, m = torch.randn(T, N, F, **D64), torch.rand(1, T, N, H, **D64)
    lstm, gru = noisin.LSTM(F, H, **D64), noisin.GRU(F, H, **D64)
    h = c = k = torch.zeros(N, H, **D64)
    w, v = lstm._parameters, gru._parameters
    hs, ks = [], []
    for t in range(T):
        gates = x[t] @ w["weight_ih_l0"].t() + h @ w["weight_hh_l0"].t()
        i, f, g, o = (gates + w["bias_ih_l0"] + w["bias_hh_l0"]).chunk(4, -1)
        c = f.sigmoid() * c + m[0, t] * i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        hs.append(h)
        r_x, u_x, n_x = (x[t] @ v["weight_ih_l0"].t() + v["bias_ih_l0"]).chunk(3, -1)
        r_h, u_h, n_h = (k @ v["weight_hh_l0"].t() + v["bias_hh_l0"]).chunk(3, -1)
        u, n = (u_x + u_h).sigmoid(), (n_x + (r_x + r_h).sigmoid() * n_h).tanh()
        k = (1 - u) * m[0, t] * n + u * k
        ks.append(k)
    with kernels.using(kernel):
        assert_close(lstm(x, update_mask=m)[0], torch.stack(hs))
        assert_close(gru(x, update_mask=m)[0], torch.stack(ks))


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("steps", [1, T])
def test_a_read_mask_for_each_gate(kernel: str, steps: int) -> None:
    """In the order of the weights; one for all steps, or one for each."""
    x, lstm, gru = torch.randn(T, N, F, **D64), noisin.LSTM(F, H, **D64), noisin.GRU(F, H, **D64)
    for rnn, gates in ((lstm, 4), (gru, 3)):
        masks = torch.rand(1, steps, N, gates * H, **D64)
        w = {name[:-3]: value for name, value in rnn.named_parameters()}
        h = c = torch.zeros(N, H, **D64)
        zs = []
        for t in range(T):
            own = masks[0, t % steps].view(N, gates, H)
            read = [(h * own[:, g]) @ w["weight_hh"][g * H : (g + 1) * H].t() for g in range(gates)]
            product = x[t] @ w["weight_ih"].t() + w["bias_ih"]
            recurrent = torch.cat(read, -1) + w["bias_hh"]
            if gates == 4:
                i, f, g, o = (product + recurrent).chunk(4, -1)
                c = f.sigmoid() * c + i.sigmoid() * g.tanh()
                h = o.sigmoid() * c.tanh()
            else:
                (r_x, u_x, n_x), (r_h, u_h, n_h) = product.chunk(3, -1), recurrent.chunk(3, -1)
                u, n = (u_x + u_h).sigmoid(), (n_x + (r_x + r_h).sigmoid() * n_h).tanh()
                h = (1 - u) * n + u * h
            zs.append(h)
        with kernels.using(kernel):
            assert_close(rnn(x, read_mask=masks)[0], torch.stack(zs))


def test_a_read_mask_of_other_sizes_is_refused() -> None:
    rnn = noisin.LSTM(F, H)
    with pytest.raises(InvalidValue, match="H_out, or as many for each gate"):
        rnn(torch.zeros(T, N, F), read_mask=torch.ones(1, T, N, 3 * H))


def test_a_gru_with_noise_on_what_is_read_keeps_its_clean_carry() -> None:
    """So that noise does not multiply along what is kept."""
    gru = noisin.GRU(F, H, noise=noise.Gaussian(1.0), **D64)
    x, h0 = torch.randn(T, N, F, **D64), torch.randn(1, N, H, **D64)
    _, h_n = gru(x, h0, keep=(1.0, None))
    assert torch.equal(h_n, h0)


def test_factors_have_gradients_by_the_reference() -> None:
    rnn = noisin.LSTM(F, H, **D64)
    x = torch.randn(2, 1, F, **D64)
    k = [torch.rand(1, 2, 1, H, **D64).requires_grad_() for _ in range(3)]
    assert gradcheck(lambda h, c, m: rnn(x, keep=(h, c), update_mask=m)[0], k, fast_mode=True)


def test_samples_have_a_recurrence_in_common_if_their_factors_are_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    strong = noisin.LSTM(F, H, noise=noise.Gaussian(0.5), feedback=False, **D64)
    x, K = torch.randn(T, N, F, **D64), 3
    eps = torch.randn(1, T, K * N, H, **D64)
    expected = strong(x.repeat(1, K, 1), eps=eps, keep=(0.1, 0.2))
    rows: list[int] = []
    loop = strong._loop

    def counted(layer: int, x: Tensor, *args: Any) -> Any:
        rows.append(x.shape[1])
        return loop(layer, x, *args)

    monkeypatch.setattr(strong, "_loop", counted)
    assert_close(strong(x, samples=K, eps=eps, keep=(0.1, 0.2)), expected)
    each = torch.rand(1, T, K * N, H, **D64)
    found = strong(x, samples=K, eps=eps, keep=(each, None))
    assert_close(found, strong(x.repeat(1, K, 1), eps=eps, keep=(each, None)))
    assert rows == [N, K * N, K * N]


@pytest.mark.filterwarnings("ignore")  # of the compiler's own
@pytest.mark.parametrize("kernel", ["auto", "reference"])
def test_compiled_whole(kernel: str) -> None:
    rnn = noisin.LSTM(F, H, bidirectional=True, **D64)
    x, eps = torch.randn(T, N, F, **D64), torch.randn(2, T, N, H, **D64)
    k = torch.rand(2, T, N, H, **D64)

    def run(x: Tensor, k: Tensor) -> Tensor:
        return rnn(x, eps=eps, keep=(k, 0.5), update_mask=k)[0].sin()

    torch._dynamo.reset()
    with torch._dynamo.config.patch(allow_rnn=True), kernels.using(kernel):
        compiled = torch.compile(run, backend="aot_eager", fullgraph=True)
        found, expected = compiled(x, k), run(x, k)
    assert_close(found, expected)
    weights = list(rnn.parameters())
    assert_close(*(torch.autograd.grad(z.sum(), weights) for z in (found, expected)))


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"keep": 0.5}, InvalidType, r"keep must be a pair \(keep_h, keep_c\).* got 0.5"),
        ({"keep": (0.5,)}, InvalidType, "keep must be a pair"),
        ({"keep": (1.5, None)}, InvalidValue, r"numbers in \[0, 1\], got 1.5"),
        ({"keep": (True, None)}, InvalidValue, "got True"),
        ({"keep": ("a", None)}, InvalidValue, "got 'a'"),
        ({"keep": (float("nan"), None)}, InvalidValue, "got nan"),
        ({"keep": (torch.ones(1, T, N, H + 1), None)}, InvalidValue, "expected keep_h of shape"),
        ({"keep": (None, torch.ones(T, N, H))}, InvalidValue, "expected keep_c .*hidden_size"),
        ({"keep": (torch.ones(1, T, N, H).bool(), None)}, InvalidType, "keep_h must be a floating"),
        ({"update_mask": torch.full((1, 1, N, H), torch.inf)}, InvalidValue, "update_mask cont"),
    ],
)  # fmt: skip
def test_what_is_refused(given: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        noisin.LSTM(F, H)(torch.zeros(T, N, F), **given)


def test_what_a_cell_does_not_have_is_refused() -> None:
    x = torch.zeros(T, N, F)
    with pytest.raises(InvalidValue, match="a memory c, which only an LSTM has"):
        noisin.GRU(F, H)(x, keep=(0.1, 0.1))
    with pytest.raises(Unsupported, match="an Elman cell has none"):
        noisin.RNN(F, H)(x, update_mask=torch.ones(1, T, N, H))
