"""The paper's Figure 1, from records alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from noisin.errors import InvalidValue
from noisin.experiments.collection import collect
from noisin.experiments.paper import figure1
from noisin.experiments.pictures import axes
from tests.cli.run import in_process, noisin
from tests.experiments.records import write_run

ELMAN: dict[str, Any] = {
    "data": {"name": "ptb"},
    "model": {"cell": "elman-sigmoid", "num_layers": 1, "hidden_size": 256},
}
CURVE = (300.0, 200.0, 150.0, 160.0)


def noisy(gamma: float, **settings: Any) -> dict[str, Any]:
    return {**ELMAN, "noise": {"gamma": gamma, "mode": "additive"}, **settings}


def select(folder: Path) -> figure1.Selection:
    return figure1.select(collect(folder), folder)


def test_the_runs_are_picked_from_the_others(tmp_path: Path) -> None:
    write_run(tmp_path / "clean", CURVE, **ELMAN)
    write_run(tmp_path / "strong", CURVE, **noisy(0.4))
    write_run(tmp_path / "weak", CURVE, **noisy(0.1))
    write_run(tmp_path / "multiplicative", CURVE, **ELMAN, noise={"gamma": 0.4})
    write_run(tmp_path / "lstm", CURVE, data={"name": "ptb"})
    write_run(tmp_path / "text", CURVE, **(ELMAN | {"data": {"name": "manual"}}))
    write_run(tmp_path / "begun", (), complete=False, **noisy(0.3))
    chosen = select(tmp_path)
    assert [point.runs[0].name for point in chosen.points] == ["clean", "weak", "strong"]


def test_like_is_drawn_with_like(tmp_path: Path) -> None:
    """Runs that differ in more than the noise are not in one figure; the longer ones win."""
    write_run(tmp_path / "clean", CURVE, **ELMAN)
    write_run(tmp_path / "noisy", CURVE, **noisy(0.1))
    write_run(tmp_path / "other", CURVE * 3, **noisy(0.2, train={"lr": 5.0}))
    assert [p.runs[0].name for p in select(tmp_path).points] == ["clean", "noisy"]
    write_run(tmp_path / "other-clean", CURVE, **ELMAN, train={"lr": 5.0})
    assert [p.runs[0].name for p in select(tmp_path).points] == ["other-clean", "other"]


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ([], "has no clean and noisy run"),
        ([ELMAN], "has no noisy run"),
        ([noisy(0.1)], "has no clean run"),
        ([ELMAN, noisy(0.1, train={"lr": 5.0})], "but they differ in more than that"),
    ],
)
def test_missing_runs(runs: list[dict[str, Any]], message: str, tmp_path: Path) -> None:
    for i, settings in enumerate(runs):
        write_run(tmp_path / str(i), CURVE, **settings)
    with pytest.raises(InvalidValue, match=message) as caught:
        select(tmp_path)
    assert f"noisin train figure1-clean --out {tmp_path}" in str(caught.value)
    assert f"noisin train figure1-noisy --out {tmp_path}" in str(caught.value)


def test_two_texts_are_not_drawn_together(tmp_path: Path) -> None:
    write_run(tmp_path / "clean", CURVE, **ELMAN)
    record = write_run(tmp_path / "noisy", CURVE, **noisy(0.1))
    record.write("environment.json", {"data": {"sha256": "f" * 64}})
    with pytest.raises(InvalidValue, match="differ in more than that"):
        select(tmp_path)


def test_what_is_drawn(tmp_path: Path) -> None:
    """Valid, train with noise off and on; the plain curve again beside each noise; the best."""
    write_run(tmp_path / "clean", CURVE, **ELMAN)
    write_run(tmp_path / "noisy", CURVE[:3], **noisy(0.1))
    clean, noise = figure1.figure_1(select(tmp_path)).axes

    def curves(panel: Any) -> list[list[float]]:
        return [list(line.get_ydata()) for line in panel.lines]

    assert curves(clean) == [list(CURVE), [v / 2 for v in CURVE], [150.0]]
    valid, off, on = list(CURVE[:3]), [v / 2 for v in CURVE[:3]], [0.7 * v for v in CURVE[:3]]
    assert curves(noise) == [list(CURVE), valid, off, on, [150.0]]
    assert noise.get_title() == "Gaussian noise, γ = 0.1\nbest 150.0 at epoch 3 of 3"


def test_many_gammas_and_seeds(tmp_path: Path) -> None:
    write_run(tmp_path / "clean", CURVE, **ELMAN)
    for i in range(1, 6):
        write_run(tmp_path / f"{i}-a", CURVE, **noisy(i / 10))
        write_run(tmp_path / f"{i}-b", CURVE, **noisy(i / 10, seed=7))
    drawn = figure1.figure_1(select(tmp_path))
    titles = [panel.get_title().split("\n")[1] for panel in drawn.axes if panel.get_title()]
    assert titles[0] == "best 150.0 at epoch 3 of 4"
    assert titles[1:] == ["2 seeds, best 150.0 ± 0.0 at epoch 3 of 4"] * 5


def test_the_command(tmp_path: Path, capsys: Any) -> None:
    write_run(tmp_path / "runs" / "clean", CURVE, **ELMAN)
    write_run(tmp_path / "runs" / "noisy", CURVE, **noisy(0.1))
    (tmp_path / "runs" / "bad\x1b[31m").mkdir()
    (tmp_path / "runs" / "bad\x1b[31m" / "config.json").write_text("{")
    out = tmp_path / "figure.png"
    for _ in range(2):
        assert in_process("figure", "1", "--runs", str(tmp_path / "runs"), "--out", str(out)) == 0
        drawn = out.read_bytes(), out.with_suffix(".svg").read_bytes()
        assert drawn[0].startswith(b"\x89PNG")
        assert ElementTree.fromstring(drawn[1]).tag.endswith("svg")
    assert (out.read_bytes(), out.with_suffix(".svg").read_bytes()) == drawn, "the same each time"
    said = capsys.readouterr().out
    assert "no noise: valid 150.0 at epoch 3 of 4 (clean)" in said
    assert r"left out: bad\x1b[31m: " in said, "a name does not steer the terminal"
    assert f"{out.with_suffix('.svg')} and {out}" in said


def test_the_run_that_lacks_is_damaged(tmp_path: Path, capsys: Any) -> None:
    write_run(tmp_path / "clean", CURVE, **ELMAN)
    write_run(tmp_path / "noisy", CURVE, **noisy(0.1))
    (tmp_path / "clean" / "metrics.jsonl").write_text("[1, 2]\n")
    assert in_process("figure", "1", "--runs", str(tmp_path)) == 2
    said = capsys.readouterr()
    assert said.out.startswith("left out: clean: ")
    assert "has no clean run with" in said.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["2"], "The paper has one figure, so its number must be 1, got 2."),
        (["one"], "expected a whole number, got 'one'"),
        (["1", "--runs", "/no/such"], "/no/such does not exist. Name a folder"),
        (["1", "--out", "figure.pdf"], "--out must be a file ending in .svg or .png"),
        (["1", "--out", "/no/such/figure.svg"], "cannot write /no/such/figure.svg"),
    ],
)
def test_bad_input(arguments: list[str], message: str, tmp_path: Path, capsys: Any) -> None:
    write_run(tmp_path / "clean", CURVE, **ELMAN)
    write_run(tmp_path / "noisy", CURVE, **noisy(0.1))
    runs = () if "--runs" in arguments else ("--runs", str(tmp_path))
    assert in_process("figure", *arguments, *runs) == 2
    assert message in capsys.readouterr().err


def test_without_matplotlib(tmp_path: Path) -> None:
    run = noisin("figure", "1", "--runs", str(tmp_path), code="sys.modules['matplotlib'] = None")
    assert run.returncode == 2
    assert "figure 1 needs matplotlib: pip install 'noisin[plot]'" in run.stderr


def test_it_needs_no_torch(tmp_path: Path) -> None:
    write_run(tmp_path / "clean", CURVE, **ELMAN)
    write_run(tmp_path / "noisy", CURVE, **noisy(0.1))
    out = tmp_path / "figure.svg"
    arguments = ("figure", "1", "--runs", str(tmp_path), "--out", str(out))
    run = noisin(*arguments, code="sys.modules['torch'] = None")
    assert run.returncode == 0, run.stderr
    assert out.exists()


@pytest.mark.parametrize(
    ("low", "high"), [(60, 61), (60, 90), (70, 500), (1, 9), (2, 10_000), (1e-3, 1e9), (80, 80.001)]
)
def test_ticks_are_few_and_within(low: float, high: float) -> None:
    found = axes.ticks(low, high)
    assert 2 <= len(found) <= 7
    assert found == sorted(set(found))
    assert low <= found[0] < found[-1] <= high
