"""Colours and markers of the pictures, in light and in dark.

A colour is identified by its name; pictures are drawn in the light ones, and a page that contains
them switches to the dark ones with its reader. All have a contrast of 4.5 or more to the page, and
every line has its own marker as well, so that no two differ in colour alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

LIGHT: Mapping[str, str] = {
    "page": "#ffffff",
    "ink": "#1c2128",
    "muted": "#656d76",
    "grid": "#dfe3e8",
    "line": "#8a939d",
    "tint": "#f3f6f9",
    "series-0": "#0860c4",
    "series-1": "#b64700",
    "series-2": "#17702f",
    "series-3": "#7a45d6",
    "series-4": "#94590a",
    "series-5": "#b62f80",
    "series-6": "#0b7285",
    "series-7": "#c4202c",
    "series-8": "#5c6a00",
}
DARK: Mapping[str, str] = {
    "page": "#14181e",
    "ink": "#e4e8ed",
    "muted": "#98a2ae",
    "grid": "#2d343d",
    "line": "#66707b",
    "tint": "#1d232b",
    "series-0": "#62aaff",
    "series-1": "#f59150",
    "series-2": "#4fc463",
    "series-3": "#c09aff",
    "series-4": "#e0b341",
    "series-5": "#f585c2",
    "series-6": "#45c8d6",
    "series-7": "#ff8078",
    "series-8": "#bccc4a",
}
SERIES = tuple(name for name in LIGHT if name.startswith("series"))

Polygon = tuple[tuple[float, float], ...]


def _star(corners: int, depth: float = 1.0, turn: float = 0.0) -> Polygon:
    """A regular polygon; or a star, if every other of its corners lies at ``depth``."""
    angles = [2 * math.pi * (k / corners + turn) for k in range(corners)]
    radii = [depth if k % 2 else 1.0 for k in range(corners)]
    return tuple(
        (round(r * math.sin(angle), 3), round(r * math.cos(angle), 3))
        for r, angle in zip(radii, angles, strict=True)
    )


MARKERS: tuple[Polygon, ...] = (
    _star(24),
    _star(4, turn=1 / 8),
    _star(3),
    _star(4),
    _star(3, turn=1 / 2),
    _star(10, depth=0.42),
    _star(8, depth=0.42),
    _star(8, depth=0.42, turn=1 / 8),
    _star(3, turn=1 / 4),
    _star(3, turn=3 / 4),
)


def combination(k: int) -> tuple[str, Polygon]:
    """The ``k``-th of endlessly many combinations of the name of a colour and a marker.

    The first ones differ in both; then every colour takes each marker in turn, and after that stars
    of more and more corners. The first marker is left to lines without a colour.
    """
    colours, markers = len(SERIES), len(MARKERS) - 1
    row, column = divmod(k, colours)
    if row < markers:
        return SERIES[column], MARKERS[1 + (column + row) % markers]
    return SERIES[column], _star(2 * (row - markers) + 12, depth=0.6)


def path(marker: Polygon, radius: float) -> str:
    """A marker as the path of an SVG, around the origin."""
    corners = " ".join(f"{radius * x:.1f},{-radius * y:.1f}" for x, y in marker)
    return f"M{corners}z"


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, as accessibility guidelines define it.

    >>> round(contrast("#000000", "#ffffff"), 1)
    21.0
    """
    dark, light = sorted(map(_luminance, (one, other)))
    return (light + 0.05) / (dark + 0.05)


def _luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
