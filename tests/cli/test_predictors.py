"""``noisin evaluate`` with a cache, dynamic evaluation and tuning; and its records."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from noisin import data
from noisin.cli.meter import Meter
from noisin.experiments.records import read_run
from noisin.tasks import Text
from noisin.training import RunRecord, evaluations, predictors, tuning
from noisin.training.load import restore
from noisin.training.predictors import Cache, Clean, Dynamic, Rates, gradient_statistics
from tests.cli.run import in_process
from tests.cli.test_evaluate import evaluated

CACHE = ("--cache.window", "30", "--cache.theta", "0.4", "--cache.lambda", "0.2")
RATES = ("--dynamic.lr", "0.01", "--dynamic.decay", "0.05", "--dynamic.epsilon", "0.001")


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    """A copy of the run, to write into."""
    (run / "evaluations.jsonl").unlink(missing_ok=True)
    return Path(shutil.copytree(run, tmp_path / "run"))


def statistics(run: Path, text: Path, segment: int = 5) -> Any:
    corpus = data.load(text)
    columns = max(1, min(100, len(corpus.train) // 10))
    batches = data.Windows(corpus.train, columns, 70).epoch(0)
    return gradient_statistics(restore(RunRecord(run)).model, batches, segment)


def test_cache_and_dynamic_evaluation(copy: Path, text: Path, capsys: Any) -> None:
    told = evaluated(copy, capsys, *CACHE, *RATES, "--temperature", "1.2")
    assert told["cache"] == {"window": 30, "theta": 0.4, "lambda": 0.2}
    assert told["dynamic"] == {
        "lr": 0.01,
        "decay": 0.05,
        "epsilon": 0.001,
        "segment": 5,
        "normalisation": "krause",
    }
    assert (told["batch_size"], told["temperature"]) == (1, 1.2)
    model = restore(RunRecord(copy)).model
    inner = Cache(Clean(model, 1.2), 30, 0.4, 0.2)
    dynamic = Dynamic(inner, Rates(0.01, 0.05, 0.001), statistics(copy, text))
    task = Text(data.load(text), batch_size=4, eval_batch_size=1)
    expected = predictors.evaluate(dynamic, task.batches("test"))
    assert told["nats"] == pytest.approx(expected.nats, rel=1e-6)
    assert told["count"] == expected.count
    with_static = evaluated(copy, capsys, "--batch-size", "1")["nats"]
    assert told["nats"] != pytest.approx(with_static, rel=1e-4)


def test_defaults_and_the_sentence(copy: Path, capsys: Any) -> None:
    assert in_process("evaluate", str(copy), "--cache", "--dynamic") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith("test perplexity ")
    assert "exact, cache (window " in shown, "as many words as there are"
    assert "theta 0.6 lambda 0.1)" in shown
    assert "dynamic (lr 5e-05 decay 0.002 epsilon 2e-05 segment 5 normalisation krause); " in shown
    assert "; batch 1, " in shown
    assert in_process("evaluate", str(copy), "--method", "monte-carlo", "--power", "0") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "(monte-carlo, 10 samples, masks of a window, power 0; " in shown


@pytest.mark.parametrize("name", ["mos", "lamb", "sgd"])
def test_other_normalisations(name: str, copy: Path, capsys: Any) -> None:
    """The defaults are the same rates, converted; those of SGD need no statistics."""
    told = evaluated(copy, capsys, "--dynamic.normalisation", name)
    assert told["dynamic"]["normalisation"] == name
    saved = list(copy.glob("gradients-*"))
    assert len(saved) == (0 if name == "sgd" else 1)
    if name != "sgd":
        usual = evaluated(copy, capsys, "--dynamic")
        assert told["nats"] == pytest.approx(usual["nats"], rel=1e-6)
        assert told["dynamic"]["decay"] != usual["dynamic"]["decay"]


def test_the_default_decay_of_a_long_segment_is_below_one(copy: Path, capsys: Any) -> None:
    for name in ("krause", "mos"):
        flags = "--dynamic.normalisation", name, "--dynamic.segment", "5000"
        assert evaluated(copy, capsys, *flags)["dynamic"]["decay"] == 0.5


# The statistics of the gradients are kept


def test_statistics_are_computed_once_for_the_same_weights(
    copy: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = evaluated(copy, capsys, "--dynamic")
    (path,) = copy.glob("gradients-*.safetensors")
    saved = sys.modules["noisin.training.predictors.saved"]
    with monkeypatch.context() as patch:
        patch.setattr(saved, "gradient_statistics", lambda *_: pytest.fail("computed again"))
        assert evaluated(copy, capsys, "--dynamic") == first
    evaluated(copy, capsys, "--dynamic", "--weights", "raw", "--checkpoint", "last")
    evaluated(copy, capsys, "--dynamic.segment", "7")
    assert len(list(copy.glob("gradients-*.safetensors"))) == 3
    for damage in ("flip", "cut", "empty"):
        content = bytearray(path.read_bytes())
        content[-3] ^= 1
        path.write_bytes({"flip": bytes(content), "cut": bytes(content[:-9]), "empty": b""}[damage])
        assert in_process("evaluate", str(copy), "--json", "--dynamic") == 0
        printed = capsys.readouterr()
        assert json.loads(printed.out) == first
        assert "cannot be used and is computed again" in printed.err


# Tuning


def test_tuning_looks_at_valid_alone(
    copy: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The test split raises until the search is over, and is read twice: to count, to score."""
    asked: list[str] = []
    batches, over = Text.batches, False
    search = tuning.search

    def watched(self: Text, split: Any, **options: Any) -> Any:
        asked.append(split)
        if split == "test" and not over:
            pytest.fail("tuning reads the test split")
        return batches(self, split, **options)

    def searched(*given: Any) -> Any:
        nonlocal over
        trials = search(*given)
        over = True
        return trials

    monkeypatch.setattr(Text, "batches", watched)
    monkeypatch.setattr(tuning, "search", searched)
    told = evaluated(
        copy, capsys, "--tune.budget", "5", "--tune.tokens", "40", *CACHE[:4], "--dynamic"
    )
    assert asked.count("test") == 2
    trials = told["tuned"]["trials"]
    assert len(trials) == 5
    assert told["tuned"]["tokens"] == 40
    assert {trial["cache"]["window"] for trial in trials} == {30}, "it was given"
    assert {trial["cache"]["theta"] for trial in trials} == {0.4}
    best = min(trials, key=lambda trial: trial["nats"])
    assert (told["cache"], told["dynamic"]) == (best["cache"], best["dynamic"])
    (line,) = evaluations.read(copy)
    assert line["tuned"]["trials"] == trials
    settings = ("--cache.lambda", str(told["cache"]["lambda"]), *CACHE[:4], "--dynamic")
    again = evaluated(copy, capsys, *settings)
    assert again["nats"] == told["nats"]


