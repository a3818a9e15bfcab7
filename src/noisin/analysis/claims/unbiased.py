"""Weak and strong unbiasedness of the placements of noise, and the bias of dropout."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import product
from typing import get_args

import torch
from torch import nn

from noisin import noise, regularizers
from noisin.analysis import unbiasedness
from noisin.analysis.rows import (
    CORRECTED,
    FALSE_ALARM_RATE,
    UNBIASEDNESS_CHECKS,
    ClaimRow,
    exact,
    figure,
)
from noisin.analysis.toys import STRONG, H, T, X, draws, fixed, inputs
from noisin.errors import GrowingNoise
from noisin.recurrent.cells import Noisy
from noisin.recurrent.modules import LSTM, RNN
from noisin.recurrent.scanned import MinGRUCell, Scanned
from noisin.recurrent.scans import ScanSite

WEAK_PLACE, STRONG_PLACE = "Weak unbiasedness, Sec. 3", "Strong unbiasedness, Sec. 3"


def unbiased_noise() -> Iterator[ClaimRow]:
    """What holds for each placement of noise."""
    law = noise.Gaussian(1.0)
    yield _holds("strong", "E[z] = h for noise on the last layer, not fed back", STRONG_PLACE,
                 *_t_of(LSTM(X, H, 2, noise=law, **STRONG), "strong"))  # fmt: skip
    yield _holds("weak", "E[z | z_prev] = f(x, z_prev) for fed-back noise", WEAK_PLACE,
                 *_t_of(RNN(X, H, noise=law), "weak"))  # fmt: skip
    yield _holds("stack", "the same for each of three layers of LSTM, given its input", WEAK_PLACE,
                 *_t_of(LSTM(X, H, 3, noise=law), "weak"))  # fmt: skip
    yield _fails("fed-back-not-strong", "E[z] ≠ h for fed-back noise, last layer or not",
                 f"{STRONG_PLACE} {CORRECTED}",
                 *_t_of(RNN(X, H, noise=law, noisy_layers="last"), "strong"))  # fmt: skip
    yield _fails("shared-not-weak", "noise shared over time and fed back: not even weakly",
                 WEAK_PLACE, *_t_of(RNN(X, H, noise=law, share="sequence"), "weak"))  # fmt: skip
    yield _holds("affine", "an affine recurrence is strongly unbiased, fed back too", STRONG_PLACE,
                 *_t_of(Noisy(MinGRUCell(X, H), law), "strong"))  # fmt: skip
    yield _scanned()
    dropped = regularizers.DropoutLSTMCell(X, H, p_x=0.5, p_h=0.4)
    yield _fails("dropout-biased", "dropout on the gates is biased", "Dropout, Sec. 3",
                 *_t_of(dropped, "weak"))  # fmt: skip


def _scanned() -> ClaimRow:
    """All steps at once, over all signs of the noise: no sampling."""
    layer = Scanned(fixed(MinGRUCell(X, H), 3))
    signs = torch.tensor(list(product((-0.5, 0.5), repeat=T)), dtype=torch.float64)
    eps = signs.t().unsqueeze(-1).expand(T, -1, H)
    x = inputs(1).expand(T, len(signs), X)
    h, state = [], None
    for x_t in inputs(1):
        state = layer.cell(x_t, state)
        h.append(state)
    errors = []
    for site in get_args(ScanSite):
        layer.site = site
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", GrowingNoise)  # the mean does not depend on it
            errors.append((layer(x, eps=eps)[0].mean(1, keepdim=True) - torch.stack(h)).abs().max())
    return exact("affine-scan", "the same at all sites of a scan, over all signs (worst of 3)",
                 STRONG_PLACE, torch.stack(errors).max())  # fmt: skip


def _t_of(module: nn.Module, condition: str) -> tuple[float, float]:
    """The largest t-statistic of a condition, and the size that shows a bias."""
    rate = FALSE_ALARM_RATE / 2 / UNBIASEDNESS_CHECKS
    found = unbiasedness.check_unbiased(
        fixed(module, 3), inputs(1).squeeze(1), max(1000, draws(20_000)), false_alarm=rate
    )
    return figure(getattr(found, f"{condition}_t").abs().max()), found.threshold


def _holds(id: str, claim: str, place: str, t: float, threshold: float) -> ClaimRow:
    return ClaimRow(id, claim, place, t, 1.0, f"|t| < {threshold:.1f}", t < threshold)


def _fails(id: str, claim: str, place: str, t: float, threshold: float) -> ClaimRow:
    return ClaimRow(id, claim, place, t, 1.0, f"|t| > {threshold:.1f}", t > threshold)
