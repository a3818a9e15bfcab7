"""The contracts of noisin.RNN, LSTM and GRU, over the table of cases."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence, pad_packed_sequence
from torch.testing import assert_close

import noisin
from noisin import noise
from noisin.errors import InvalidValue
from tests import oracle, stats
from tests.cases import ALL, KINDS, LAYOUTS, PLAIN, UNFED, Case, F, H
from tests.pairwise import table

LENGTHS = [4, 2, 5, 1]
pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported")


def as_tuple(state: Any) -> tuple[Tensor, ...]:
    return tuple(state) if isinstance(state, tuple) else (state,)


def as_given(case: Case, state: tuple[Tensor, ...]) -> Any:
    return state if case.kind.startswith("lstm") else state[0]


def sequences_of(layout: str) -> list[Tensor]:
    lengths = {
        "unbatched": [5],
        "packed": sorted(LENGTHS, reverse=True),
        "packed-unsorted": LENGTHS,
    }
    return [torch.randn(n, F, dtype=torch.float64) for n in lengths.get(layout, [5, 5, 5])]


def arrange(layout: str, sequences: list[Tensor], eps: Tensor, state: tuple[Tensor, ...]) -> Any:
    """The same sequences, noise and state as the caller of each layout would pass them."""
    if layout == "unbatched":
        return sequences[0], eps[:, :, 0], tuple(s[:, 0] for s in state)
    if layout.startswith("packed"):
        return pack_sequence(sequences, enforce_sorted=layout == "packed"), eps, state
    x = torch.stack(sequences, dim=0 if layout == "batch-first" else 1)
    return x, eps, state


def outputs_of(layout: str, output: Any) -> list[Tensor]:
    if layout == "unbatched":
        return [output]
    if layout.startswith("packed"):
        padded, lengths = pad_packed_sequence(output)
        return [padded[:n, i] for i, n in enumerate(lengths)]
    return list(output.unbind(0 if layout == "batch-first" else 1))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", ALL, ids=str)
def test_equals_the_oracle(case: Case, layout: str) -> None:
    """Cells, modes, feedback, placements, directions, each in every layout, given the noise."""
    rnn = case.make(batch_first=layout == "batch-first")
    sequences = sequences_of(layout)
    T, N = max(map(len, sequences)), len(sequences)
    eps, state = case.eps(T, N), as_tuple(case.state(N))
    expected, expected_state = oracle.run(rnn, sequences, state, eps)
    x, given_eps, given_state = arrange(layout, sequences, eps, state)
    output, final = rnn(x, as_given(case, given_state), eps=given_eps)
    for got, want in zip(outputs_of(layout, output), expected, strict=True):
        assert_close(got, want)
    for got, want in zip(as_tuple(final), expected_state, strict=True):
        assert_close(got, want[:, 0] if layout == "unbatched" else want)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("case", PLAIN + UNFED, ids=str)
def test_without_bias_with_one_step_and_zero_state(case: Case, bias: bool) -> None:
    rnn = replace(case, bias=bias, num_layers=3).make()
    eps = replace(case, num_layers=3).eps(1, 2)
    x = torch.randn(1, 2, F, dtype=torch.float64)
    expected, state = oracle.run(rnn, list(x.unbind(1)), None, eps)
    output, final = rnn(x, eps=eps)
    assert_close(output, torch.stack(expected, dim=1))
    for got, want in zip(as_tuple(final), state, strict=True):
        assert_close(got, want)


@pytest.mark.parametrize(
    ("case", "switch", "layout"),
    table(
        [c for c in PLAIN + UNFED if KINDS[c.kind][1]],
        ["eval", "noise None", "noise_off", "per-layer None"],
        LAYOUTS,
    ),
    ids=str,
)
def test_without_noise_it_is_torch(case: Case, switch: str, layout: str) -> None:
    """Bit for bit, with torch's state_dict loaded strictly in both directions."""
    theirs = case.make_torch(batch_first=layout == "batch-first")
    law = {"noise None": None, "per-layer None": [None, None]}.get(switch, noise.Gaussian(1.0))
    ours = case.make(law, batch_first=layout == "batch-first")
    ours.load_state_dict(theirs.state_dict(), strict=True)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    theirs.load_state_dict(ours.state_dict(), strict=True)
    if switch == "eval":
        ours.eval()
    x, _, state = arrange(
        layout, (s := sequences_of(layout)), case.eps(5, len(s)), as_tuple(case.state(len(s)))
    )
    for hx in (None, as_given(case, state)):
        want, want_state = theirs(x, hx)
        with noisin.noise_off(ours) if switch == "noise_off" else noisin.noise_on(nn.Linear(1, 1)):
            got, got_state = ours(x, hx)
        assert type(got) is type(want)
        for g, w in zip(as_tuple(got), as_tuple(want), strict=True):
            assert (g is w is None) or torch.equal(g, w)
        for g, w in zip(as_tuple(got_state), as_tuple(want_state), strict=True):
            assert torch.equal(g, w)


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_sigmoid_without_noise(bidirectional: bool, bias: bool) -> None:
    """Torch has no sigmoid RNN: its tanh kernel serves, and equals the recurrence itself."""
    case = Case("sigmoid", bidirectional=bidirectional, bias=bias, num_layers=3)
    rnn, x = case.make().eval(), torch.randn(6, 2, F, dtype=torch.float64)
    state = case.state(2)
    expected, final = oracle.run(rnn, list(x.unbind(1)), (state,), 0 * case.eps(6, 2))
    output, h_n = rnn(x, state)
    assert_close(output, torch.stack(expected, dim=1))
    assert_close(h_n, final[0])
    ours = case.make()
    ours.load_state_dict(Case("tanh", bidirectional=bidirectional, bias=bias, num_layers=3)
                         .make_torch().state_dict())  # fmt: skip


