"""``noisin evaluate`` and ``noisin generate``: what they measure is what the library does."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from noisin import data
from noisin.tasks import Text
from noisin.training import RunRecord, evaluations, predictors
from noisin.training.load import restore
from tests.cli.conftest import settings
from tests.cli.run import in_process


def evaluated(run: Path, capsys: Any, *arguments: str) -> dict[str, Any]:
    assert in_process("evaluate", str(run), "--json", *arguments) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


def test_exact(run: Path, text: Path, capsys: Any) -> None:
    told = evaluated(run, capsys)
    summary = RunRecord(run).summary
    assert summary is not None
    assert told["nats"] == summary["best"]["test"]["nats"]
    assert told["perplexity"] == pytest.approx(math.exp(told["nats"]))
    assert told["weights"] == summary["best"]["weights"]
    assert told["stderr"] is None
    assert told["epoch"] == summary["best"]["epoch"]
    size = len(data.load(text).test)
    assert told["count"] == (size // 10 - 1) * 10
    assert evaluated(run, capsys, "--batch-size", "1")["count"] == size - 1
    metrics = RunRecord(run).metrics[-1]
    last = ("--checkpoint", "last", "--split", "valid")
    raw = evaluated(run, capsys, *last, "--weights", "raw")
    assert raw["nats"] == pytest.approx(metrics["valid"]["nats"])
    averaged = evaluated(run, capsys, *last, "--weights", "averaged")
    assert averaged["nats"] == pytest.approx(metrics["valid_averaged"]["nats"])


@pytest.mark.parametrize("method", ["marginal", "arithmetic", "geometric"])
def test_samples(method: str, run: Path, text: Path, capsys: Any) -> None:
    arguments = ("--method", method, "--samples", "5", "--split", "valid", "--temperature", "1.2")
    told = evaluated(run, capsys, *arguments, "--seed", "3")
    torch.manual_seed(3)
    kind = getattr(predictors, method.capitalize())
    predictor = kind(restore(RunRecord(run)).model, 5, temperature=1.2)
    expected = predictors.evaluate(predictor, Text(data.load(text)).batches("valid"))
    assert told["nats"] == pytest.approx(expected.nats, rel=1e-9)
    assert (told["K"], told["count"]) == (5, expected.count)
    assert evaluated(run, capsys, *arguments, "--seed", "4")["nats"] != told["nats"]


def test_calibration(run: Path, text: Path, capsys: Any) -> None:
    told = evaluated(run, capsys, "--calibration", "--temperature", "1.3")
    watched = predictors.Confidence(predictors.Clean(restore(RunRecord(run)).model, 1.3))
    expected = predictors.evaluate(watched, Text(data.load(text)).batches("test"))
    assert told["nats"] == pytest.approx(expected.nats, rel=1e-9)
    assert told["calibration"] == pytest.approx(watched.to_json())
    assert in_process("evaluate", str(run), "--calibration") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "the likeliest word is right in " in said
    assert "(15 bins of equal count)" in said
    for other in (["--cache"], ["--dynamic"], ["--method", "arithmetic"]):
        assert in_process("evaluate", str(run), "--calibration", *other) == 2
        assert "--calibration is for --method exact without a cache" in capsys.readouterr().err


def test_unknown_words(run: Path, text: Path, capsys: Any) -> None:
    """Inputs alone are replaced, others with another seed; the score is not that of the text."""
    plain, none = (evaluated(run, capsys, *more) for more in ([], ["--unknown", "0"]))
    some, again, others = (
        evaluated(run, capsys, "--unknown", "0.3", "--seed", seed) for seed in ("1", "1", "2")
    )
    assert none == plain
    assert (some["unknown"], some["count"]) == (0.3, plain["count"])
    assert some["nats"] == again["nats"] != others["nats"]
    record, generator = RunRecord(run), torch.Generator().manual_seed(1)
    unknown = record.vocabulary.id("<unk>")
    batches = [
        replace(b, x=b.x.where(torch.rand(b.x.shape, generator=generator) >= 0.3, unknown))
        for b in Text(data.load(text)).batches("test")
    ]
    expected = predictors.evaluate(predictors.Clean(restore(record).model), batches)
    assert some["nats"] == pytest.approx(expected.nats, rel=1e-9)
    assert evaluations.kind_of(some) == "0.3 of the inputs unknown"
    assert in_process("evaluate", str(run), "--unknown", "0.3") == 0
    assert "30% of the input words unknown" in " ".join(capsys.readouterr().out.split())


def test_a_text_without_an_unknown_word(text: Path, tmp_path: Path, capsys: Any) -> None:
    for split in ("train", "valid", "test"):
        words = (text / f"{split}.txt").read_text().replace("<unk>", "sat")
        (tmp_path / f"{split}.txt").write_text(words)
    assert in_process("train", *settings(tmp_path, epochs=1), "--out", str(tmp_path / "out")) == 0
    (run,) = (tmp_path / "out").iterdir()
    assert in_process("evaluate", str(run), "--unknown", "0.1") == 2
    assert "has no unknown word <unk>, so --unknown cannot be used" in capsys.readouterr().err


def test_json_has_no_nan(run: Path, capsys: Any) -> None:
    """Of one sample there is no standard error; NaN is Python's, and no JSON."""
    arguments = ("--method", "arithmetic", "--samples", "1", "--json")
    assert in_process("evaluate", str(run), *arguments) == 0
    shown = capsys.readouterr().out
    assert json.loads(shown, parse_constant=pytest.fail)["stderr"] is None


