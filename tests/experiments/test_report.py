"""The report as text: what it tells, what it escapes, how large it gets."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from noisin.experiments.collection import collect
from noisin.experiments.group import tasks
from noisin.experiments.pictures import charts, palette
from noisin.experiments.report import page, svg
from tests.cli.run import in_process, noisin
from tests.experiments.records import write_run

# As folders one in the other, since a name cannot have a slash.
HOSTILE = "<script>alert(1)</script>"


class Elements(HTMLParser):
    """The elements and attributes of a page, and what stands in its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data: str) -> None:
        self.text += data


def render(folder: Path) -> str:
    return page.render(collect(folder), folder)


def write_three(folder: Path) -> None:
    for seed in (1, 2):
        write_run(folder / f"plain-{seed}", (90.0, 80.0, 85.0), seed=seed)
        write_run(folder / f"noisy-{seed}", (90.0, 70.0, 71.0), seed=seed, noise={"gamma": 0.5})
    write_run(folder / "open", (95.0, 91.0), complete=False, noise={"gamma": 1.0})


def test_what_it_tells(tmp_path: Path) -> None:
    write_three(tmp_path)
    text = re.sub(r"\s+", " ", Elements(render(tmp_path)).text)
    assert f"5 runs in {tmp_path}: 4 complete, 1 not complete." in text
    for words in ("manual, LSTM 2×650", "gaussian γ 0.5", "no noise", "lowest", "−12.5"):
        assert words in text
    assert '"lr": 30.0' in text, "the config"
    assert '"processor": "a test"' in text, "the environment"
    assert text.index("gaussian γ 0.5") < text.index("gaussian γ 1"), "what is open comes last"


def test_it_is_the_same_each_time(tmp_path: Path) -> None:
    write_three(tmp_path)
    assert render(tmp_path) == render(tmp_path)


def test_it_asks_for_nothing(tmp_path: Path) -> None:
    """No script, no picture or font from elsewhere, and a policy that would forbid them."""
    write_three(tmp_path)
    page = render(tmp_path)
    elements = Elements(page)
    assert not {"script", "link", "img", "iframe", "object", "embed", "form"} & set(elements.tags)
    links = [v for k, v in elements.attributes if k in ("href", "src", "xlink:href", "action")]
    assert all(link is not None and link.startswith("#") for link in links)
    assert not [k for k, _ in elements.attributes if k.startswith("on") or k == "style"]
    assert "url(" not in page.replace('clip-path="url(#', "")
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy


def test_identifiers_are_unique_and_links_lead_to_them(tmp_path: Path) -> None:
    write_three(tmp_path)
    write_run(tmp_path / "other", data={"name": "ptb"}, noise={"gamma": 0.3})
    attributes = Elements(render(tmp_path)).attributes
    ids = [value for name, value in attributes if name == "id"]
    assert len(ids) == len(set(ids))
    for name, value in attributes:
        if name in ("aria-labelledby", "href") and value is not None:
            assert value.removeprefix("#") in ids
        if name == "clip-path" and value is not None:
            assert value.removeprefix("url(#").removesuffix(")") in ids


def test_names_are_only_names(tmp_path: Path) -> None:
    record = write_run(
        tmp_path / HOSTILE,
        (90.0,),
        complete=False,
        data={"name": '"><img src=x onerror=alert(2)>{{ 7 * 7 }}$x_{'},
    )
    record.write("environment.json", {"</pre><script>": "</script><svg onload=alert(3)>"})
    note = {"config": record.config.hash(), "message": "</p><style>*{display:none}</style>"}
    record.write("diverged.json", note)
    write_run(tmp_path / "bad<b>")
    (tmp_path / "bad<b>" / "summary.json").write_text('"</dd><script>"')
    page = render(tmp_path)
    elements = Elements(page)
    assert not {"script", "img", "b"} & set(elements.tags)
    assert elements.tags.count("style") == 1
    assert not [name for name, _ in elements.attributes if name.startswith("on")]
    for words in (HOSTILE, "{{ 7 * 7 }}", "</pre><script>", "bad<b>", "</p><style>"):
        assert words in elements.text


def test_no_runs(tmp_path: Path) -> None:
    text = Elements(render(tmp_path)).text
    assert "There are no runs here yet" in text
    assert f"noisin train --out {tmp_path}" in text


