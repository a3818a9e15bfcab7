"""Recipes: the settings of each cell of the paper's tables by name, made from its rows.

A name is ``CORPUS-SIZE[-DROPOUT][-NOISE]``, and every combination exists:

======== =====================================================================================
CORPUS   ``ptb`` (Penn Treebank) or ``wt2`` (WikiText-2)
SIZE     ``small`` (2 × 200, not in the paper), ``medium`` (2 × 650), ``large`` (2 × 1500)
DROPOUT  ``dropout``, ``recurrent-dropout`` or ``gate-dropout``: three readings of the paper's
         0.5, 0.4, 0.5; or ``zoneout``, not in the paper: ``dropout`` and zoneout
NOISE    a family of noise, with the gamma that the paper found best; ``small``: a std of 0.5
======== =====================================================================================

The paper drops "on the input, recurrent, and output layers". ``dropout`` has the second rate
between the layers, as Zaremba et al.; ``recurrent-dropout`` has it on the state that is fed back;
``gate-dropout`` is the LSTM of the paper's equations (Sec. 3), with a mask on each of the eight
products of the gates: 0.5 on those with the input of a layer, 0.4 on those with its state, and 0.5
before the softmax. See :class:`~noisin.regularizers.DropoutLSTMCell`.

The probabilities of ``zoneout`` are those of Krueger et al. (2017) for words of Penn Treebank: 0.25
for the memory and 0.025 for the hidden state, on top of Zaremba's dropout. They used Zaremba's
large model and rates. Here zoneout goes on top of ``dropout``, from which it differs in nothing
else, and the noise has the gamma of the cell with dropout.

What a recipe does not set is the default of the config, which is the paper's.

>>> config("wt2-large-dropout-beta").noise.gamma
0.6
>>> config("ptb-medium-recurrent-dropout").model.dropout.recurrent
0.4
>>> config("ptb-medium-gate-dropout").model.gate_dropout.x
0.5
>>> config("ptb-large-zoneout").model.zoneout
ZoneoutConfig(p_h=0.025, p_c=0.25)
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from noisin.experiments.paper import results
from noisin.experiments.paper.results import CELLS, TableCell
from noisin.noise import ranges
from noisin.training.config import RunConfig

Settings = dict[str, Any]
Reading = Literal["dropout", "recurrent-dropout", "gate-dropout"]

CORPORA: Mapping[str, results.CorpusName] = {"ptb": "ptb", "wt2": "wikitext-2"}
SIZES: Mapping[str, int] = {"small": 200} | {str(s): H for s, H in results.HIDDEN_SIZES.items()}
# The readings of the paper's dropout, as sections of the model.
READINGS: Mapping[Reading, Settings] = {
    "dropout": {"dropout": {"input": 0.5, "between": 0.4, "output": 0.5}},
    "recurrent-dropout": {"dropout": {"input": 0.5, "recurrent": 0.4, "output": 0.5}},
    "gate-dropout": {"gate_dropout": {"x": 0.5, "h": 0.4}, "dropout": {"output": 0.5}},
}
DROPOUTS: Mapping[str, Settings] = {
    **{str(reading): sections for reading, sections in READINGS.items()},
    "zoneout": {**READINGS["dropout"], "zoneout": {"p_h": 0.025, "p_c": 0.25}},
}
# The families of the paper.
NOISES = tuple(name for name in ranges.LAWS if any(cell.family == name for cell in CELLS))
PATTERN = "CORPUS-SIZE[-DROPOUT][-NOISE]"
PARTS: Mapping[str, tuple[str, ...]] = {
    "CORPUS": tuple(CORPORA),
    "SIZE": tuple(SIZES),
    "DROPOUT": tuple(DROPOUTS),
    "NOISE": NOISES,
}

# The gammas of a standard deviation of one half.
_SMALL: Mapping[str | None, float | None] = {None: None} | {
    family: ranges.gamma(ranges.LAWS[family], 0.5) for family in NOISES
}

# The paper gives the model and the kind of noise, but neither gamma nor how it was trained. With
# AdamW the RNN overfits within a few epochs, as the paper's does. The learning rate is constant
# and the weights are not averaged, because either would hide that validation gets worse again.
_FIGURE_1: Settings = {
    "data": {"name": "ptb"},
    "model": {"cell": "elman-sigmoid", "hidden_size": 256, "num_layers": 1, "tied": False},
    "train": {
        "batch_size": 20,
        "optimizer": "adamw",
        "lr": 0.002,
        "lr_decay": 1.0,
        "averaging": "none",
        "epochs": 15,
    },
}
_ADDITIVE: Settings = {"noise": {"family": "gaussian", "gamma": 0.5, "mode": "additive"}}


def name_of(cell: TableCell, reading: Reading = "dropout") -> str:
    """The recipe of a cell; of one with dropout, by one of the readings.

    >>> name_of(results.cell("wikitext-2", "large", dropout=True, family="chi-square"))
    'wt2-large-dropout-chi-square'
    """
    corpus = next(short for short, name in CORPORA.items() if name == cell.corpus)
    return _name(corpus, cell.size, reading if cell.dropout else None, cell.family)


def config(name: str) -> RunConfig:
    """The config of a recipe."""
    return RunConfig.parse(RECIPES[name], name)


def _name(*parts: str | None) -> str:
    return "-".join(part for part in parts if part is not None)


def _settings(
    corpus: str, size: str, dropout: str | None, family: str | None, gamma: float | None
) -> Settings:
    model: Settings = {"hidden_size": SIZES[size], "num_layers": 2}
    if dropout is not None:
        model |= DROPOUTS[dropout]
    settings: Settings = {"data": {"name": CORPORA[corpus]}, "model": model}
    if family is not None:
        settings["noise"] = {"family": family, "gamma": gamma}
    return settings


def _generate() -> Iterator[tuple[str, Settings]]:
    for corpus, long in CORPORA.items():
        for dropout in (None, *DROPOUTS):
            with_dropout = dropout is not None
            rows = [("small", family, gamma) for family, gamma in _SMALL.items()]
            rows += [
                (cell.size, cell.family, cell.gamma)
                for cell in CELLS
                if (cell.corpus, cell.dropout) == (long, with_dropout)
            ]
            for size, family, gamma in rows:
                settings = _settings(corpus, size, dropout, family, gamma)
                yield _name(corpus, size, dropout, family), settings
    yield "figure1-clean", _FIGURE_1
    yield "figure1-noisy", _FIGURE_1 | _ADDITIVE


RECIPES: Mapping[str, Settings] = dict(_generate())
