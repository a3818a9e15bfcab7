"""What the pages say about the code, the tests and the records is so."""

from __future__ import annotations

import ast
import importlib
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from noisin.experiments import sweep
from noisin.experiments.collection import collect
from noisin.experiments.paper import results
from noisin.experiments.records import comparable
from noisin.training import RunConfig
from tests.test_package import FOLDERS

ROOT = Path(__file__).parents[1]
TESTS = ROOT / "tests"
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in (
        *(ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "results" / "README.md"),
        *sorted((ROOT / "docs").glob("*.md")),
    )
}
# Without ``noise`` and ``data``, which are sections of the settings as well.
MODULES = {"noisin", *FOLDERS} - {"noise", "data"}
MAP = PAGES["docs/paper.md"]
CLAIMS = "".join(
    path.read_text(encoding="utf-8") for path in (ROOT / "src/noisin/analysis/claims").glob("*.py")
)


def table_rows(page: str) -> list[list[str]]:
    """The cells of each row of its tables, without heads."""
    lines = [line for line in page.splitlines() if line.startswith("|")]
    cells = [[c.strip() for c in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    ruled = {i for i, row in enumerate(cells) if set("".join(row)) <= set("-: ")}
    return [row for i, row in enumerate(cells) if not {i, i + 1} & ruled]


def resolve(name: str) -> Any:
    """What a dotted name below ``noisin`` stands for."""
    parts = name.removeprefix("noisin.").split(".")
    found = importlib.import_module("noisin")
    for i, part in enumerate(parts):
        if not hasattr(found, part):
            importlib.import_module(".".join(("noisin", *parts[: i + 1])))
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("page", PAGES)
def test_the_tests_that_a_page_names_exist(page: str) -> None:
    for folder, file, name in re.findall(r"`(tests/)?([\w/]+\.py)(?:::(\w+))?`", PAGES[page]):
        if folder or file.rpartition("/")[2].startswith("test_"):
            tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
            defined = {n.name for n in tree.body if isinstance(n, ast.FunctionDef | ast.ClassDef)}
            assert not name or name in defined, f"{file} has no {name}"


@pytest.mark.parametrize("page", PAGES)
def test_the_names_on_a_page_exist(page: str) -> None:
    """Dotted names that begin with ``noisin`` or one of its modules."""
    prose = re.sub(r"```.*?```", "", PAGES[page], flags=re.DOTALL)
    for name in re.findall(r"`([a-z_]+(?:\.[A-Za-z_]\w*)+)", prose):
        if name.split(".")[0] in MODULES and not name.endswith(".py"):
            assert resolve(name) is not None


def test_the_configs_of_the_zoo_are_valid() -> None:
    blocks = re.findall(r"```toml\n(.*?)```", PAGES["docs/zoo.md"], re.DOTALL)
    assert len(blocks) > 20
    blocks += re.findall(r"```toml\n(.*?)```", PAGES["docs/latent.md"], re.DOTALL)
    for block in blocks:
        RunConfig.parse(tomllib.loads(block), block)


def test_every_row_of_the_map_has_a_test_or_says_what_is_missing() -> None:
    rows = [row for row in table_rows(MAP.split("## Section 2")[1]) if len(row) == 3]
    assert len(rows) > 25
    for what, code, test in rows:
        absent = "none is implemented" in code or "is not implemented" in code
        named = re.search(r"`[\w/]+\.py|rows? \*", test) or test == "the same"
        assert bool(named) != absent, what


def test_the_rows_of_verify_that_the_map_names_exist() -> None:
    lines = "\n".join(line for line in MAP.splitlines() if line.startswith("|"))
    named = re.findall(r"\*([a-z][\w-]*)\*", lines)
    assert len(named) > 10
    assert [name for name in named if f'"{name}"' not in CLAIMS] == []


def test_the_folders_on_the_page_are_those_that_are_checked() -> None:
    shown = [re.findall(r"`(\w+)/?`", row[0]) for row in table_rows(PAGES["CONTRIBUTING.md"])]
    assert [name for names in shown for name in names] == FOLDERS[:-1]


def test_the_figures_of_speed_are_those_of_the_record() -> None:
    """Ratios to torch, of the record that the page links to."""
    page = PAGES["docs/speed.md"]
    (link,) = re.findall(r"\]\(\.\./(benchmarks/results/\S+\.md)\)", page)
    record = (ROOT / link).read_text(encoding="utf-8")
    measured = {}
    for case, _, *entries in table_rows(record.split("\n\n")[2]):
        limit, loop, eager, c = (float(entry.split()[0]) for entry in entries)
        measured[case] = [limit, c, eager, loop]
    table = page[page.index("| | limit | C | eager") :].split("\n\n")[0]
    shown = {case: list(map(float, ratios)) for case, *ratios in table_rows(table)}
    assert len(shown) == 10
    bars = [row[-1] for row in table_rows(record) if re.match("met|missed", row[-1])]
    assert f"{len(bars) - bars.count('met')} of {len(bars)} are, in this record" in page
    for case, ratios in shown.items():
        assert ratios == pytest.approx(measured[case], abs=0.00501), case

    readme = PAGES["README.md"].split("## Speed")[1].split("## More")[0]
    cases, ours, loop = (
        [cell.strip() for cell in line.split("|")[2:-1]]
        for line in readme.splitlines()
        if line.startswith("|") and "---" not in line
    )
    eager = re.findall(r"\d\.\d\d", readme.split("eager torch runs it")[1])
    for case, *ratios in zip(cases, ours, eager, loop, strict=True):
        assert list(map(float, ratios)) == pytest.approx(measured[case][1:], abs=0.00501), case
    by_c = {case: ratios[1] for case, ratios in measured.items()}
    least, most = min(by_c, key=by_c.__getitem__), max(by_c, key=by_c.__getitem__)
    told = f"between {by_c[least]:.2f} ({least}) and {by_c[most]:.2f} ({most})"
    assert f"all {len(by_c)} shapes" in readme
    assert told in readme


def test_the_papers_gains_and_the_baselines() -> None:
    page = PAGES["docs/tables.md"]
    shown = {row[0]: row[1:] for row in table_rows(page)}
    for corpus, title in results.TITLES.items():
        assert shown[title] == [
            f"{results.best_gain(corpus, size, dropout):.1f} %"
            for dropout in (False, True)
            for size in results.HIDDEN_SIZES
        ]
    lower = 0
    for baseline in results.BASELINES:
        medium, large = baseline.test
        corpus = next(c.corpus for c in results.CELLS if c.table == baseline.table)
        theirs = [results.cell(corpus, size, dropout=True).test for size in results.HIDDEN_SIZES]
        words = " ".join(page.split())
        assert f"{medium:.1f} and {large:.1f} on {results.TITLES[corpus]}" in words
        assert f"{theirs[0]} and {theirs[1]}" in words
        lower += sum(a < b for a, b in zip(baseline.test, theirs, strict=True))
    assert lower == 3, "in three of four cases"


def test_the_sweep_of_the_small_model_has_one_point_without_a_record() -> None:
    """The pages say which."""
    made = {comparable(run.config) for run in collect(ROOT / "results" / "ptb-small")}
    points = [run for task in sweep.read("ptb-small").tasks for run in task.runs]
    missing = [run for run in points if comparable(run.config) not in made]
    assert len(points) == 7
    (run,) = missing
    assert run.config.noise is not None
    assert (run.config.noise.family, run.config.noise.std) == ("bernoulli", 1.0)
    assert "a seventh, Bernoulli noise of standard deviation 1," in PAGES["results/README.md"]
    assert "seven runs of 14 epochs, of which [results]" in PAGES["docs/sweeps.md"]


def test_what_was_not_run() -> None:
    """The page on deviations says so."""
    assert "Runs of the large model, on WikiText-2, or of 200 epochs" in PAGES["docs/deviations.md"]
    for run in collect(ROOT / "results"):
        assert run.config.model.hidden_size < results.HIDDEN_SIZES["large"], run.name
        assert run.config.data.name != "wikitext-2", run.name
        assert len(run.metrics) < 200, run.name
