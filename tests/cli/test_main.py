"""What all commands share: help, exit codes, one message for bad input."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import time
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from noisin import cli
from noisin.analysis import claims
from noisin.cli import COMMANDS
from noisin.training.record import RunRecord
from tests.cli.conftest import SMALL
from tests.cli.run import forked, in_process, noisin


def test_help_and_version_need_no_torch() -> None:
    """One after another in one process, which takes long to start."""
    calls = [[], ["--version"], *([command, "--help"] for command in COMMANDS)]
    code = f"""
sys.modules["torch"] = None
from noisin import cli
for arguments in {calls}:
    try:
        cli.main(arguments)
    except SystemExit as exit:
        assert not exit.code, arguments
    print("end of", arguments)
"""
    run = noisin("--version", code=code)
    assert run.returncode == 0, run.stderr
    assert run.stderr == ""
    shown = run.stdout
    for arguments in calls:
        said, end, shown = shown.partition(f"end of {arguments}\n")
        assert said, arguments
        assert end, arguments


@pytest.mark.parametrize("command", COMMANDS)
def test_help_leaves_out_no_word(command: str, capsys: Any) -> None:
    """Markdown takes <unk> for a tag and shows nothing."""
    assert in_process(command, "--help") == 0
    assert not re.search(r"\s[,.:;](\s|$)", capsys.readouterr().out)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_is_listed_with_the_beginning_of_its_help(command: str) -> None:
    own = getattr(import_module(f"noisin.cli.{command}"), command)
    assert " ".join(own.__doc__.split("\n\n")[0].split()) == COMMANDS[command]


def test_help_appears_at_once() -> None:
    """The list of all commands imports none of them; one of them imports no other."""
    code = """
