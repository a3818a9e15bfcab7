"""Which unbiasedness has each regularizer: a table made by :func:`~.check_unbiased`.

Each regularizer is run as a small cell or RNN with large weights, so that a nonlinearity shows. A
regularizer of weights draws one mask for all rows of a batch. Here each row has its own, because
the mean over rows has to be that over masks.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from noisin import noise
from noisin.analysis.unbiasedness import check_unbiased
from noisin.errors import GrowingNoise
from noisin.noise.sampling import Stochastic
from noisin.recurrent.cells import Noisy
from noisin.recurrent.functional import Mode, inject
from noisin.recurrent.modules import GRU, LSTM
from noisin.recurrent.scanned import MinGRU
from noisin.regularizers import (
    DropoutLSTMCell,
    HighwayCell,
    LayerNormGRUCell,
    LayerNormLSTMCell,
    MelisLSTMCell,
    MogrifierLSTMCell,
    SynapticNoise,
    UpdateDropoutGRUCell,
    UpdateDropoutLSTMCell,
    Zoneout,
)

F, H, T = 3, 4, 5
LAW = noise.Gaussian(1.0)
HEADER = "| regularizer | settings | alone | with noise that is fed back |"


@dataclass(frozen=True)
class Surveyed:
    """A regularizer, the settings that turn it on, and the verdicts of the check.

    Attributes:
        noisy: the verdict with Gaussian noise around it; None where it is noise already.
    """

    regularizer: str
    settings: str
    alone: str
    noisy: str | None


class DroppedInputs(Stochastic):
    """An LSTM cell whose inputs are dropped as a whole, as words are that do not repeat."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p, self.cell, self.generator = p, nn.LSTMCell(F, H), None

    def forward(self, x: Tensor, state: Any = None) -> Any:
        """One step, with all of x or nothing of it."""
        mask = self._mask(self.p, (len(x), 1), x) if self.training else 1.0
        return self.cell(x * mask, state)


class WeightsOfRows(Stochastic):
    """A tanh cell with noise on its recurrent weights, for each row and one draw for all steps."""

    def __init__(self, law: noise.Noise, mode: Mode) -> None:
        super().__init__()
        self.law, self.mode, self.generator = law, mode, None
        self.cell = nn.RNNCell(F, H)

    def step_inputs(self, x: Tensor) -> Sequence[tuple[Tensor, Tensor]]:
        """The input of each step, and the weights of each row."""
        W = self.cell.weight_hh.expand(x.shape[1], H, H)
        if self.training:
            eps = self._draw(self.law, (H, x.shape[1], H), x).transpose(0, 1)
            W = inject(W, eps, self.mode)
        return [
            (self.cell.bias_hh + nn.functional.linear(x_t, self.cell.weight_ih), W) for x_t in x
        ]

    def forward(self, x: tuple[Tensor, Tensor], state: Tensor | None = None) -> Tensor:
        """One step, with the weights of each row."""
        products, W = x
        h = torch.zeros_like(products) if state is None else state
        return (products + (W @ h.unsqueeze(-1)).squeeze(-1)).tanh()


def _transforming() -> HighwayCell:
    """Without its initial biases, by which it mostly copies its state."""
    cell = HighwayCell(F, H, depth=2, p_h=0.3)
    for bias in cell.biases:
        nn.init.zeros_(bias)
    return cell