def test_damaged_records_are_listed(tmp_path: Path) -> None:
    write_run(tmp_path / "good")
    write_run(tmp_path / "bad")
    (tmp_path / "bad" / "metrics.jsonl").write_text("nonsense\n")
    text = Elements(render(tmp_path)).text
    assert "1 record cannot be used" in text
    assert "metrics.jsonl is damaged" in text
    assert "There are no runs" not in text


def test_nothing_but_damaged_records(tmp_path: Path) -> None:
    write_run(tmp_path / "bad")
    (tmp_path / "bad" / "config.json").write_text("{")
    text = Elements(render(tmp_path)).text
    assert "There are no runs here yet" in text
    assert "config.json cannot be parsed" in text


def test_records_at_the_edge(tmp_path: Path) -> None:
    """Nothing yet, infinite, zero, huge, one epoch: all are told, none breaks a picture."""
    write_run(tmp_path / "begun", (), complete=False)
    write_run(tmp_path / "infinite", (None, None), noise={"gamma": 1.0})
    write_run(tmp_path / "zero", (0.0,), noise={"gamma": 2.0})
    write_run(tmp_path / "huge", (1.7e308, 1e300), noise={"gamma": 3.0})
    write_run(tmp_path / "huge2", (1.7e308, 1e300), noise={"gamma": 3.0}, seed=1)
    write_run(tmp_path / "none", (80.0,), noise={"gamma": 0.0})
    text = Elements(render(tmp_path)).text
    assert "No epoch is complete yet." in text
    assert "1e+300" in text


