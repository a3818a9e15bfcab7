"""The paper's results as data: every number of its tables of perplexities, and of its last table.

A cell is one model with one noise: ``gamma``, and the perplexities on dev (validation) and test. A
system is a row of the last table; all but one are by other authors. The numbers are the paper's as
printed; where they contradict its text, each other or their sources, :data:`NOTES` says so.

>>> cell("ptb", "medium", family="gaussian")
TableCell(table=3, row='Gaussian', corpus='ptb', size='medium', dropout=False, family='gaussian', gamma=1.1, dev=76.2, test=71.8)
>>> round(cell("ptb", "medium", family="bernoulli").std, 2)
1.2
>>> round(best_gain("ptb", "medium", dropout=False), 1)
34.5
"""  # noqa: E501 - the row is one line

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from noisin.errors import InvalidValue
from noisin.noise import ranges

CorpusName = Literal["ptb", "wikitext-2"]
SizeName = Literal["medium", "large"]
Triple = tuple[float | None, float, float]  # gamma, dev, test
RowOfSize = tuple[str, SizeName]

HIDDEN_SIZES: Mapping[SizeName, int] = {"medium": 650, "large": 1500}
TITLES: Mapping[CorpusName, str] = {"ptb": "Penn Treebank", "wikitext-2": "WikiText-2"}


@dataclass(frozen=True)
class TableCell:
    """One model with one noise, in one of the two tables of perplexities.

    Attributes:
        table: its number in the paper.
        row: the row's name as printed.
        corpus, size, dropout: what was trained on what.
        family, gamma: the noise, or None.
        dev, test: perplexities; a whole number where no more digits are printed.
    """

    table: int
    row: str
    corpus: CorpusName
    size: SizeName
    dropout: bool
    family: str | None
    gamma: float | None
    dev: float
    test: float

    @property
    def std(self) -> float | None:
        """The standard deviation of the noise, by which families compare; gamma does not."""
        if self.family is None or self.gamma is None:
            return None
        return ranges.std(ranges.LAWS[self.family], self.gamma)


@dataclass(frozen=True)
class System:
    """A row of the last table.

    Attributes:
        table: its number in the paper.
        citation: the key of the work cited; None for the paper itself.
        model: the model's name as printed.
        parameters: millions of them, or None.
        dev, test: perplexities on Penn Treebank, or None.
        note: a remark of the caption, or a correction.
    """

    table: int
    citation: str | None
    model: str
    parameters: float | None
    dev: float | None
    test: float
    note: str = ""


@dataclass(frozen=True)
class Baseline:
    """A public result of the paper's LSTM with dropout, by other authors: tied, two layers.

    Attributes:
        table: the table that it is compared with.
        source: who trained it, and how.
        test: perplexities of the medium and of the large model.
    """

    table: int
    source: str
    test: tuple[float, float]


@dataclass(frozen=True)
class Claim:
    """An improvement that the paper's text states in percent, and the cells that it comes from."""

    percent: float
    better: TableCell
    worse: TableCell

    @property
    def like_with_like(self) -> bool:
        """Whether the two models have the same size."""
        return self.better.size == self.worse.size


@dataclass(frozen=True)
class PaperNote:
    """A contradiction between a table and the text, or within a table.

    Attributes:
        table: its number in the paper.
        text: what contradicts what.
        rows: the rows that it is about; empty if it is about the table.
    """

    table: int
    text: str
    rows: tuple[RowOfSize, ...] = ()


