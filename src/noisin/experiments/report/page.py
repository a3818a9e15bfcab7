"""The report: one HTML page about all runs of a folder, made from their records alone.

It is self-contained: no network, no script, no font. All text from the records is escaped, and a
content security policy in the page forbids everything else.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import noisin
from noisin.errors import Unsupported
from noisin.experiments import evaluated, group, seeds, tags, words
from noisin.experiments.collection import Collection
from noisin.experiments.evidence import verdicts
from noisin.experiments.evidence.arms import in_sweep
from noisin.experiments.evidence.questions import QUESTIONS
from noisin.experiments.formats import Sheet
from noisin.experiments.group import PointGroup, TaskGroup
from noisin.experiments.paper import results, sheets, tables
from noisin.experiments.pictures import charts, palette
from noisin.experiments.pictures.charts import LegendLine, Style
from noisin.experiments.records import Run
from noisin.experiments.report import svg
from noisin.tasks.unit import PERPLEXITY, Unit

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure

FOLDER = Path(__file__).parent / "template"
MOST_ROWS = 25  # of a table, before the rest is folded away


@dataclass(frozen=True)
class Picture:
    """A picture with its caption and the names of its lines."""

    svg: Markup
    caption: str
    lines: list[LegendLine]


@dataclass(frozen=True)
class Table:
    """A table of the paper next to ours, and remarks on its numbers."""

    number: int
    sheets: list[Sheet]
    remarks: list[str]


@dataclass(frozen=True)
class Chapter:
    """A task as the page shows it."""

    id: str
    task: TaskGroup

    @property
    def title(self) -> str:
        """The text and the model."""
        return self.task.title

    @property
    def points(self) -> list[PointGroup]:
        """The points, the best one first."""
        return list(self.task.points)

    @property
    def runs(self) -> list[Run]:
        """All runs."""
        return self.task.runs

    @property
    def best(self) -> PointGroup | None:
        """The complete point with the lowest score on valid."""
        first = self.task.points[0]
        return first if first.complete and first.valid is not None else None

    @property
    def plain(self) -> PointGroup | None:
        """The complete point without noise and dropout, the best one if there are several."""
        for point in self.task.points:
            if point.complete and words.is_plain(point.config):
                return point
        return None

    @property
    def change(self) -> str:
        """How much lower the best one is than the plain one: in percent, or as a difference of
        nats or bits, of which a ratio means nothing.
        """
        if self.best is None or self.plain is None or self.best is self.plain:
            return ""
        if self.best.valid is None or not self.plain.valid:
            return ""
        best, plain = self.best.valid.mean, self.plain.valid.mean
        if not self.unit.log_scale:
            return f"{best - plain:+.{self.unit.digits}f}"
        return f"{100 * (best / plain - 1):+.1f}\u202f%" if plain else ""

    @property
    def unit(self) -> Unit:
        """The unit of the scores."""
        return self.task.unit

    @cached_property
    def styles(self) -> dict[str, Style]:
        """How the lines of the points look."""
        return charts.styles(self.task)

    @cached_property
    def curves(self) -> Picture:
        """Scores by epoch."""
        figure, lines = charts.learning_curves(self.task)
        caption = (
            f"{_capital(self.unit)} by epoch: valid as a line, train with noise off dashed, the "
            f"best marked."
        )
        if any(len(point.counted) > 1 for point in self.task.points):
            caption += " Of several seeds the mean, and their range as a band."
        label = f"Learning curves of {self.title}. The numbers are in the table below."
        return self._picture(figure, lines, "curves", caption, label)

    @cached_property
    def spread(self) -> Picture | None:
        """Scores by the spread of the noise."""
        drawn = charts.spread(self.task)
        if drawn is None:
            return None
        caption = (
            f"Lowest {self.unit} on valid by the standard deviation of the noise, complete runs "
            f"only."
        )
        if any(line.label.startswith("dropout") for line in drawn[1]):
            caption += " Dropout at rate p is noise of standard deviation √(p / (1 − p))."
        label = (
            f"{_capital(self.unit)} by spread of the noise, {self.title}. The numbers are in the "
            f"table below."
        )
        return self._picture(*drawn, "spread", caption, label)

    @cached_property
    def evaluations(self) -> list[Sheet]:
        """The scores of ``noisin evaluate``: a table, and the rows beyond :data:`MOST_ROWS`."""
        title = f"{_capital(self.unit.plural)} of {self.title} by noisin evaluate"
        found = evaluated.sheet(self.task, title)
        if found is None:
            return []
        rest = replace(found, title=f"{title}, continued", rows=found.rows[MOST_ROWS:])
        return [replace(found, rows=found.rows[:MOST_ROWS]), *([rest] if rest.rows else [])]

    def _picture(
        self, figure: Figure, lines: list[LegendLine], name: str, caption: str, label: str
    ) -> Picture:
        from markupsafe import Markup

        return Picture(Markup(svg.inline(figure, f"{self.id}-{name}", label)), caption, lines)


def render(runs: Collection, folder: Path) -> str:
    """The page."""
    _check_installed()
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=FileSystemLoader(FOLDER), autoescape=True, undefined=StrictUndefined
    )
    css = _colours() + (FOLDER / "report.css").read_text(encoding="utf-8")
    found = group.tasks(runs)
    units = {task.unit for task in found}
    damaged = [*runs.damaged, *evaluated.damaged(runs)]
    return environment.get_template("report.html").render(
        title=f"noisin report: {folder.resolve().name}",
        folder=str(folder),
        version=noisin.__version__,
        css=Markup(css),
        css_hash=_hash(css),
        counts=_counts(runs),
        scores="perplexities" if all(unit == PERPLEXITY for unit in units) else "scores",
        subject=words.subject(run.config for run in runs),
        tasks=[Chapter(f"task-{i}", task) for i, task in enumerate(found, start=1)],
        claims=_claims(runs),
        tables=list(_tables(runs)),
        meanings=tags.MEANINGS,
        damaged=sorted(damaged, key=lambda record: record.name),
        most_rows=MOST_ROWS,
        tags=tags.of_point,
        tags_of_run=tags.of_run,
        number=_number,
        capital=_capital,
        json=lambda value: json.dumps(value, indent=2, ensure_ascii=False),
        marker=palette.path,
    )


def _number(value: float | None, unit: Unit) -> str:
    """A score as a page shows it, with a minus sign and not a hyphen."""
    return "–" if value is None else seeds.number(value, unit).replace("-", "−")


def _capital(words: object) -> str:
    """Some words at the beginning of a sentence."""
    text = str(words)
    return text[:1].upper() + text[1:]


def _claims(runs: Collection) -> list[Sheet]:
    """The verdicts on the paper's claims, if there are runs that were made for them."""
    if not any(in_sweep(runs, question.sweep) for question in QUESTIONS):
        return []
    return [verdicts.summary(runs), *verdicts.details(runs)]