@pytest.mark.long
def test_five_hundred_runs(tmp_path: Path) -> None:
    """Folded away, and small enough to send; the pictures name the best ones."""
    for i in range(500):
        gamma = round(0.01 * (1 + i // 3), 2)
        write_run(tmp_path / f"{i:03}", (90.0 + i, 70.0, 75.0), seed=i % 3, noise={"gamma": gamma})
    page = render(tmp_path)
    assert len(page) < 2_500_000
    assert "142 more" in page
    (task,) = tasks(collect(tmp_path))
    _, lines = charts.learning_curves(task)
    assert [line.label for line in lines][-1] == "158 others, valid only"
    assert len(lines) == 10


def test_contrast_of_the_palette() -> None:
    for colours in (palette.LIGHT, palette.DARK):
        for name in ("ink", "muted", *palette.SERIES):
            assert palette.contrast(colours[name], colours["page"]) >= 4.5, name
            assert palette.contrast(colours[name], colours["tint"]) >= 4.5, name
        assert palette.contrast(colours["line"], colours["page"]) >= 3
    assert palette.LIGHT.keys() == palette.DARK.keys()
    assert len(set(palette.MARKERS)) == len(palette.SERIES) + 1, "and that of no noise"


def test_no_two_lines_look_alike(tmp_path: Path) -> None:
    for i in range(12):
        write_run(tmp_path / str(i), noise={"gamma": 0.1 * (i + 1)})
    write_run(tmp_path / "plain")
    (task,) = tasks(collect(tmp_path))
    looks = list(charts.styles(task).values())
    assert len(looks) == 10
    assert len({look.colour for look in looks}) == 10
    assert len({look.marker for look in looks}) == 10


@pytest.mark.parametrize(("runs", "last"), [(10, "1 other"), (11, "2 others")])
def test_lines_without_a_look_are_counted(runs: int, last: str, tmp_path: Path) -> None:
    for i in range(runs):
        write_run(tmp_path / str(i), noise={"gamma": 0.1 * (i + 1)})
    (task,) = tasks(collect(tmp_path))
    _, lines = charts.learning_curves(task)
    assert len(lines) == 10
    assert lines[-1].label == f"{last}, valid only"


def test_the_spread_is_drawn_by_family(tmp_path: Path) -> None:
    write_run(tmp_path / "plain", (90.0, 80.0))
    for family in ("gaussian", "beta"):
        for std in (0.5, 1.0):
            name = f"{family}-{std}"
            write_run(tmp_path / name, (90.0, 70 + std), noise={"family": family, "std": std})
    write_run(tmp_path / "open", (60.0,), complete=False, noise={"std": 2.0})
    (task,) = tasks(collect(tmp_path))
    drawn = charts.spread(task)
    assert drawn is not None
    figure, lines = drawn
    assert [line.label for line in lines] == ["no noise", "beta", "gaussian"]
    curves = [line for line in figure.axes[0].lines if line.get_marker() != "None"]
    assert [list(curve.get_xdata()) for curve in curves] == [[0.5, 1.0]] * 2
    assert [list(curve.get_ydata()) for curve in curves] == [[70.5, 71.0]] * 2
    known = charts.styles(task)
    for line in lines[1:]:
        best = min(label for label in known if label.startswith(line.label))
        assert known[best] == line.style, "as in the learning curves"


def test_dropout_has_its_place_on_the_axis(tmp_path: Path) -> None:
    """Of one rate: √(p / (1 − p)). Of several, it is a level."""
    for std in (0.5, 1.0):
        write_run(tmp_path / f"noise-{std}", (90.0, 70 + std), noise={"std": std})
    for p in (0.2, 0.5):
        rates = {"input": p, "between": p, "output": p}
        write_run(tmp_path / f"dropout-{p}", (90.0, 80 + p), model={"dropout": rates})
    uneven = {"input": 0.5, "between": 0.4, "output": 0.5}
    write_run(tmp_path / "uneven", (90.0, 85.0), model={"dropout": uneven})
    (task,) = tasks(collect(tmp_path))
    drawn = charts.spread(task)
    assert drawn is not None
    figure, lines = drawn
    assert [line.label for line in lines] == ["dropout 0.5/0.4/0.5", "dropout", "gaussian"]
    level, dropout, noise = figure.axes[0].lines
    assert list(level.get_ydata()) == [85.0, 85.0]
    assert list(dropout.get_xdata()) == [0.5, 1.0]
    assert list(dropout.get_ydata()) == [80.2, 80.5]
    assert list(noise.get_xdata()) == [0.5, 1.0]
    assert "Dropout at rate p is noise" in render(tmp_path)


def test_a_task_without_noise_has_no_spread(tmp_path: Path) -> None:
    write_run(tmp_path / "plain")
    (task,) = tasks(collect(tmp_path))
    assert charts.spread(task) is None


def test_the_inline_picture_has_the_colours_of_the_page(tmp_path: Path) -> None:
    write_three(tmp_path)
    (task,) = tasks(collect(tmp_path))
    drawn = svg.inline(charts.learning_curves(task)[0], "name", "a label")
    assert 'aria-label="a label"' in drawn
    assert "stroke-series-0" in drawn
    assert not re.search(r"#[0-9a-f]{6}", drawn), "a colour that would not change in the dark"
    assert "style" not in drawn


def test_the_command(tmp_path: Path, capsys: Any) -> None:
    write_three(tmp_path)
    assert in_process("report", str(tmp_path)) == 0
    assert capsys.readouterr().out == f"The report is in {tmp_path / 'report.html'}. Runs: 5.\n"
    assert (tmp_path / "report.html").read_text() == render(tmp_path)
    out = tmp_path / "other.html"
    assert in_process("report", str(tmp_path), "--out", str(out)) == 0
    assert out.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["/no/such"], "/no/such does not exist. Name a folder with runs"),
        ([".", "--out", "page.pdf"], "--out must be a file ending in .html, got page.pdf."),
        (["HERE", "--out", "/no/such/page.html"], "cannot write /no/such/page.html"),
    ],
)
def test_bad_input(arguments: list[str], message: str, tmp_path: Path, capsys: Any) -> None:
    arguments = [str(tmp_path) if argument == "HERE" else argument for argument in arguments]
    assert in_process("report", *arguments) == 2
    assert message in capsys.readouterr().err


def test_it_needs_no_torch_and_says_what_it_needs(tmp_path: Path) -> None:
    write_three(tmp_path)
    run = noisin("report", str(tmp_path), code="sys.modules['torch'] = None")
    assert run.returncode == 0, run.stderr
    run = noisin("report", str(tmp_path), code="sys.modules['jinja2'] = None")
    assert run.returncode == 2
    assert "report needs jinja2: pip install 'noisin[report]'" in run.stderr