# Of each row: gamma, dev and test of the medium model, and of the large one.
_PENN_TREEBANK: Mapping[str, tuple[Triple, Triple]] = {
    "None": ((None, 115, 109), (None, 123, 123)),
    "Gaussian": ((1.10, 76.2, 71.8), (1.37, 73.2, 69.1)),
    "Logistic": ((1.06, 76.4, 72.3), (1.39, 73.6, 69.3)),
    "Laplace": ((1.06, 76.6, 72.4), (1.39, 73.7, 69.4)),
    "Gamma": ((1.06, 78.2, 74.5), (1.39, 73.6, 69.5)),
    "Bernoulli": ((0.41, 75.7, 71.4), (0.33, 72.8, 68.3)),
    "Gumbel": ((1.06, 76.2, 72.7), (1.39, 73.5, 69.5)),
    "Beta": ((1.07, 76.0, 71.4), (1.50, 74.4, 70.2)),
    "Chi": ((1.50, 84.5, 80.7), (1.20, 79.2, 75.5)),
    "Dropout (D)": ((None, 80.2, 77.0), (None, 78.6, 75.3)),
    "D + Gaussian": ((0.53, 73.4, 70.4), (0.92, 70.0, 66.1)),
    "D + Logistic": ((0.53, 73.0, 69.9), (0.84, 69.8, 66.4)),
    "D + Laplace": ((0.53, 73.1, 70.0), (0.92, 69.9, 66.6)),
    "D + Gamma": ((0.38, 73.5, 70.3), (0.92, 71.1, 68.2)),
    "D + Bernoulli": ((0.80, 73.3, 70.1), (0.50, 70.0, 66.1)),
    "D + Gumbel": ((0.46, 74.5, 71.2), (0.92, 70.2, 67.1)),
    "D + Beta": ((0.20, 73.0, 69.2), (0.70, 70.0, 66.2)),
    "D + Chi": ((0.29, 76.1, 72.8), (0.82, 73.0, 70.0)),
}
_WIKITEXT_2: Mapping[str, tuple[Triple, Triple]] = {
    "None": ((None, 141, 136), (None, 176, 140)),
    "Gaussian": ((1.00, 92.7, 87.8), (1.37, 87.7, 83.4)),
    "Logistic": ((1.00, 93.2, 88.4), (1.28, 88.1, 83.5)),
    "Laplace": ((1.00, 95.3, 89.8), (1.28, 88.0, 83.4)),
    "Gamma": ((0.72, 97.6, 92.9), (1.39, 89.2, 84.5)),
    "Bernoulli": ((0.54, 91.2, 86.6), (0.41, 86.9, 83.0)),
    "Gumbel": ((1.00, 95.4, 90.9), (1.28, 88.7, 84.0)),
    "Beta": ((0.80, 91.1, 87.2), (1.50, 86.9, 82.9)),
    "Chi": ((0.20, 111, 105), (1.50, 99.0, 92.9)),
    "Dropout (D)": ((None, 88.7, 84.8), (None, 95.0, 91.0)),
    "D + Gaussian": ((0.50, 86.3, 82.3), (0.69, 81.4, 77.7)),
    "D + Logistic": ((0.40, 86.4, 82.5), (0.77, 81.6, 78.1)),
    "D + Laplace": ((0.40, 85.6, 82.1), (0.61, 83.2, 79.1)),
    "D + Gamma": ((0.30, 86.5, 82.4), (0.61, 85.5, 81.3)),
    "D + Bernoulli": ((0.50, 100.6, 94.4), (0.64, 80.8, 76.8)),
    "D + Gumbel": ((0.30, 86.4, 82.4), (0.53, 83.7, 80.1)),
    "D + Beta": ((0.10, 86.2, 82.3), (0.60, 81.5, 77.9)),
    "D + Chi": ((0.20, 92.0, 87.4), (0.29, 87.1, 82.8)),
}


def _cells(
    table: int, corpus: CorpusName, rows: Mapping[str, tuple[Triple, Triple]]
) -> Iterator[TableCell]:
    for row, triples in rows.items():
        name = row.removeprefix("D + ").lower()
        family = {"none": None, "dropout (d)": None, "chi": "chi-square"}.get(name, name)
        for size, triple in zip(HIDDEN_SIZES, triples, strict=True):
            yield TableCell(table, row, corpus, size, row.startswith("D"), family, *triple)


CELLS = (*_cells(3, "ptb", _PENN_TREEBANK), *_cells(4, "wikitext-2", _WIKITEXT_2))


def cell(
    corpus: CorpusName, size: SizeName, *, dropout: bool = False, family: str | None = None
) -> TableCell:
    """The cell of a model and a noise."""
    key = (corpus, size, dropout, family)
    for found in CELLS:
        if (found.corpus, found.size, found.dropout, found.family) == key:
            return found
    raise InvalidValue(
        f"paper.cell: the paper has no such cell: corpus={corpus!r}, size={size!r}, "
        f"dropout={dropout!r}, family={family!r}. CELLS contains all of them."
    )


def gain(better: TableCell, worse: TableCell) -> float:
    """By how many percent the test perplexity of one cell is below that of another."""
    return 100 * (1 - better.test / worse.test)


def best_gain(corpus: CorpusName, size: SizeName, dropout: bool) -> float:
    """Like with like: the best noise over none, of the same size, both with or without dropout."""
    alike = (c for c in CELLS if (c.corpus, c.size, c.dropout) == (corpus, size, dropout))
    best = min((c for c in alike if c.family is not None), key=lambda c: c.test)
    return gain(best, cell(corpus, size, dropout=dropout))