def test_the_table_of_trials(copy: Path, capsys: Any) -> None:
    assert in_process("evaluate", str(copy), "--tune", "--tune.budget", "3") == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split() == ["temperature", "valid", "perplexity"]
    assert [line.split()[0] for line in shown[1:3]] == ["1", "1.05"]
    assert sum(line.rstrip().endswith("*") for line in shown) == 1
    assert "best of 3 on 180 words of valid" in " ".join(" ".join(shown).split())


def test_the_power_of_a_mean_is_tuned(copy: Path, capsys: Any) -> None:
    several = "--method", "monte-carlo", "--samples", "3", "--tune", "--tune.budget", "9"
    told = evaluated(copy, capsys, *several)
    trials = told["tuned"]["trials"]
    assert {trial["power"] for trial in trials} >= {0.75, 1.0}
    assert told["power"] == min(trials, key=lambda trial: trial["nats"])["power"]
    given = evaluated(copy, capsys, *several, "--power", "0.5")
    assert {trial["power"] for trial in given["tuned"]["trials"]} == {0.5}


# Records


def test_every_evaluation_is_recorded(copy: Path, capsys: Any) -> None:
    static = evaluated(copy, capsys)
    cached = evaluated(copy, capsys, "--cache")
    evaluated(copy, capsys, "--cache", "--split", "valid")
    evaluated(copy, capsys, "--checkpoint", "last", "--weights", "raw")
    lines = evaluations.read(copy)
    assert [line["split"] for line in lines] == ["test", "test", "valid", "test"]
    for line, told in zip(lines, (static, cached), strict=False):
        assert line.pop("seconds") > 0
        assert line.pop("seed") == 1111
        assert {"run": str(copy), **line} == told
    run = read_run(copy)
    assert len(run.evaluations) == 4
    expected = {"static": static["perplexity"], "cache": cached["perplexity"]}
    assert run.evaluated() == pytest.approx(expected)
    assert run.evaluated("valid").keys() == {"cache"}


@pytest.mark.parametrize("damage", ["{", "[]", "{}", '{"split": "test"}', "\xff"])
def test_a_damaged_file_of_evaluations_is_one_message(damage: str, copy: Path, capsys: Any) -> None:
    evaluated(copy, capsys)
    path = copy / evaluations.NAME
    content = path.read_bytes() + damage.encode("latin-1")
    path.write_bytes(content)
    assert in_process("evaluate", str(copy)) == 2
    printed = capsys.readouterr()
    assert f"{path} is damaged: line 2: " in printed.err
    assert printed.out == ""
    assert path.read_bytes() == content, "nothing of it is lost"


def test_a_line_without_an_end_is_kept(copy: Path, capsys: Any) -> None:
    evaluated(copy, capsys)
    path = copy / evaluations.NAME
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    evaluated(copy, capsys)
    assert len(evaluations.read(copy)) == 2


