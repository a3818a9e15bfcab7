"""A record damaged anywhere: every command either works or says what is wrong, and changes nothing.

`make test` draws some of all damages for each command, `make stress` many times as many.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from noisin._util.files import sha256
from noisin.errors import NoisinError
from noisin.experiments.sweep.outcome import outcome
from noisin.training import RunRecord, evaluations
from tests.cli.conftest import settings
from tests.cli.run import in_process
from tests.damages import AS_FILES, OBJECTS, all_damages, sample

SOME = {"evaluate": 14, "generate": 20, "table": 18, "report": 3, "figure": 8, "train": 4}
SOME |= {"resume": 6, "sweep": 25}
TIMES = int(os.environ.get("NOISIN_DAMAGES", "1"))  # `make stress` asks for more of each
SECONDS = 60  # in which a command has to end

Command = Callable[[Path], int]  # takes the folder of a run


def commands(run: Path, text: Path, out: Path) -> dict[str, Command]:
    """All that read a record, by name, for copies of a run."""
    config = RunRecord(run).config

    def train(copy: Path, epochs: int) -> int:
        return in_process("train", *settings(text, epochs), "--out", str(copy.parent))

    def sweep(copy: Path) -> int:
        """What a sweep reads of a run, whose settings it knows."""
        try:
            outcome(copy, config, "now", pruning=True)
        except NoisinError as error:
            print(f"noisin: {error}", file=sys.stderr)
            return 2
        return 0

    page, picture = str(out / "report.html"), str(out / "figure.svg")
    return {
        "evaluate": lambda copy: in_process("evaluate", str(copy)),
        "generate": lambda copy: in_process("generate", str(copy), "--length", "5"),
        "table": lambda copy: in_process("table", "3", "--runs", str(copy.parent)),
        "report": lambda copy: in_process("report", str(copy.parent), "--out", page),
        "figure": lambda copy: in_process(
            "figure", "1", "--runs", str(copy.parent), "--out", picture
        ),
        "train": lambda copy: train(copy, 2),
        "resume": lambda copy: train(copy, 3),
        "sweep": sweep,
    }


WRITTEN = {".lock", "comparison.json", "learning-curves.svg", "learning-curves.png"}
WRITTEN |= {evaluations.NAME}


def snapshot(folder: Path) -> dict[str, str]:
    """What is in a folder, but for what commands write beside the record."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.name not in WRITTEN:
            plain = path.is_file() and path.stat().st_size < 2**30
            found[str(path.relative_to(folder))] = sha256(path.read_bytes()) if plain else ""
    return found


@contextmanager
def in_time(case: str) -> Iterator[None]:
    """Fail where a command waits for what will never come."""

    def late(*_: Any) -> None:
        raise TimeoutError(f"{case}: still at work after {SECONDS} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.long
@pytest.mark.parametrize("command", SOME)
def test_damaged_records(
    command: str, run: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = sample(list(all_damages(run)), TIMES * SOME[command], seed=command)
    act = commands(run, text, tmp_path)[command]
    if command in ("evaluate", "generate"):
        assert act(run) == 0
    expected = capsys.readouterr().out
    failures = []
    for name, damage in cases:
        copy = tmp_path / "runs" / run.name
        shutil.copytree(run, copy)
        damage(copy)
        before = snapshot(copy)
        try:
            with in_time(name), warnings.catch_warnings():
                warnings.simplefilter("always")
                code = act(copy)
        except Exception as error:
            failures.append(f"{name}: {type(error).__name__}: {error}"[:300])
            capsys.readouterr()
        else:
            said = capsys.readouterr()
            failures += [f"{name}: {what}"[:300] for what in _wrong(command, code, said, expected)]
            if (code == 2 or command != "resume") and snapshot(copy) != before:
                failures.append(f"{name}: the record was changed (exit code {code}): {said.err}")
        shutil.rmtree(tmp_path / "runs")
    assert not failures, f"{len(failures)} of {len(cases)}:\n" + "\n".join(failures[:40])


def _wrong(command: str, code: int, said: Any, expected: str) -> Iterator[str]:
    if code not in (0, 2):
        yield f"exit code {code}"
    if "Traceback" in said.err or "Traceback" in said.out:
        yield f"a traceback: {said.err[-200:]}"
    if code == 2 and said.err.count("noisin: ") == 0:
        yield "no message"
    if len(said.err) > 5000:
        yield f"a message of {len(said.err)} characters"
    silent = code == 0 and "noisin: " not in said.err
    if silent and command in ("evaluate", "generate") and said.out != expected:
        yield f"another result, without a word: {said.out}"


@pytest.mark.parametrize("kind", ["a FIFO", "a socket", "a device"])
@pytest.mark.parametrize("name", [*OBJECTS, "metrics.jsonl", "vocabulary.json"])
def test_what_is_not_a_file_is_named(
    kind: str, name: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = shutil.copytree(run, tmp_path / "runs" / "run")
    AS_FILES[kind](name, copy)
    command = ("evaluate",) if name in ("vocabulary.json", "config.json") else ("table", "3")
    place = (str(copy),) if command == ("evaluate",) else ("--runs", str(copy.parent))
    with in_time(kind):
        in_process(*command, *place)
    said = capsys.readouterr()
    assert f"{name}" in said.out + said.err
    assert f"Expected a regular file, got {kind}" in said.out + said.err


@pytest.mark.parametrize(
    ("name", "command", "message"),
    [
        ("summary.json best = gone", "train", "summary.json is damaged: best is missing"),
        ("summary.json best.weights = gone", "sweep", "best.weights is missing"),
        ("metrics.jsonl line 0  = []", "train", "line 1 must be of epoch 1, got []"),
        ("metrics.jsonl line 0 valid = gone", "train", "line 1: valid is missing"),
        ("metrics.jsonl line 0 valid = 'x'", "train", "valid must be 0 or more, or null"),
        ("environment.json data = []", "evaluate", "data must be a JSON object, got []"),
        ("vocabulary.json swapped", "generate", "is not the vocabulary that the model was"),
        ("BEST/weights.safetensors with NaN", "evaluate", "its weights bias are not all finite"),
        ("BEST/weights.safetensors of float64", "evaluate", "are torch.float64, the model's"),
        ("BEST/average.safetensors of int64", "resume", "are torch.int64, the model's"),
        ("NEWEST/manifest.json best = {}", "generate", "does not name the best checkpoint of the"),
        ("BEST/state.pt  = []", "generate", "its state is not a dict of values by name"),
        ("BEST/state.pt schedule = gone", "evaluate", "schedule is missing"),
        ("BEST/state.pt schedule.lr = 'x'", "resume", "its schedule (learning rate, best epochs"),
        ("BEST/state.pt sums = None", "resume", "sums must be a JSON object, got None"),
        ("BEST/state.pt optimizer = {}", "resume", "its optimizer has different settings"),
    ],
)
def test_what_is_wrong_is_named(
    name: str,
    command: str,
    message: str,
    run: Path,
    text: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Damages that hashes and JSON do not show."""
    summary = RunRecord(run).summary
    assert summary is not None
    best = f"checkpoints/{summary['best']['checkpoint']:06d}"
    copy = shutil.copytree(run, tmp_path / "runs" / run.name)
    newest = f"checkpoints/{max(path.name for path in (run / 'checkpoints').iterdir())}"
    dict(all_damages(run))[name.replace("BEST", best).replace("NEWEST", newest)](copy)
    before = snapshot(copy)
    assert commands(run, text, tmp_path)[command](copy) == 2
    assert message in capsys.readouterr().err
    assert snapshot(copy) == before