SYSTEMS = (
    System(5, "zaremba2014recurrent", "LSTM", 20, 86.2, 82.7),
    System(5, "gal2016theoretically", "Variational LSTM (MC)", 20, None, 78.6),
    System(5, "merity2016pointer", "Pointer Sentinel-LSTM", 21, 72.4, 70.9),
    System(5, "grave2016improving", "LSTM + continuous cache pointer", None, None, 72.1),
    System(
        *(5, "inan2016tying", "Tied Variational LSTM + augmented loss", 24, 75.7, 73.2),
        note="A copied error: the model with these perplexities has 14 M parameters.",
    ),
    System(5, "zilly2016recurrent", "Variational RHN", 23, 67.9, 65.4),
    System(
        *(5, "melis2017state", "2-layer skip connection LSTM", 24, 60.9, 58.3),
        note="A copied error: 60.9 and 58.3 are those of the model of 4 layers. The one of 2 "
        "layers has 62.1 and 59.6.",
    ),
    System(
        *(5, "merity2017regularizing", "AWD-LSTM + continuous cache pointer", 24, 53.9, 52.8),
    ),
    System(5, "krause2017dynamic", "AWD-LSTM + dynamic evaluation", 24, 51.6, 51.1),
    System(5, "yang2017breaking", "AWD-LSTM-MoS + dynamic evaluation", 22, 48.3, 47.7),
    System(
        *(5, None, "AWD-LSTM-MoS + NOISIN + dynamic evaluation", 22, 48.4, 47.6),
        note="After 400 epochs, where the row above took 1000; multiplicative Gamma noise of "
        "shape 2 and scale 0.4.",
    ),
)

BASELINES = (
    Baseline(
        3, "PyTorch's word_language_model example, 40 epochs, dropout 0.5 and 0.65", (75.96, 72.30)
    ),
    Baseline(
        4,
        "GluonNLP's model zoo, averaged from a non-monotone trigger on, dropout 0.5 and 0.65",
        (86.91, 82.29),
    ),
)

# The four percentages of the introduction. The abstract and section 5 repeat the last two.
CLAIMS = (
    Claim(37.3, cell("ptb", "large", family="bernoulli"), cell("ptb", "medium")),
    Claim(39.0, cell("wikitext-2", "large", family="beta"), cell("wikitext-2", "medium")),
    Claim(
        12.2,
        cell("ptb", "large", dropout=True, family="gaussian"),
        cell("ptb", "large", dropout=True),
    ),
    Claim(
        9.4,
        cell("wikitext-2", "large", dropout=True, family="bernoulli"),
        cell("wikitext-2", "medium", dropout=True),
    ),
)


def _both(row: str) -> tuple[RowOfSize, ...]:
    """A row in the tables of both sizes."""
    return tuple((row, size) for size in HIDDEN_SIZES)


NOTES = (
    PaperNote(
        3,
        "The text says that each noise alone beats dropout. Chi does not: 80.7 > 77.0 (medium), "
        "75.5 > 75.3 (large).",
        (*_both("Chi"), *_both("Dropout (D)")),
    ),
    PaperNote(
        3,
        "The text's 37.3 % is the large model with noise over the medium one without. Like with "
        "like it is 34.5 % (medium) and 44.5 % (large).",
    ),
    PaperNote(
        3,
        "The best of a column is in bold type, but for D + Gaussian and D + Bernoulli, large: "
        "70.0 > 69.8 on dev, of D + Logistic.",
        (("D + Gaussian", "large"), ("D + Bernoulli", "large")),
    ),
    PaperNote(
        4,
        "The text says that the trend is that of Penn Treebank. With the medium model, no noise "
        "alone beats dropout: 86.6 > 84.8.",
    ),
    PaperNote(
        4,
        "The text says that noise improves the LSTM with dropout. With the medium model two do "
        "not: D + Bernoulli, 94.4 > 84.8, and D + Chi, 87.4 > 84.8. The first has a std of 1.0 "
        "where the others have 0.3 to 0.5: too much.",
        (("D + Bernoulli", "medium"), ("D + Chi", "medium")),
    ),
    PaperNote(
        4,
        "The text's 39.0 % and 9.4 % are the large model with noise over the medium one without. "
        "Like with like they are 36.3 % and 3.2 % (medium), 40.8 % and 15.6 % (large).",
    ),
    PaperNote(
        4,
        "Beta, medium, is in bold type as the best on test: 87.2 > 86.6, of Bernoulli.",
        (("Beta", "medium"),),
    ),
    PaperNote(
        4,
        "None, large: dev is a quarter above test, 176 > 140, and within 7 % of it in every "
        "other cell. One of the two may be a misprint.",
        (("None", "large"),),
    ),
)