@pytest.mark.parametrize("case", PLAIN + UNFED, ids=str)
def test_eps_is_applied_whenever_given(case: Case) -> None:
    x, eps = torch.randn(5, 2, F, dtype=torch.float64), case.eps(5, 2)
    rnn = case.make()
    want, want_state = rnn(x, eps=eps)
    lawless = case.make(None)
    lawless.load_state_dict(rnn.state_dict())
    for other in (rnn.eval(), lawless, lawless.eval()):
        with noisin.noise_off(other):
            got, state = other(x, eps=eps)
        assert torch.equal(got, want)
        for g, w in zip(as_tuple(state), as_tuple(want_state), strict=True):
            assert torch.equal(g, w)


@pytest.mark.parametrize("feedback", [True, False])
def test_padding_and_slices_of_clean_layers_are_ignored(feedback: bool) -> None:
    case = Case("lstm", noisy_layers="last", feedback=feedback, bidirectional=True)
    rnn = case.make()
    x = pack_sequence(
        [torch.randn(n, F, dtype=torch.float64) for n in LENGTHS], enforce_sorted=False
    )
    eps = case.eps(5, 4)
    want, _ = rnn(x, eps=eps)
    spoilt = eps.clone()
    spoilt[:2] = torch.nan  # the first layer has no noise
    for n, length in enumerate(LENGTHS):
        spoilt[:, length:, n] = torch.inf
    rnn.weight_ih_l0.grad = None
    got, _ = rnn(x, eps=spoilt)
    assert torch.equal(got.data, want.data)
    got.data.sum().backward()
    assert all(p.grad.isfinite().all() for p in rnn.parameters())
    spoilt[-1, 0, 0, 0] = torch.nan
    with pytest.raises(InvalidValue, match="NaN or infinity at steps that are used"):
        rnn(x, eps=spoilt)


@pytest.mark.parametrize("case", [c for c in PLAIN if c.kind != "gru-read"], ids=str)
def test_the_state_carries_on_between_windows(case: Case) -> None:
    """Two windows with carried state equal one, given the same noise."""
    case = replace(case, bidirectional=False)
    rnn, x, eps = case.make(), torch.randn(6, 2, F, dtype=torch.float64), case.eps(6, 2)
    whole, state = rnn(x, eps=eps)
    first, carried = rnn(x[:4], eps=eps[:, :4])
    second, end = rnn(x[4:], carried, eps=eps[:, 4:])
    assert_close(torch.cat([first, second]), whole)
    for g, w in zip(as_tuple(end), as_tuple(state), strict=True):
        assert_close(g, w)


