"""The closed form of the regularizer and its Monte Carlo estimate, by the strength of the noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from noisin import likelihoods, noise
from noisin.analysis.regularizer import explicit_regularizer
from noisin.analysis.toys import generator

STDS = (0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 1.0, 1.4, 2.0)


@dataclass(frozen=True)
class CurvePoint:
    """One noise and both values for it, per row and step, in nats."""

    gamma: float
    std: float
    closed_form: float
    monte_carlo: float
    stderr: float


def problem() -> tuple[Tensor, Tensor]:
    """V and h: 40 states of 20 units, uniform on (-1, 1), and 50 outputs; the same every time."""
    g = generator(4)
    h = 2 * torch.rand(40, 20, dtype=torch.float64, generator=g) - 1
    return torch.randn(20, 50, dtype=torch.float64, generator=g), h


def regularizer_curves(
    seed: int = 1111, stds: Sequence[float] = STDS, K: int = 400
) -> Mapping[str, list[CurvePoint]]:
    """Both values for each family at equal standard deviations, with a categorical likelihood."""
    curves: dict[str, list[CurvePoint]] = {}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        V, h = problem()
        for name, family in noise.FAMILIES.items():
            laws = [family.from_variance(std**2) for std in stds]
            curves[name] = [_point(law, V, h, K) for law in laws]
    return curves


def _point(law: noise.Family, V: Tensor, h: Tensor, K: int) -> CurvePoint:
    reg = explicit_regularizer(likelihoods.Categorical(), V, h, law, K=K)
    figures = (reg.closed_form, reg.monte_carlo, reg.stderr)
    return CurvePoint(law.gamma, law.std, *(figure.item() / len(h) for figure in figures))


def draw_curves(curves: Mapping[str, list[CurvePoint]], path: Path) -> None:
    """Draw the closed form over Monte Carlo, one panel per family; needs matplotlib."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    options: dict[str, Any] = {"sharex": True, "sharey": True, "layout": "constrained"}
    figure, axes = plt.subplots(2, 4, figsize=(12, 5.6), **options)
    for axis, (name, points) in zip(axes.flat, curves.items(), strict=True):
        _draw_panel(axis, name, points)
    figure.supxlabel("standard deviation of the noise")
    figure.supylabel("closed form / Monte Carlo, ± 2 standard errors")
    figure.savefig(path)
    plt.close(figure)


def _draw_panel(axis: Any, name: str, points: list[CurvePoint]) -> None:
    ratios = [p.closed_form / p.monte_carlo for p in points]
    errors = [2 * r * p.stderr / p.monte_carlo for r, p in zip(ratios, points, strict=True)]
    axis.axhspan(0.95, 1.05, color="grey", alpha=0.15, linewidth=0)
    axis.axhline(1, color="grey", linewidth=0.8)
    axis.errorbar(
        [p.std for p in points], ratios, yerr=errors, fmt="o-", markersize=4, color="#1f6f8b"
    )
    axis.set(xscale="log", ylim=(0.5, 2.0))
    axis.set_xticks([0.05, 0.1, 0.2, 0.5, 1, 2], ["0.05", "0.1", "0.2", "0.5", "1", "2"])
    axis.set_title(
        f"{name}, gamma {points[0].gamma:.3g} to {points[-1].gamma:.3g}", fontsize="medium"
    )
    axis.grid(alpha=0.3)