def test_where_nothing_can_be_written_the_score_is_still_told(
    copy: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (copy / evaluations.NAME).touch()

    def refuse(*_: Any) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(evaluations, "open_regular", refuse)
    assert in_process("evaluate", str(copy)) == 0
    printed = capsys.readouterr()
    assert printed.out.startswith("test perplexity")
    assert "The evaluation is not recorded: cannot write" in printed.err


# Bad input


def test_rates_that_diverge_are_named(run: Path, capsys: Any) -> None:
    settings = "--dynamic.normalisation", "sgd", "--dynamic.lr", "1e30"
    assert in_process("evaluate", str(run), *settings) == 0
    assert "diverged: with --dynamic.lr 1e+30 the perplexity" in capsys.readouterr().err
    assert in_process("evaluate", str(run), "--dynamic.normalisation", "sgd") == 0
    assert "diverged" not in capsys.readouterr().err


def test_a_run_is_evaluated_with_its_number_of_threads(
    run: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: list[int] = []
    monkeypatch.setattr("torch.get_num_threads", lambda: 3)
    monkeypatch.setattr("torch.set_num_threads", used.append)
    assert RunRecord(run).threads == 1
    evaluated(run, capsys)
    assert used == [1, 3]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--cache.window 9999", "--cache.window 9999 is larger than the text: test has "),
        ("--cache.window 0", "window must be a whole number, 1 or more, got 0"),
        ("--cache.lambda 1", "lambda_ must lie in [0, 1), got 1.0"),
        ("--cache.theta -1", "theta must be a finite number, 0 or more"),
        ("--cache --method arithmetic", "mixes samples that have one each. Use --method exact"),
        ("--dynamic --method monte-carlo", "mixes samples that have one each"),
        ("--dynamic.segment 0", "segment must be a whole number, 1 or more, got 0"),
        ("--dynamic.decay 1", "decay must lie in [0, 1), got 1.0"),
        ("--dynamic.lr -1", "lr must be a finite number, 0 or more"),
        ("--dynamic.epsilon 0", "epsilon must be a finite number above 0"),
        ("--dynamic.normalisation adam", "adam"),
        ("--tune.budget 0", "--tune.budget must be 1 or more, got 0"),
        ("--tune.tokens -1", "--tune.tokens must be 1 or more, got -1"),
        ("--tune --temperature 1", "all settings are given, so there is nothing to tune"),
        ("--masks pass", "--masks and --power are for --method monte-carlo"),
        ("--method monte-carlo --masks pass", "draws a new one for each step or window. Use m"),
        ("--method monte-carlo --power 3", "power must lie in [0, 1], got 3"),
        ("--cache.size 3", "--cache.size"),
        ("--cache yes", "yes"),
    ],
)
def test_bad_values(arguments: str, message: str, run: Path, capsys: Any) -> None:
    assert in_process("evaluate", str(run), *arguments.split()) == 2
    printed = capsys.readouterr()
    assert message in printed.err
    assert printed.out == ""
    assert not list(run.glob("gradients-*")), "refused before the work"


def test_training_data_that_is_absent(copy: Path, text: Path, tmp_path: Path, capsys: Any) -> None:
    text.rename(tmp_path / "moved")
    try:
        assert in_process("evaluate", str(copy), "--dynamic") == 2
        assert "there is no such corpus" in capsys.readouterr().err
        assert not list(copy.glob("gradients-*"))
        assert evaluated(copy, capsys, "--dynamic", "--data", str(tmp_path / "moved"))["dynamic"]
    finally:
        (tmp_path / "moved").rename(text)


# Progress, and Ctrl-C


def test_the_meter(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from rich.console import Console

    from noisin.cli import meter

    with Meter("test", 100, "tokens") as plain:
        plain.show(50, "perplexity 82.1")
        assert capsys.readouterr().err == "", "a line a minute"
        monkeypatch.setattr(meter, "QUIET", -1.0)
        plain.show(50, "perplexity 82.1")
    printed = capsys.readouterr().err
    assert printed.startswith("test  50%  perplexity 82.1  ")
    assert printed.rstrip().endswith("0:00 left")
    with Meter("test", 0, "tokens", Console(force_terminal=True, stderr=True)) as bar:
        bar.show(0)
        bar.show(1, "perplexity 82.1")
    assert "perplexity 82.1" in capsys.readouterr().err


def test_ctrl_c_ends_with_one_line(copy: Path) -> None:
    """While weights are adapted: a segment of one word, a thousand times."""
    code = (
        "import os, signal, sys\n"
        "from noisin.training.predictors import dynamic\n"
        "update = dynamic.Dynamic._update\n"
        "def interrupted(self, *given):\n"
        "    update(self, *given)\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "dynamic.Dynamic._update = interrupted\n"
        "from noisin.__main__ import main; main()"
    )
    arguments = ["evaluate", str(copy), "--dynamic.normalisation", "sgd"]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "noisin: interrupted.\n")
    assert not (copy / evaluations.NAME).exists()
