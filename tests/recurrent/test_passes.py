"""``weights=`` and ``read_mask=`` of a forward pass, against the oracle, in every kernel."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import gradcheck, gradgradcheck
from torch.nn.utils.rnn import PackedSequence
from torch.testing import assert_close

import noisin
from noisin import noise
from noisin.errors import InvalidType, InvalidValue, Unsupported
from noisin.recurrent import kernels
from noisin.recurrent.kernels import compiled
from tests import oracle, pairwise
from tests.cases import KINDS, LAYOUTS, MODES, Case, F, H
from tests.recurrent.test_modules import arrange, as_given, as_tuple, outputs_of, sequences_of

pytestmark = pytest.mark.filterwarnings("ignore:LSTM with projections is not supported")

MASKED = [kind for kind in KINDS if kind != "gru-state"]
KERNELS = ("reference", "eager", *(("c",) if compiled.library() is not None else ()))
TABLE = pairwise.table(
    MASKED, MODES, (True, False), ("all", "last", ()), (False, True), LAYOUTS, KERNELS,
    ("mask", "held mask", "weights", "mask and weights"),
)  # fmt: skip


def other_weights(rnn: nn.RNNBase) -> dict[str, Tensor]:
    """Stand-ins for some of the parameters of every layer."""
    return {
        name: (w + 0.1 * torch.randn_like(w)).detach().requires_grad_()
        for name, w in rnn.named_parameters()
        if name.startswith(("weight_hh", "bias_ih"))
    }


@pytest.mark.parametrize("row", TABLE, ids=lambda row: "-".join(map(str, row)))
def test_equals_the_oracle(row: Any) -> None:
    """Values and gradients of everything, for masks per step and per sequence, and weights."""
    kind, mode, feedback, layers, bidirectional, layout, kernel, given = row
    case = Case(kind, mode, feedback, layers, bidirectional)
    rnn = case.make(batch_first=layout == "batch-first")
    sequences = [x.requires_grad_() for x in sequences_of(layout)]
    T, N = max(map(len, sequences)), len(sequences)
    eps, state = case.eps(T, N), tuple(s.requires_grad_() for s in as_tuple(case.state(N)))
    masked = "mask" in given
    mask = torch.randn_like(eps[:, :1] if given == "held mask" else eps)
    weights = other_weights(rnn) if "weights" in given else {}
    expected, expected_state = oracle.run(
        rnn, sequences, state, eps, mask.expand_as(eps) if masked else None, weights
    )
    x, given_eps, given_state = arrange(layout, sequences, eps, state)
    given_mask = mask[:, :, 0] if layout == "unbatched" else mask
    with kernels.using(kernel):
        output, final = rnn(
            x,
            as_given(case, given_state),
            eps=given_eps,
            weights=weights or None,
            read_mask=given_mask if masked else None,
        )
    found, wanted = outputs_of(layout, output), list(expected)
    for got, want in zip(as_tuple(final), expected_state, strict=True):
        found.append(got)
        wanted.append(want[:, 0] if layout == "unbatched" else want)
    assert_close(found, wanted)
    own = dict(rnn.named_parameters())
    leaves = [*sequences, *state, *weights.values(), *(own[n] for n in own if n not in weights)]
    gradients = [
        torch.autograd.grad(sum(t.sin().sum() for t in tensors), leaves, allow_unused=True)
        for tensors in (found, wanted)
    ]
    assert_close(*gradients)


def test_without_noise_masks_and_weights_still_hold() -> None:
    """In eval(), and where there is no noise at all; the carry is whole, the memory too."""
    for kind in MASKED:
        case = Case(kind)
        rnn = case.make(noise.Gaussian(0.5)).eval()
        x, zero = torch.randn(5, 2, F, dtype=torch.float64), 0 * case.eps(5, 2)
        mask, weights = torch.rand_like(zero), other_weights(rnn)
        expected, _ = oracle.run(rnn, list(x.unbind(1)), None, zero, mask, weights)
        with torch.no_grad():
            found, _ = rnn(x, weights=weights, read_mask=mask)
        assert_close(found, torch.stack(expected, dim=1))


def test_masks_of_ones_and_own_weights_change_nothing() -> None:
    rnn = noisin.LSTM(F, H, 2, noise=noise.Gaussian(0.5), dtype=torch.float64)
    x, eps = torch.randn(5, 3, F, dtype=torch.float64), Case("lstm").eps(5, 3)
    expected = rnn(x, eps=eps)
    ones = torch.ones_like(eps)
    assert_close(rnn(x, eps=eps, read_mask=ones, weights=dict(rnn.named_parameters())), expected)


def test_weights_alone_run_torchs_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    rnn = noisin.LSTM(F, H, 2, noise=noise.Gaussian(0.5)).eval()
    twin = nn.LSTM(F, H, 2)
    x = torch.randn(5, 3, F)
    monkeypatch.setattr(kernels, "run", None)
    assert torch.equal(rnn(x, weights=dict(twin.named_parameters()))[0], twin(x)[0])


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("kind", ["lstm", "gru-read", "tanh"])
def test_derivatives_of_both_orders(kind: str, kernel: str) -> None:
    case = Case(kind, num_layers=1, bidirectional=True)
    rnn = case.make(None)
    x = torch.randn(3, 2, F, dtype=torch.float64, requires_grad=True)
    eps, mask = case.eps(3, 2), torch.rand_like(case.eps(3, 2))
    names = ("weight_hh_l0", "weight_ih_l0_reverse")
    weights = [rnn.get_parameter(name).detach().clone().requires_grad_() for name in names]

    def run(x: Tensor, *weights: Tensor) -> Tensor:
        with kernels.using(kernel):
            given = dict(zip(names, weights, strict=True))
            return rnn(x, eps=eps, weights=given, read_mask=mask)[0]

    assert gradcheck(run, (x, *weights), fast_mode=True)
    assert gradgradcheck(run, (x, *weights), fast_mode=True)


def test_a_mask_can_be_learned() -> None:
    """Gradients flow to it, whichever kernel is chosen."""
    rnn = Case("lstm", num_layers=1).make(None)
    x = torch.randn(3, 2, F, dtype=torch.float64)
    mask = torch.rand(1, 1, 2, H, dtype=torch.float64, requires_grad=True)
    assert gradcheck(lambda m: rnn(x, read_mask=m)[0], (mask,), fast_mode=True)


def test_half_precision() -> None:
    rnn = noisin.LSTM(F, H, noise=noise.Gaussian(0.5))
    x, eps = torch.randn(5, 2, F), torch.randn(1, 5, 2, H)
    mask = torch.rand_like(eps)
    expected = rnn(x, eps=eps, read_mask=mask)[0]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = rnn(x, eps=eps, read_mask=mask)[0]
    assert found.dtype == torch.bfloat16
    assert_close(found.float(), expected, rtol=0, atol=0.05)


@pytest.mark.filterwarnings("ignore:.*carry")
def test_a_literal_gru_cannot_mask_what_it_reads() -> None:
    gru = noisin.GRU(F, H, noise=noise.Gaussian(0.5), site="state")
    with pytest.raises(Unsupported, match="Use site='read'"):
        gru(torch.zeros(5, 2, F), read_mask=torch.ones(1, 5, 2, H))


def packed() -> PackedSequence:
    return nn.utils.rnn.pack_sequence([torch.zeros(4, F), torch.zeros(2, F)])


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"read_mask": [1.0]}, InvalidType, "read_mask must be a floating-point tensor of factors"),
        ({"read_mask": torch.ones(1, 4, 2, H).bool()}, InvalidType, "got a tensor of torch.bool"),
        ({"read_mask": torch.ones(1, 4, 3, H)}, InvalidValue, r"\(1, 4, 2, 4\), or \(1, 1, 2, 4\)"),
        ({"read_mask": torch.ones(4, 2, H)}, InvalidValue, r"got \(4, 2, 4\)"),
        ({"read_mask": torch.full((1, 1, 2, H), torch.inf)}, InvalidValue, "read_mask contains"),
        ({"weights": [torch.ones(2)]}, InvalidType, "weights must be a mapping .* got list"),
        ({"weights": {"w": torch.ones(2)}}, InvalidValue, "has 'w', expected .*weight_hh_l0"),
        ({"weights": {"weight_hh_l0": 3}}, InvalidType, "weight_hh_l0 must be a tensor, got int"),
        ({"weights": {"bias_hh_l0": torch.ones(2)}}, InvalidValue, r"shape \(16,\).* got \(2,\)"),
        ({"weights": {"bias_hh_l0": torch.ones(16).double()}}, InvalidValue, "got .*float64"),
    ],
)
def test_what_is_refused(arguments: dict[str, Any], error: type[Exception], message: str) -> None:
    rnn = noisin.LSTM(F, H, noise=noise.Gaussian(0.5))
    for x in (torch.zeros(4, 2, F), packed()):
        with pytest.raises(error, match=f"LSTM: .*{message}"):
            rnn(x, **arguments)


def test_padding_of_a_mask_is_ignored() -> None:
    rnn = noisin.LSTM(F, H)
    mask = torch.rand(1, 4, 2, H)
    expected = rnn(packed(), read_mask=mask)[0].data
    mask[:, 2:, 1] = torch.nan
    assert torch.equal(rnn(packed(), read_mask=mask)[0].data, expected)
