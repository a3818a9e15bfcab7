"""Bernoulli noise is dropout of the hidden state; Zaremba's dropout is not the paper's form."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from noisin import noise, regularizers
from noisin.analysis import rows
from noisin.analysis.rows import CORRECTED, ROUNDING, ClaimRow, Pair
from noisin.analysis.toys import STRONG, H, T, X, draws, fixed, inputs
from noisin.recurrent.modules import LSTM

PLACE = "Dropout, Sec. 3"
KEEP = 0.6


def bernoulli_is_dropout() -> Iterator[ClaimRow]:
    """The masks that Bernoulli noise draws by itself have the law of dropout's.

    They are read off what the module emits, as ``z / h``, where h is what torch's own LSTM makes of
    the same past; then every pattern of kept units must be as frequent as dropout makes it, within
    a step and over two.
    """
    x = inputs(1).expand(T, draws(20_000), X)
    output = fixed(LSTM(X, H, noise=noise.Bernoulli(KEEP), **STRONG), 2)
    theirs = nn.LSTM(X, H).double()
    theirs.load_state_dict(output.state_dict())
    with torch.no_grad():
        found = _frequencies(output(x)[0] / theirs(x)[0])
    claim = f"Bernoulli noise not fed back: masks minus Zaremba's (worst of {len(found)})"
    yield rows.equal("bernoulli-output", claim, PLACE, found)

    fed_back = fixed(LSTM(X, H, noise=noise.Bernoulli(KEEP)), 2)
    cell = nn.LSTMCell(X, H).double()
    cell.load_state_dict({name[:-3]: w for name, w in fed_back.state_dict().items()})
    with torch.no_grad():
        z, _ = fed_back(x)
        state, masks = None, []
        for t in range(T):
            h, c = cell(x[t], state)
            masks.append(z[t] / h)
            state = (z[t], c)
    found = _frequencies(torch.stack(masks))
    claim = f"fed back: masks minus those of fresh-mask dropout of h (worst of {len(found)})"
    yield rows.equal("bernoulli-fed-back", claim, PLACE, found)


def _frequencies(masks: Tensor) -> list[Pair]:
    """How much more often than under dropout at rate 1 - KEEP each pattern of masks occurs.

    A value that dropout does not have belongs to no pattern, which makes all of them too rare.
    """
    kept, dropped = (masks - 1 / KEEP).abs() < ROUNDING, masks.abs() < ROUNDING
    of_a_step = [(kept[..., j], dropped[..., j]) for j in range(masks.shape[-1])]
    steps = len(masks) // 2 * 2
    of_two_steps = [(kept[k:steps:2], dropped[k:steps:2]) for k in range(2)]
    return _patterns(of_a_step) + _patterns(of_two_steps)


def _patterns(sites: list[tuple[Tensor, Tensor]]) -> list[Pair]:
    """One figure for each way to keep and drop a few independent sites."""
    found = []
    for choice in product((True, False), repeat=len(sites)):
        chosen = [kept if keep else dropped for keep, (kept, dropped) in zip(choice, sites)]  # noqa: B905
        occurs = torch.stack(chosen).all(0)
        p = math.prod(KEEP if keep else 1 - KEEP for keep in choice)
        found.append((occurs.double().mean() - p, math.sqrt(p * (1 - p) / occurs.numel())))
    return found


def zaremba_is_no_special_case() -> Iterator[ClaimRow]:
    """In the paper's form each gate has its own masks, after the product; Zaremba's masks the
    input, before it, once for all gates. So the latter's gates depend on each other.
    """
    place = f"{PLACE} {CORRECTED}"
    x = inputs(1)[0].expand(draws(20_000), X)
    paper = fixed(regularizers.DropoutLSTMCell(X, H, p_x=1 - KEEP), 2)
    zaremba = nn.LSTMCell(X, H).double()
    zaremba.load_state_dict(paper.state_dict())
    with torch.no_grad():
        papers, zarembas = paper(x), zaremba(F.dropout(x, 1 - KEEP))
    claim = f"correlation of output gate and memory, the paper's form (worst of {H})"
    yield rows.equal("gates-independent", claim, PLACE, _correlations(*papers))
    largest = max(_correlations(*zarembas), key=lambda pair: abs(pair[0]))
    claim = "the same for Zaremba's: no special case of that form (largest)"
    yield rows.positive("zaremba-not-special", claim, place, [(abs(largest[0]), largest[1])])
    values = [_distinct(_output_gate(*found)[:, 0]) for found in (papers, zarembas)]
    claim = f"values of a gate less the paper's {values[0]}, in Zaremba's of {X} inputs"
    yield ClaimRow("zaremba-values", claim, place, values[1] - values[0], 0.0, f"{2**X - 2}",
              values == [2, 2**X])  # fmt: skip


def _output_gate(h: Tensor, c: Tensor) -> Tensor:
    return h / c.tanh()


def _correlations(h: Tensor, c: Tensor) -> list[Pair]:
    """Of output gate and memory, unit by unit, over the rows."""
    pairs = zip(_output_gate(h, c).unbind(1), c.unbind(1), strict=True)
    products = [((o - o.mean()) / o.std()) * ((m - m.mean()) / m.std()) for o, m in pairs]
    return [(float(value), float(error)) for value, error in map(rows.mean, products)]


def _distinct(values: Tensor) -> int:
    return len(set((values / ROUNDING).round().tolist()))
