"""Locales, terminals and input as they come: one message, nothing that steers the terminal."""

from __future__ import annotations

import io
import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.table import Table
from rich.text import Text

from noisin._util import wording
from noisin.cli import COMMANDS
from noisin.cli.consoles import NARROWEST, STAND_INS, Messages, Results, prepare
from noisin.cli.verify import verify
from tests.cli.conftest import SMALL
from tests.cli.run import in_process
from tests.pairwise import PRODUCTS, table

RESULTS = Path(__file__).parents[2] / "results"
ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.fixture(scope="session")
def latin_1(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A locale of ISO-8859-1, made for these tests."""
    if shutil.which("localedef") is None or not Path("/usr/share/i18n/locales/en_US").exists():
        pytest.skip("needs localedef and its sources, to make a locale of ISO-8859-1")
    folder = tmp_path_factory.mktemp("locales")
    name = "en_US.ISO-8859-1"
    make = ["localedef", "-i", "en_US", "-f", "ISO-8859-1", str(folder / name)]
    subprocess.run(make, check=True, capture_output=True)
    return {"LOCPATH": str(folder), "LC_ALL": name, "PYTHONUTF8": "0"}


def noisin(*arguments: str | bytes, **settings: str) -> tuple[int, bytes]:
    """In a process of its own, with these settings in the environment."""
    command = [sys.executable, "-m", "noisin", *arguments]
    run = subprocess.run(
        command, capture_output=True, env={**os.environ, **settings}, timeout=120, check=False
    )
    said = run.stdout + run.stderr
    assert b"Traceback" not in said, said.decode(errors="replace")
    return run.returncode, said


@pytest.mark.long
def test_a_run_in_an_ascii_locale(text: Path, cache: Path, tmp_path: Path) -> None:
    """The kernel is found by the same key as elsewhere, and nothing is lost on the way."""
    kernels = sorted((cache / "kernels").glob("*.so"))
    arguments = ("--data.name", str(text), *SMALL, "--noise.gamma", "0.5", "--train.epochs", "1")
    code, said = noisin("train", "manual", *arguments, "--out", str(tmp_path), **ASCII)
    assert code == 0, said
    said.decode("ascii")
    assert sorted((cache / "kernels").glob("*.so")) == kernels


def test_a_text_in_a_latin_1_locale(tmp_path: Path, latin_1: dict[str, str]) -> None:
    (tmp_path / "tëxt.txt").write_text("the naïve café\n" * 99, encoding="utf-8")
    code, said = noisin("data", str(tmp_path / "tëxt.txt").encode(), **latin_1)
    assert code == 0, said
    assert "tëxt: 4 words".encode() in said, "the bytes of the name as they were given"


def product(run: Path, text: Path, folder: Path) -> list[tuple[str, ...]]:
    """Every command, with output that is not ASCII where it has any."""
    train = ("--data.name", str(text), *SMALL, "--train.epochs", "1", "--out", str(folder))
    sweep = folder / "tiny.toml"
    sweep.write_text(f'base = "manual"\ndata.name = "{text}"\n[grid]\nnoise.gamma = [0.5]\n')
    return [
        ("--help",),
        ("--version",),
        *((command, "--help") for command in COMMANDS),
        ("train", "manual", *train),
        ("train", "compare", *train),
        ("sweep", str(sweep), *train[2:]),
        ("evaluate", str(run), "--method", "marginal", "--batch-size", "2"),
        ("generate", str(run), "--prompt", "café → naïve"),
        *(
            ("table", str(n), "--runs", str(RESULTS), "--format", f)
            for n in (3, 4, 5)
            for f in ("text", "csv", "latex")
        ),
        ("figure", "1", "--runs", str(RESULTS), "--out", str(folder / "figure.svg")),
        ("report", str(run.parent)),
        ("data", str(text)),
        ("data", "manual", "--json"),
        ("verify", "--json"),
        ("verify",),
    ]


@pytest.mark.skipif(not PRODUCTS, reason="every command in every locale: make stress")
@pytest.mark.parametrize("locale", ["ascii", "latin-1"])
def test_every_command_in_every_locale(
    locale: str, run: Path, text: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    settings = ASCII if locale == "ascii" else request.getfixturevalue("latin_1")
    for arguments in product(run, text, tmp_path):
        code, said = noisin(*(a.encode() for a in arguments), **settings)
        assert code == 0, (arguments, said)
        said.decode(locale)


ENCODINGS = ("ascii", "latin-1")
WITH_OTHER_CHARACTERS = [
    ("--help",),
    ("generate", "{run}", "--prompt", "漢字 → café", "--length", "3"),
    ("evaluate", "{run}", "--method", "arithmetic", "--samples", "2"),
    ("data", "{text}"),
]


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "encoding"),
    [
        *itertools.product(WITH_OTHER_CHARACTERS, ENCODINGS),
        *(
            (("table", n, "--format", f), encoding)
            for n, f, encoding in table("345", ("text", "latex", "csv"), ENCODINGS)
        ),
    ],
)
def test_characters_that_the_terminal_does_not_know(
    arguments: tuple[str, ...],
    encoding: str,
    run: Path,
    text: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = io.TextIOWrapper(buffer := io.BytesIO(), encoding=encoding)  # strict, as it comes
    monkeypatch.setattr(sys, "stdout", stream)
    places = {"run": run, "text": text}
    if arguments[0] == "table":
        arguments = (*arguments, "--runs", str(RESULTS))
    assert in_process(*(a.format(**places) for a in arguments)) == 0
    stream.flush()
    shown = buffer.getvalue().decode(encoding)
    assert shown
    if "arithmetic" in arguments:
        assert ("+-" if encoding == "ascii" else "±") in shown
    if "generate" in arguments:
        assert shown.startswith("?? -> caf? " if encoding == "ascii" else "?? -> café ")


def test_all_that_we_print_has_a_stand_in() -> None:
    """But for letters, which have none: what our own tables and claims are made of."""
    assert all(key and value.isascii() for key, value in STAND_INS.items())
    assert set("±×–γ→≠½²…·") <= STAND_INS.keys()
    assert (verify.__doc__ or "").isascii()


SIZES = ("0", "1", "2", "5", "10", "-1", "", "wide", "²", "1e3", "99999999999", "9" * 5000)


@pytest.mark.long
def test_help_on_terminals_of_any_width() -> None:
    """In one process, for it takes long to load; a console of one column never came to an end."""
    calls = [("data", size) for size in SIZES] + [(command, "1") for command in COMMANDS]
    code = f"""
import io, os, sys
from noisin import cli
for command, size in {calls}:
    os.environ["COLUMNS"] = os.environ["LINES"] = size
    out, sys.stdout = sys.stdout, io.StringIO()
    try:
        cli.main([command, "--help"])
    except SystemExit as exit:
        assert not exit.code, (command, size)
    shown, sys.stdout = sys.stdout.getvalue(), out
    assert f"Usage: noisin {{command}}" in shown and "…" not in shown, (command, size)
    assert max(map(len, shown.splitlines())) <= 1000
"""
    subprocess.run([sys.executable, "-c", code], timeout=100, check=True)


def test_a_terminal_that_is_too_narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((1, 1)))
    for name in ("COLUMNS", "LINES"):  # which would count instead
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for console in (Results(), Messages()):
        assert console.width == console.options.max_width == NARROWEST
        console.width = 160
        assert console.width == 160


ESCAPES = "\x1b[31m\x1b]0;x\x07\r\b\x9b2J\u202e\ud800"
NASTY = {
    "long": "x" * 5000,
    "long, of words": "x y " * 1250,
    "of many lines": "x\n" * 2500,
    "that forges": "x\nnoisin: all is well",
    "that steers": ESCAPES,
    "long, that steers": "\x1b[2J" * 1000,
}
FEW_NASTY = ("long, of words", "that forges", "long, that steers")  # the others are like them
PLACES = [
    *("{}", "train {}", "train {}.toml", "train --{}", "train manual --seed {}"),
    *("train manual --data.name {}", "train manual --noise.family {}", "train manual --{} 3"),
    *("train manual --train.lr {}", "train manual --data.folder {}", "train manual {}"),
    *("evaluate {}", "evaluate x --split {}", "evaluate x --temperature {}", "generate {}"),
    *("generate x --top-k {}", "table {}", "table 3 --runs {}", "table 3 --format {}"),
    *("figure 1 --runs {}", "figure {}", "report {}", "report . --out {}", "data {}"),
    *("data ptb --data {}", "data a {}", "verify --plot {}", "verify --seed {}", "sweep {}"),
    *("sweep manual-families --jobs {}", "sweep manual-families --storage {} --jobs 0"),
]


@pytest.mark.parametrize("nasty", NASTY if PRODUCTS else FEW_NASTY)
def test_input_that_a_message_quotes(
    nasty: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    for place in PLACES:
        code = in_process(*(part.replace("{}", NASTY[nasty]) for part in place.split(" ")))
        said = capsys.readouterr()
        assert (code, said.out) == (2, ""), place
        first, *others = said.err.splitlines()
        assert first.startswith("noisin: "), place
        assert all(line.startswith("  ") for line in others), "no line that seems to be our own"
        assert all(line.isprintable() for line in (first, *others)), place
        assert len(first) < 700, place
        assert len(said.err) < 3000, place


NAMES = ["esc\x1b[31mname", "bidi\u202ename", "new\nline", os.fsdecode(b"\xffname")]


def test_names_of_runs(run: Path, tmp_path: Path, capsys: Any) -> None:
    """Names of folders, which tables, pages and messages tell."""
    for name in NAMES:
        shutil.copytree(run, tmp_path / "runs" / name)
        assert in_process("evaluate", str(tmp_path / "runs" / name), "--json") == 0
        assert json.loads(capsys.readouterr().out)["run"].endswith(name)
    commands = [
        ["table", "3", "--runs", "."],
        ["table", "3", "--runs", ".", "--format", "csv"],
        ["report", "."],
        ["generate", NAMES[0], "--prompt", "the \x1b[2J"],
        ["evaluate", NAMES[0]],
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path / "runs")
        for command in commands:
            assert in_process(*command) == 0
            said = capsys.readouterr()
            for line in (said.out + said.err).split("\n"):
                assert wording.printable(line) == line
    page = (tmp_path / "runs" / "report.html").read_text(encoding="utf-8")
    assert r"\udcffname" in page


@pytest.mark.parametrize("console", [Results, Messages])
def test_what_a_console_shows(console: type[Results], capsys: Any) -> None:
    table = Table("a", ESCAPES, box=None)
    table.add_row(Text(ESCAPES), ESCAPES)
    for shown in (ESCAPES, Text(ESCAPES), table):
        console().print(shown)
    said = "".join(capsys.readouterr())
    assert said.count(r"\x1b[31m") == 5
    assert all(line.isprintable() for line in said.split("\n"))


def test_other_errors_of_encoding_are_raised() -> None:
    prepare()
    with pytest.raises(UnicodeDecodeError):
        b"\xff".decode("ascii", errors="noisin")