Make = Callable[[], nn.Module]
# By name: the settings, and a module. The first ones are noise, and are not wrapped in it.
NOISES: Mapping[str, tuple[str, Make]] = {
    "noise, fed back": ("noise", lambda: LSTM(F, H, noise=LAW)),
    "noise, not fed back, last layer": (
        'noise.feedback = false, noise.noisy_layers = "last"',
        lambda: LSTM(F, H, 2, noise=LAW, feedback=False, noisy_layers="last"),
    ),
    "noise, not fed back, all layers": (
        "noise.feedback = false",
        lambda: LSTM(F, H, 2, noise=LAW, feedback=False),
    ),
    "noise of a GRU": ("noise", lambda: GRU(F, H, noise=LAW)),
    "noise of a minGRU": ('model.cell = "min-gru"', lambda: MinGRU(F, H, noise=LAW)),
    "noise of a minGRU, output": (
        'model.cell = "min-gru", noise.site = "output"',
        lambda: MinGRU(F, H, noise=LAW, site="output"),
    ),
    "noise of a minGRU, state": (
        'model.cell = "min-gru", noise.site = "state"',
        lambda: MinGRU(F, H, noise=LAW, site="state"),
    ),
    "one draw of noise for all steps": (
        'noise.share = "sequence"',
        lambda: LSTM(F, H, noise=LAW, share="sequence"),
    ),
    "noise of mean 0.8": (
        "noise.mean = 0.8, noise.rescaled = false",
        lambda: LSTM(F, H, noise=noise.Biased(LAW, 0.8, rescaled=False)),
    ),
    "noise of mean 0.8, evaluated with it": (
        "noise.mean = 0.8",
        lambda: LSTM(F, H, noise=noise.Biased(LAW, 0.8)),
    ),
    "dropout of the output": (
        "model.dropout.output",
        lambda: LSTM(F, H, noise=noise.Bernoulli(0.5), feedback=False),
    ),
    "dropout between layers": ("model.dropout.between", lambda: LSTM(F, H, 2, dropout=0.5)),
}
CELLS: Mapping[str, tuple[str, Make]] = {
    "dropout of the input": (
        "model.dropout.input",
        lambda: DropoutLSTMCell(F, H, p_x=0.5, site="before", shared=True),
    ),
    "dropout of words": ("model.dropout.words", lambda: DroppedInputs(0.5)),
    "recurrent dropout": (
        "model.dropout.recurrent",
        lambda: DropoutLSTMCell(F, H, p_h=0.4, site="before", shared=True),
    ),
    "dropout in the gates": (
        "model.gate_dropout",
        lambda: DropoutLSTMCell(F, H, p_x=0.5, p_h=0.4),
    ),
    "Gal's dropout": (
        'model.gate_dropout, locked = true, site = "before"',
        lambda: DropoutLSTMCell(F, H, p_x=0.5, p_h=0.3, site="before", locked=True),
    ),
    "dropout of updates, LSTM": (
        "model.update_dropout",
        lambda: UpdateDropoutLSTMCell(F, H, p=0.3),
    ),
    "dropout of updates, LSTM, locked": (
        "model.update_dropout.locked = true",
        lambda: UpdateDropoutLSTMCell(F, H, p=0.3, locked_update=True),
    ),
    "dropout of updates, GRU": ("model.update_dropout", lambda: UpdateDropoutGRUCell(F, H, p=0.3)),
    "dropout of updates, GRU, locked": (
        "model.update_dropout.locked = true",
        lambda: UpdateDropoutGRUCell(F, H, p=0.3, locked_update=True),
    ),
    "zoneout, RNN": ("model.zoneout.p_h", lambda: Zoneout(nn.RNNCell(F, H), 0.3)),
    "zoneout, LSTM": ("model.zoneout", lambda: Zoneout(nn.LSTMCell(F, H), 0.3, 0.3)),
    "zoneout, GRU": ("model.zoneout.p_h", lambda: Zoneout(nn.GRUCell(F, H), 0.3)),
    "weight drop": (
        "model.weight_drop",
        lambda: WeightsOfRows(noise.Bernoulli(0.5), "multiplicative"),
    ),
    "weight noise, every sequence": (
        "model.weight_noise",
        lambda: WeightsOfRows(noise.Gaussian(0.5), "additive"),
    ),
    "weight noise, every step": (
        'model.weight_noise.per = "step"',
        lambda: SynapticNoise(nn.LSTMCell(F, H), 0.5),
    ),
    "highway with recurrent dropout": ('model.cell = "highway"', _transforming),
    "layer norm with recurrent dropout": (
        'model.cell = "layer-norm-lstm"',
        lambda: LayerNormLSTMCell(F, H, p_h=0.3),
    ),
    "layer norm of a GRU with recurrent dropout": (
        'model.cell = "layer-norm-gru"',
        lambda: LayerNormGRUCell(F, H, p_h=0.3),
    ),
    "LSTM of Melis et al. with recurrent dropout": (
        'model.cell = "melis-lstm"',
        lambda: MelisLSTMCell(F, H, p_h=0.3),
    ),
    "Mogrifier with recurrent dropout": (
        'model.cell = "mogrifier-lstm"',
        lambda: MogrifierLSTMCell(F, H, p_h=0.3),
    ),
}


def survey(rows: int = 10_000, seed: int = 0) -> list[Surveyed]:
    """The verdict of each regularizer, alone and with noise around it."""
    return [
        *(Surveyed(name, s, _verdict(make(), rows, seed), None) for name, s, make in _of(NOISES)),
        *(
            Surveyed(
                *(name, s, _verdict(make(), rows, seed)),
                _verdict(Noisy(make(), LAW), rows, seed),
            )
            for name, s, make in _of(CELLS)
        ),
    ]


def as_markdown(rows: Iterable[Surveyed]) -> str:
    """The table for the docs."""
    lines = [HEADER, "|---|---|---|---|"]
    for row in rows:
        lines.append(f"| {row.regularizer} | `{row.settings}` | {row.alone} | {row.noisy or ''} |")
    return "\n".join(lines)


def _of(cases: Mapping[str, tuple[str, Make]]) -> Iterable[tuple[str, str, Make]]:
    return ((name, settings, make) for name, (settings, make) in cases.items())


def _verdict(module: nn.Module, rows: int, seed: int) -> str:
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore", GrowingNoise)
        torch.manual_seed(seed)
        module.double()
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.uniform_(-1.5, 1.5)
        x = torch.randn(T, F, dtype=torch.float64)
        return check_unbiased(module, x, rows).verdict
