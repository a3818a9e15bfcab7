"""Facts about sequences: how many there are, and how long. Nothing here needs torch."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from noisin.data import columns, hourly, music
from noisin.data.corpus import SPLITS

NAMES = (*music.FILES, *hourly.FILES)


@dataclass(frozen=True)
class Sizes:
    """Facts about a data set of sequences, by split.

    Attributes:
        name: of the data set.
        values: what a step has, in words.
        sequences: their number.
        steps: the scored steps of all of them.
        longest, shortest: the steps of a sequence, with context.
        density: the share of values that are not zero.
        sha256: the hash of its file.
    """

    name: str
    values: str
    sequences: dict[str, int]
    steps: dict[str, int]
    longest: dict[str, int]
    shortest: dict[str, int]
    density: dict[str, float]
    sha256: str


def describe_sequences(
    name: str,
    folder: str | os.PathLike[str] | None = None,
    described: columns.Columns | None = None,
) -> Sizes:
    """Facts about one of :data:`NAMES`, or about your own series: its path and its columns."""
    title = name
    if name in music.FILES:
        pieces = music.load(name, folder)
        values, sha256 = f"{music.NOTES} notes", pieces.sha256
        targets = {split: getattr(pieces, split) for split in SPLITS}
        steps = {split: sum(map(len, targets[split])) for split in SPLITS}
    else:
        series = columns.load(name, folder, described)
        title, known = series.name, len(series.covariates)
        covariates = f"{known} covariate" if known == 1 else f"{known} covariates"
        values = f"{', '.join(series.targets)}; {covariates}; {series.likelihood}"
        sha256 = series.sha256
        targets = {s: [table.target for table in getattr(series, s)] for s in SPLITS}
        steps = {s: sum(int(t.scored.sum()) for t in getattr(series, s)) for s in SPLITS}
    lengths = {split: [len(t) for t in targets[split]] for split in SPLITS}
    return Sizes(
        title,
        values,
        {split: len(targets[split]) for split in SPLITS},
        steps,
        {split: max(lengths[split]) for split in SPLITS},
        {split: min(lengths[split]) for split in SPLITS},
        {split: float((np.concatenate(targets[split]) != 0).mean()) for split in SPLITS},
        sha256,
    )