import atexit
atexit.register(lambda: print("loaded:", *(m for m in sys.modules if m.startswith("noisin.cli."))))
"""

    def loaded(*arguments: str) -> set[str]:
        shown = noisin(*arguments, code=code).stdout.splitlines()[-1]
        return {name.rpartition(".")[2] for name in shown.split()[1:]}

    assert loaded("--help").isdisjoint(COMMANDS)
    assert loaded("data", "--help") & {*COMMANDS} == {"data"}


def test_what_the_library_logs_is_shown(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """Such as that the kernel is compiled, which takes a while."""

    def verify(*_: Any) -> list[Any]:
        logging.getLogger("noisin.kernels").info("Compiling [it].")
        logging.getLogger("noisin.kernels").debug("not this")
        return []

    monkeypatch.setattr(claims, "verify", verify)
    assert in_process("verify") == 0
    assert capsys.readouterr().err == "noisin: Compiling [it].\n"
    logging.getLogger("noisin.kernels").info("and not afterwards")
    assert capsys.readouterr().err == ""


def test_help_says_what_there_is(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert in_process("--help") == 0
    shown = capsys.readouterr().out
    places = [shown.index(f"│ {command} ") for command in COMMANDS]
    assert places == sorted(places)
    assert "Train a model of text, music or series." in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], 'Did you mean "train"'),
        (["--nonsense"], "--nonsense"),
        (["train", "ptb-smal"], "Did you mean 'ptb-small'?"),
        (["train", "no-such"], "Available: bikes, compare, ett, jsb, manual, musedata"),
        (["train", "no-such.toml"], "no-such.toml: cannot be read: No such file"),
        (["train", "--train.epoch", "3"], "Did you mean --train.epochs?"),
        (["train", "manual", "--train.epochs", "6.5"], "train.epochs must be a whole number"),
        (["train", "manual", "--train.epochs", "0"], "train.epochs must be 1 or more, got 0"),
        (["train", "manual", "--train.lr", "nan"], "train.lr must be a number, got 'nan'"),
        (["train", "manual", "--noise.family", "gausian"], "Did you mean gaussian?"),
        (["train", "manual", "--noise.family", "gamma"], "noise needs gamma or std"),
        (["train", "manual", "--noise.gamma", "1", "--noise.std", "1"], "got both"),
        (["train", "manual", "--model.tied", "yes"], '"true", "false"'),
        (["train", "manual", "--noise.gamma", "1.1", "--noise.family", "bernoulli"], "(0, 1]"),
        (["train", "--noise.gamma", "1.1"], "compare: noise is what its runs differ in"),
        (["train", "--model.dropout.input", "0.1"], "model.dropout is what its runs differ in"),
        (["train", "manual", "--data.name", "/no/such"], "/no/such: there is no such corpus"),
        (["train", "ptb-small", "--data", "/no/such"], "/no/such: is not a folder"),
        (
            ["train", "manual", "--data", "/some"],
            "the corpus is manual. To load the text",
        ),
        (["data", "--data", "/some"], "the corpus is manual"),
        (["train", "manual", "manual"], "manual"),
        (["train", "manual", "--seed", "-1"], "seed must be 0 or more"),
        (["evaluate"], "requires an argument"),
        (["evaluate", "/no/such"], "/no/such is not a run"),
        (["evaluate", "/no/such", "--samples", "3"], "--samples is only for methods that draw"),
        (["evaluate", "/no/such", "--split", "tests"], 'Did you mean "test"?'),
        (["evaluate", "/no/such", "--seed", "-1"], "--seed must be 0 or more"),
        (["evaluate", "/no/such", "--temperature", "hot"], "expected a number, got 'hot'"),
        (["evaluate", "/no/such", "--temperature", "1e999"], "expected a finite number"),
        (["generate", "/no/such"], "/no/such is not a run"),
        (["generate", "/no/such", "--top-k", "many"], "expected a whole number, got 'many'"),
        (["data", "ptbb"], "Did you mean 'ptb'?"),
        (["data", "ptb", "--data", "/no/such"], "/no/such: is not a folder"),
        (["data", "a", "b"], "b"),
        (["collect", "/no/such", "--out", __file__], f"{__file__} is not a folder. Choose another"),
    ],
)
def test_bad_input(arguments: list[str], message: str, capsys: Any) -> None:
    assert in_process(*arguments) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.err.startswith("noisin: ")
    assert printed.err.count("noisin: ") == 1, "one message"
    assert "Traceback" not in printed.err
    assert printed.out == ""


@pytest.mark.parametrize(
    "arguments", [("--help",), ("train", "--help"), ("data",), ("data", "--json")]
)
def test_a_closed_pipe_is_no_error(arguments: tuple[str, ...], text: Path) -> None:
    """As with ``noisin data | head -c 0``, before a word is printed."""
    more = (str(text),) if "data" in arguments else ()
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "noisin", *arguments, *more]
    run = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (run.returncode, run.stderr) == (0, "")


def test_work_goes_on_when_nobody_reads_of_its_progress(text: Path, tmp_path: Path) -> None:
    """As with ``noisin train 2>&1 | head``: the run is completed, and its records are there."""
    arguments = ("--data.name", str(text), *SMALL, "--train.epochs", "2", "--out", str(tmp_path))
    reader, writer = os.pipe()
    os.close(reader)
    run = forked("train", "manual", *arguments, stdout=writer, stderr=writer)
    os.close(writer)
    run.join()
    assert run.exitcode == 0
    (folder,) = tmp_path.iterdir()
    summary = RunRecord(folder).summary
    assert summary is not None
    assert summary["epochs"] == 2


@pytest.mark.parametrize("closed", [">&-", "2>&-", "2>/dev/full"])
@pytest.mark.parametrize(("name", "code"), [("{text}", 0), ("/no/such", 2)])
def test_streams_that_are_not_there(closed: str, name: str, code: int, text: Path) -> None:
    """The exit code says it all the same, and nobody is told of a traceback."""
    command = f"{sys.executable} -m noisin data {name.format(text=text)} {closed}"
    run = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert run.returncode == code
    assert "Traceback" not in run.stderr + run.stdout
    assert "noisin: " not in run.stdout


def test_a_warning_is_a_line(text: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setenv("NOISIN_CACHE", "/proc/no")
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        assert in_process("data", str(text)) == 0
    printed = capsys.readouterr().err
    assert printed.startswith("noisin: The cache cannot be used")
    assert printed.count("\n") == 1


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("--model.hidden_size 999999", "Not enough memory. Use a smaller model"),
        ("--model.hidden_size 99999999999", "model.hidden_size must be 1000000 or less"),
        ("--model.num_layers 99999999999", "model.num_layers must be 1000 or less"),
        ("--train.batch_size 99999999999", "train.batch_size must be 1000000 or less"),
        ("--train.batch_size 99999", "tokens are too few for 99999 columns"),
        ("--train.eval_batch_size 9999", "tokens are too few for 9999 columns"),
    ],
)
def test_too_large(setting: str, message: str, text: Path, tmp_path: Path, capsys: Any) -> None:
    arguments = ("--data.name", str(text), "--out", str(tmp_path), "--train.epochs", "1")
    if "batch_size" not in setting:
        arguments += ("--train.batch_size", "4")
    assert in_process("train", "ptb-small", *arguments, *setting.split()) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals(number: int, code: int, text: Path, tmp_path: Path) -> None:
    """The run is saved, says so, and goes on with the same command."""
    arguments = ("train", "manual", "--data.name", str(text), "--model.hidden_size", "8")
    arguments += ("--train.batch_size", "4", "--threads", "1", "--out", str(tmp_path))
    reader, writer = os.pipe()
    run = forked(*arguments, "--train.epochs", "100000", stderr=writer)
    os.close(writer)
    with open(reader) as stderr:
        assert stderr.readline().endswith("cpu, 1 thread; 100000 epochs\n")
        assert "epoch  1" in stderr.readline()
        time.sleep(0.1)
        os.kill(run.pid or 0, number)
        said = stderr.read()
    run.join()
    assert run.exitcode == code
    assert said.splitlines()[-1].startswith("noisin: stopped and saved in")
    (folder,) = tmp_path.iterdir()
    done = len((folder / "metrics.jsonl").read_text().splitlines())
    assert in_process(*arguments, "--train.epochs", str(done + 2)) == 0
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == done + 2


def test_ctrl_c_while_it_loads() -> None:
    finder = """
class Pressed:
    def find_spec(name, *_):
        if name == "cyclopts":
            raise KeyboardInterrupt
sys.meta_path.insert(0, Pressed)
"""
    run = noisin("--version", code=finder)
    assert (run.returncode, run.stdout, run.stderr) == (130, "", "noisin: interrupted.\n")


def test_what_diverges_exits_with_1(text: Path, tmp_path: Path, capsys: Any) -> None:
    arguments = ("--data.name", str(text), "--model.hidden_size", "8", "--train.clip", "0")
    arguments += ("--train.batch_size", "4", "--train.lr", "1e39", "--out", str(tmp_path))
    assert in_process("train", "manual", *arguments) == cli.FAILED
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("noisin: training: the loss is not finite at step")