def _tables(runs: Collection) -> Iterator[Table]:
    """The tables of the paper for which there are runs, without the sizes that have none."""
    for number in sorted({cell.table for cell in results.CELLS}):
        lines = tables.compare(number, runs).lines
        sizes = {line.cell.size for line in lines if line.result.runs or line.result.notes}
        parts = zip(sheets.sheets(number, runs), results.HIDDEN_SIZES, strict=True)
        found = [sheet for sheet, size in parts if size in sizes]
        if found:
            yield Table(number, found, sheets.remarks(number, runs))


def _check_installed() -> None:
    lacking = [name for name in ("matplotlib", "jinja2") if find_spec(name) is None]
    if lacking:
        raise Unsupported(f"report needs {' and '.join(lacking)}: pip install 'noisin[report]'.")


def _counts(runs: Collection) -> dict[str, Any]:
    states = [tags.state(run) for run in runs]
    return {
        "runs": len(runs),
        "complete": states.count("complete"),
        "others": [(words, states.count(words)) for words in tags.OPEN],
    }


def _hash(css: str) -> str:
    """The hash of the style sheet for the content security policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()


def _colours() -> str:
    """The palette as variables and classes, in light, and in dark for those who prefer it."""
    classes = "".join(
        f".stroke-{name}{{stroke:var(--{name})}}.fill-{name}{{fill:var(--{name})}}"
        for name in palette.LIGHT
    )
    dark = f"@media (prefers-color-scheme: dark) {{ {_variables(palette.DARK)} }}"
    return f"{_variables(palette.LIGHT)}\n{dark}\n{classes}\n"


def _variables(colours: Mapping[str, str]) -> str:
    return ":root {" + "".join(f"--{name}:{colour};" for name, colour in colours.items()) + "}"