def test_the_sentence(run: Path, capsys: Any) -> None:
    assert in_process("evaluate", str(run), "--method", "arithmetic", "--samples", "4") == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.startswith("test perplexity ")
    assert " ± " in shown
    weights = RunRecord(run).summary["best"]["weights"]
    assert f"arithmetic, 4 samples; {weights} weights after epoch" in shown


@pytest.mark.parametrize(
    ("K", "why"), [("1", "one sample has none"), ("5", "a few of the samples")]
)
def test_nan_is_never_printed(K: str, why: str, run: Path, capsys: Any) -> None:
    assert in_process("evaluate", str(run), "--method", "marginal", "--samples", K) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "nan" not in shown
    assert f"The standard error is not known: {why}" in shown


def test_the_default_number_of_samples_allows_an_error_bar(run: Path, capsys: Any) -> None:
    assert in_process("evaluate", str(run), "--method", "marginal") == 0
    assert " ± " in capsys.readouterr().out


def test_another_text_is_refused(run: Path, text: Path, tmp_path: Path, capsys: Any) -> None:
    shutil.copytree(run, tmp_path / "run")
    other = shutil.copytree(text, tmp_path / "cats")
    config = json.loads((tmp_path / "run" / "config.json").read_text())
    config["data"]["name"] = str(other)
    (tmp_path / "run" / "config.json").write_text(json.dumps(config))
    (other / "test.txt").write_text("the cat\n" * 30)
    assert in_process("evaluate", str(tmp_path / "run")) == 2
    printed = capsys.readouterr().err
    assert "is not the text that" in printed or "another run" in printed


def test_a_text_that_was_moved(run: Path, text: Path, tmp_path: Path, capsys: Any) -> None:
    expected = evaluated(run, capsys)
    text.rename(tmp_path / "moved")
    try:
        assert in_process("evaluate", str(run)) == 2
        printed = capsys.readouterr().err
        assert "there is no such corpus" in printed
        assert "If the data of the run was moved, use --data PATH." in printed
        assert evaluated(run, capsys, "--data", str(tmp_path / "moved")) == expected
    finally:
        (tmp_path / "moved").rename(text)


def test_generate(run: Path, capsys: Any) -> None:
    arguments = ("generate", str(run), "--prompt", "the cat", "--length", "12")
    assert in_process(*arguments) == 0
    first = capsys.readouterr().out
    assert first.startswith("the cat")
    assert in_process(*arguments) == 0
    assert capsys.readouterr().out == first, "of the same seed"
    shown = set()
    for seed in ("1", "2", "3", "4"):
        assert in_process(*arguments, "--seed", seed) == 0
        shown.add(capsys.readouterr().out)
    assert len(shown) > 1
    assert in_process(*arguments[:3], "the bird, the bird", "--no-unknown", "--length", "200") == 0
    printed = capsys.readouterr()
    told = (
        "noisin: --prompt has words that the model does not know, read as <unk>: 'bird,', 'bird'."
    )
    assert told in printed.err
    assert "<unk>" not in printed.out
    greedy = ("--temperature", "0")
    assert in_process(*arguments, *greedy, "--seed", "1") == 0
    most_probable = capsys.readouterr().out
    assert in_process(*arguments, "--top-k", "1", "--seed", "2") == 0
    assert capsys.readouterr().out == most_probable
    assert set(first.split()) <= {*restore(RunRecord(run)).vocab.words}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["evaluate", "--batch-size", "0"], "--batch-size must be 1 or more, got 0"),
        (["evaluate", "--batch-size", "9999"], "too few for 9999 columns"),
        (["evaluate", "--unknown", "1"], "must lie in [0, 1), got 1"),
        (["evaluate", "--temperature", "0"], "temperature must be a finite number above 0"),
        (["evaluate", "--method", "marginal", "--samples", "0"], "must lie in 1 to 10000, got 0"),
        (["evaluate", "--method", "marginal", "--samples", "9" * 20], "must lie in 1 to 10000"),
        (["generate", "--length", "-1"], "0 or more, got -1"),
        (["generate", "--temperature", "-1"], "got -1.0"),
        (["generate", "--top-k", "0"], "1 or more, got 0"),
        (["generate", "--seed", "-1"], "seed must be a whole number"),
    ],
)
def test_bad_values(arguments: list[str], message: str, run: Path, capsys: Any) -> None:
    command, *rest = arguments
    assert in_process(command, str(run), *rest) == 2
    assert message in capsys.readouterr().err