@pytest.mark.parametrize("kind", KINDS)
def test_what_h_n_is(kind: str) -> None:
    """The noisy z_T with feedback, the clean h_T without; of a reading GRU, the clean carry."""
    for feedback in (True, False):
        case = Case(kind, feedback=feedback, num_layers=1)
        rnn, x, eps = case.make(), torch.randn(5, 2, F, dtype=torch.float64), case.eps(5, 2)
        output, state = rnn(x, eps=eps)
        h_n = as_tuple(state)[0][0]
        if feedback and kind != "gru-read":
            assert torch.equal(output[-1], h_n)
        else:
            assert_close(output[-1], h_n * (1 + eps[0, -1]))


@pytest.mark.parametrize("feedback", [True, False])
@pytest.mark.parametrize("kind", ["tanh", "lstm", "gru-read", "sigmoid"])
def test_dropout_between_layers(kind: str, feedback: bool) -> None:
    """A rate of one leaves the second layer without input; in eval() there is none."""
    case = Case(kind, feedback=feedback)
    rnn = case.make(dropout=1.0)
    x, eps = torch.randn(5, 2, F, dtype=torch.float64), case.eps(5, 2)
    top = KINDS[kind][0](
        *(H, H), **KINDS[kind][2], noise=noise.Gaussian(0.5), feedback=feedback, dtype=torch.float64
    )
    names = {f"{n}_l0": f"{n}_l1" for n in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")}
    top.load_state_dict({new: rnn.state_dict()[old] for new, old in names.items()})
    zeros = torch.zeros(5, 2, H, dtype=torch.float64)
    assert_close(rnn(x, eps=eps)[0], top(zeros, eps=eps[1:])[0])
    assert not torch.allclose(rnn.eval()(x, eps=eps)[0], top(zeros, eps=eps[1:])[0])
    half = case.make(dropout=0.5)
    assert not torch.equal(half(x, eps=eps)[0], half(x, eps=eps)[0])


def test_dropout_between_layers_has_its_rate_and_scale() -> None:
    case = Case("relu", "additive")
    rnn = case.make(dropout=0.25)
    with torch.no_grad():
        for p in rnn.parameters():
            p.zero_()
        rnn.weight_ih_l1.copy_(torch.eye(H))
    x, eps = torch.zeros(100, 50, F, dtype=torch.float64), torch.zeros(2, 100, 50, H).double()
    eps[0] = 1.0  # layer 1 emits ones, layer 2 repeats what reaches it
    output = rnn(x, eps=eps)[0].detach()
    assert_close(output.unique(), torch.tensor([0, 4 / 3], dtype=torch.float64))
    stats.assert_mean(output.numpy().ravel(), 1.0, (1 / 3) ** 0.5)


@pytest.mark.parametrize("noisy_layers", ["all", "last"])
@pytest.mark.parametrize("kind", KINDS)
def test_without_feedback_torchs_kernel_runs(
    kind: str, noisy_layers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(kind, feedback=False, noisy_layers=noisy_layers, num_layers=3)
    monkeypatch.setattr("noisin.recurrent.functional.scan", None)
    case.make()(torch.randn(5, 2, F, dtype=torch.float64))
    spans = case.make()._spans(case.make()._injecting_layers(given=False))
    whole = noisy_layers == "last" and kind != "sigmoid"
    assert spans == ([(0, 2)] if whole else [(0, 0), (1, 1), (2, 2)])


@pytest.mark.parametrize("noisy_layers", ["all", "last"])
@pytest.mark.parametrize("case", PLAIN + UNFED, ids=str)
def test_empty_batch(case: Case, noisy_layers: str) -> None:
    rnn = replace(case, noisy_layers=noisy_layers).make()
    output, state = rnn(torch.randn(5, 0, F, dtype=torch.float64))
    assert output.shape == (5, 0, case.directions * case.output_size)
    assert as_tuple(state)[0].shape == (2 * case.directions, 0, case.output_size)
    output.sum().backward()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("case", PLAIN + UNFED, ids=str)
def test_dtypes(case: Case, dtype: torch.dtype) -> None:
    rnn = case.make(dtype=dtype)
    output, state = rnn(torch.randn(3, 2, F, dtype=dtype))
    assert {output.dtype, *(s.dtype for s in as_tuple(state))} == {dtype}
    output, _ = rnn(torch.randn(3, 2, F, dtype=dtype), eps=case.eps(3, 2))
    assert output.dtype == dtype


def test_device_argument() -> None:
    rnn = noisin.LSTM(F, H, noise=noise.Gaussian(1.0), device="meta")
    output, _ = rnn(torch.randn(3, 2, F, device="meta"))
    assert output.is_meta


@pytest.mark.parametrize("case", PLAIN + UNFED, ids=str)
def test_inputs_are_left_as_they_were(case: Case) -> None:
    x, eps, state = torch.randn(5, 2, F, dtype=torch.float64), case.eps(5, 2), case.state(2)
    copies = [t.clone() for t in (x, eps, *as_tuple(state))]
    case.make()(x, state, eps=eps)[0].sum().backward()
    for now, then in zip((x, eps, *as_tuple(state)), copies, strict=True):
        assert torch.equal(now, then)


@given(lengths=st.lists(st.integers(1, 6), min_size=1, max_size=5), bi=st.booleans())
@settings(max_examples=25, deadline=None, derandomize=True)
def test_a_sequence_does_not_feel_its_batch(lengths: list[int], bi: bool) -> None:
    """Packed with any others, in any order, a sequence gives what it gives alone."""
    case = Case("lstm", bidirectional=bi)
    rnn = case.make()
    sequences = [torch.randn(n, F, dtype=torch.float64) for n in lengths]
    eps = case.eps(max(lengths), len(lengths))
    output, (h_n, c_n) = rnn(pack_sequence(sequences, enforce_sorted=False), eps=eps)
    padded, _ = pad_packed_sequence(output)
    for n, x in enumerate(sequences):
        alone, (h, c) = rnn(x, eps=eps[:, : len(x), n])
        assert_close(padded[: len(x), n], alone)
        assert_close(h_n[:, n], h)
        assert_close(c_n[:, n], c)


@pytest.mark.parametrize(
    ("case", "share", "noisy_layers", "layout"),
    table(PLAIN + UNFED, ["step", "sequence"], ["all", "last"], LAYOUTS),
    ids=str,
)
def test_sample_eps_is_what_forward_draws(
    case: Case, share: str, noisy_layers: str, layout: str
) -> None:
    rnn = replace(case, noisy_layers=noisy_layers).make(
        share=share, batch_first=layout == "batch-first"
    )
    sequences = sequences_of(layout)
    x, _, _ = arrange(
        layout, sequences, case.eps(5, len(sequences)), as_tuple(case.state(len(sequences)))
    )
    torch.manual_seed(3)
    want, _ = rnn(x)
    torch.manual_seed(3)
    eps = rnn.sample_eps(x)
    assert_close(rnn(x, eps=eps)[0], want)


def test_replicas_of_data_parallel_have_no_parameters_of_their_own() -> None:
    case = Case("lstm")
    rnn, x, eps = case.make(), torch.randn(5, 2, F, dtype=torch.float64), case.eps(5, 2)
    replica = rnn._replicate_for_data_parallel()
    replica._parameters = {}
    for name, weight in rnn.named_parameters():
        object.__setattr__(replica, name, weight.detach())
    assert torch.equal(replica(x, eps=eps)[0], rnn(x, eps=eps)[0])


def test_packed_output_is_packed_as_the_input() -> None:
    x = pack_sequence([torch.randn(n, F) for n in LENGTHS], enforce_sorted=False)
    output, _ = noisin.LSTM(F, H, noise=noise.Gaussian(1.0))(x)
    assert isinstance(output, PackedSequence)
    assert torch.equal(output.batch_sizes, x.batch_sizes)
    assert torch.equal(output.sorted_indices, x.sorted_indices)
    assert torch.equal(output.unsorted_indices, x.unsorted_indices)
