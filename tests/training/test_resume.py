"""A run that was stopped or killed ends in the same bits as one that was not."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from noisin._util.products import choice_of
from noisin.data import Corpus, Vocabulary
from noisin.errors import InvalidValue, Unsupported
from noisin.tasks import Observation
from noisin.training import RunConfig, RunRecord, restore, resume
from noisin.training.build import build_model
from noisin.training.config import TrainConfig
from noisin.training.config import hash as config
from noisin.training.runtime.device import use_threads
from noisin.training.runtime.signals import Interrupted
from tests.training import toy

KILLS = int(os.environ.get("NOISIN_KILLS", "3"))  # `make stress` asks for more

# Everything that draws, counts or carries is on, and saves come at odd places.
SETTINGS: dict[str, Any] = {
    "nt": toy.config(
        noise={"gamma": 0.5, "schedule": {"kind": "linear", "epochs": 3}},
        train={"averaging": "nt", "nt_window": 1, "lr": 20.0, "epochs": 5}
        | {"save_steps": 4, "variable_length": True},
    ),
    "from_start": toy.config(
        noise={"family": "gamma", "feedback": False},
        model={"cell": "gru", "weight_drop": {"p": 0.5}, "weight_noise": {"std": 0.1}}
        | {"zoneout": {"p_h": 0.1}, "update_dropout": {"p": 0.2}}
        | {"dropout": {"recurrent": 0.3, "input": 0.1, "locked": True, "words": 0.2}},
        train={"optimizer": "adamw", "lr": 0.01, "K": 2, "save_steps": 7, "clean_tokens": 300}
        | {"terms": {"ar": 1.0, "l2": 1e-4}},
    ),
}  # fmt: skip


@pytest.fixture(scope="module", params=SETTINGS)
def whole(request: Any, tmp_path_factory: Any) -> tuple[str, dict[str, Any], int]:
    """A run that nothing happened to, its result, and how often it touched the file system."""
    out = tmp_path_factory.mktemp("whole") / "run"
    counted = out.with_name("events")

    outcome = toy.run(
        out,
        settings=SETTINGS[request.param],
        before=lambda: toy.at_file_events(out, lambda n: counted.write_text(str(n))),
    )
    assert outcome == toy.Outcome(0, "", [])
    averaged = [line["valid_averaged"] is not None for line in RunRecord(out).metrics]
    assert averaged == {"nt": [False] * 3 + [True] * 2, "from_start": [True] * 3}[request.param]
    return request.param, toy.result(out), int(counted.read_text())


@pytest.mark.parametrize("kill", range(KILLS))
def test_killed_anywhere(whole: Any, kill: int, tmp_path: Path) -> None:
    """Killed when it touches some file, most of them in a save, and again at a random moment."""
    name, expected, events = whole
    out, settings = tmp_path / "run", SETTINGS[name]
    dice = random.Random(f"{name} {kill}")
    n = dice.randrange(1, events)
    outcome = toy.run(out, settings=settings, before=toy.signal_at(out, n, signal.SIGKILL))
    assert outcome.code == -signal.SIGKILL
    process = toy.Process(out, settings)
    time.sleep(dice.uniform(0, 0.5))
    process.signal(signal.SIGKILL)
    assert process.wait().code in (-signal.SIGKILL, 0)  # there may have been little left to do
    assert len(RunRecord(out).metrics) <= len(expected["metrics"])
    assert toy.run(out, settings=settings) == toy.Outcome(0, "", [])
    assert toy.result(out) == expected
    assert not list((out / "checkpoints").glob(".*"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_save_and_stop(whole: Any, number: int, tmp_path: Path) -> None:
    name, expected, events = whole
    out, settings = tmp_path / "run", SETTINGS[name]
    outcome = toy.run(out, settings=settings, before=toy.signal_at(out, events // 2, number))
    assert outcome.code == 128 + number
    assert f"saved in {out}" in outcome.message
    again = toy.run(out, settings=settings, before=toy.signal_at(out, 5, number))
    assert again.code == 128 + number
    assert toy.run(out, settings=settings) == toy.Outcome(0, "", [])
    assert toy.result(out) == expected


def signal_in_measurement(number: int) -> None:
    trainer: Any = sys.modules["noisin.training.trainer"]
    measure, calls = trainer.tally, itertools.count()

    def measure_or_stop(*args: Any, **kwargs: Any) -> Any:
        if next(calls) == number:
            os.kill(os.getpid(), signal.SIGTERM)
        return measure(*args, **kwargs)

    trainer.tally = measure_or_stop


def test_a_signal_while_evaluating(whole: Any, tmp_path: Path) -> None:
    """It does not wait for the evaluation, and saves the raw weights, not the average."""
    name, expected, _ = whole
    out, settings = tmp_path / "run", SETTINGS[name]
    # The eighth is in the third epoch; of an average in one of the settings.
    assert toy.run(out, settings=settings, before=lambda: signal_in_measurement(7)).code == 143
    assert len(RunRecord(out).metrics) < len(expected["metrics"])
    assert toy.run(out, settings=settings) == toy.Outcome(0, "", [])
    assert toy.result(out) == expected


def test_a_signal_while_evaluating_an_epoch_that_was_cut_short(tmp_path: Path) -> None:
    settings = toy.config(train={"tokens": 300})
    toy.fit(tmp_path / "whole", train={"tokens": 300})
    outcome = toy.run(tmp_path / "run", settings=settings, before=lambda: signal_in_measurement(0))
    assert outcome.code == 143
    assert RunRecord(tmp_path / "run").metrics == []
    shutil.copytree(tmp_path / "run", tmp_path / "longer")
    assert toy.run(tmp_path / "run", settings=settings) == toy.Outcome(0, "", [])
    assert toy.result(tmp_path / "run") == toy.result(tmp_path / "whole")
    toy.fit(tmp_path / "two", train={"epochs": 2})  # and with the limit lifted it goes on
    toy.fit(tmp_path / "longer", train={"epochs": 2})
    assert toy.result(tmp_path / "longer") == toy.result(tmp_path / "two")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -15)])
def test_a_second_signal_stops_at_once(number: int, code: int, tmp_path: Path) -> None:
    out, settings = tmp_path / "run", toy.config(train={"save_steps": 1})
    outcome = toy.run(out, settings=settings, before=toy.signal_at(out, 40, number, number))
    assert outcome.code == code
    assert "saved" not in outcome.message
    assert toy.run(out, settings=settings).code == 0


def test_a_signal_after_the_last_look_is_not_lost(tmp_path: Path) -> None:
    """Where several runs are made one after another, the next one must not begin."""

    class Pressed(toy.Seen):
        def end(self) -> None:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(Interrupted) as stopped:
        toy.fit(tmp_path / "run", Pressed())
    assert stopped.value.exit_code == 130
    assert RunRecord(tmp_path / "run").summary is not None
    assert toy.fit(tmp_path / "run").summary["ended"] == "epochs"


def test_a_longer_limit_goes_on(tmp_path: Path) -> None:
    """Two epochs and then two more are four, and a complete run is left alone."""
    toy.fit(tmp_path / "four", train={"epochs": 4})
    toy.fit(tmp_path / "two", train={"epochs": 2})
    summary = RunRecord(tmp_path / "two").summary
    assert summary is not None
    assert summary["ended"] == "epochs"
    before = (tmp_path / "two" / "summary.json").stat().st_mtime_ns
    toy.fit(tmp_path / "two", train={"epochs": 2})
    assert (tmp_path / "two" / "summary.json").stat().st_mtime_ns == before
    toy.fit(tmp_path / "two", train={"epochs": 4})
    assert toy.result(tmp_path / "two") == toy.result(tmp_path / "four")
    assert RunRecord(tmp_path / "two").config.train.epochs == 4
    with pytest.raises(InvalidValue, match="a run of 4 epochs, and train.epochs is 3. Limits can"):
        toy.fit(tmp_path / "two", train={"epochs": 3})
    assert toy.result(tmp_path / "two") == toy.result(tmp_path / "four")


def test_a_run_cut_short_in_an_epoch_does_not_go_on(tmp_path: Path) -> None:
    toy.fit(tmp_path / "run", train={"tokens": 300})
    files = toy.result(tmp_path / "run")
    assert [line["tokens"] for line in files["metrics"]] == [320]
    with pytest.raises(Unsupported, match="in the middle of an epoch"):
        toy.fit(tmp_path / "run", train={"tokens": 900})
    assert toy.result(tmp_path / "run") == files


def test_another_machine_is_noted(tmp_path: Path) -> None:
    out = tmp_path / "run"
    toy.fit(out, train={"epochs": 1})
    environment = RunRecord(out).environment
    RunRecord(out).write("environment.json", {**environment, "processor": "abacus"})
    toy.fit(out, train={"epochs": 2})
    (resumed,) = RunRecord(out).environment["resumed"]
    assert resumed == {"step": 10, "processor": environment["processor"]}


RECURRENT = {"dropout": {"recurrent": 0.3, "locked": True}}


@pytest.mark.parametrize(
    "model",
    [
        {"weight_noise": {"std": 0.1, "per": "step"}},
        {"weight_drop": {"p": 0.5}, "dropout": {"words": 0.3, "words_shared": True}},
        {"gate_dropout": {"x": 0.2, "h": 0.3}, "dropout": {}},
        {"cell": "layer-norm-lstm"} | RECURRENT,
        {"cell": "melis-lstm"} | RECURRENT,
        {"cell": "mogrifier-lstm"} | RECURRENT,
    ],
    ids=str,
)
def test_a_run_in_two_parts(model: dict[str, Any], tmp_path: Path) -> None:
    for name, parts in (("whole", [2]), ("parted", [1, 2])):
        for epochs in parts:
            toy.fit(tmp_path / name, model=model, train={"epochs": epochs})
    assert toy.result(tmp_path / "parted") == toy.result(tmp_path / "whole")


def threads(record: RunRecord, settings: RunConfig, words: int = toy.WORDS) -> int:
    with torch.device("meta"):
        model = build_model(settings, Observation("categorical", words))
    rows = settings.train.batch_size * settings.train.K
    return resume.threads_to_use(record, settings, model, rows)


def test_small_models_get_one_thread() -> None:
    """Of the cores of this machine, and a setting may ask for more."""
    record, words = RunRecord("not-there"), 2000
    small = toy.config(threads=None, model={"hidden_size": 128}, train={"batch_size": 20})
    large = toy.config(threads=None, model={"hidden_size": 650}, train={"batch_size": 80})
    many = toy.config(threads=None, model={"hidden_size": 128}, train={"batch_size": 20, "K": 20})
    with use_threads(2):
        assert threads(record, small, words) == 1
        assert threads(record, large, words) == 2
        assert threads(record, many, words) == 2
        explicit = small.model_copy(update={"threads": 2})
        assert threads(record, explicit, words) == 2


def test_a_run_keeps_its_number_of_threads(tmp_path: Path) -> None:
    """For sums depend on it; the process gets its own number back."""
    record, settings = RunRecord(tmp_path / "run"), toy.config(threads=None)
    assert threads(record, settings) == torch.get_num_threads() == 1
    assert threads(record, toy.config(threads=3)) == 3
    with pytest.raises(InvalidValue, match=r"threads = 1000, but only \d+ cores are available"):
        threads(record, toy.config(threads=1000))
    toy.fit(tmp_path / "run", train={"epochs": 1}, threads=None)
    assert record.environment["threads"] == 1
    whole = record.environment
    record.write("environment.json", {**whole, "threads": 1000})  # of a larger machine
    assert threads(record, settings) == 1000
    for damaged in ("many", 0, -1, 1.0, True, None, 1025, 100_000, 10**30):
        record.write("environment.json", {**whole, "threads": damaged})
        with pytest.raises(InvalidValue, match="environment.json: the number of threads must be"):
            toy.fit(tmp_path / "run", threads=None)
    with use_threads(2):
        assert torch.get_num_threads() == 2
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize(
    ("changes", "text", "message"),
    [
        ({"train": {"lr": 4.0}}, toy.corpus(), "train.lr = 5.0 and 4.0"),
        ({"seed": 7, "noise": None}, toy.corpus(), "noise.gamma = 0.5 and None"),
        ({}, toy.corpus(seed=1), "other data: its data has the sha256 0000"),
        ({}, replace(toy.corpus(), vocab=Vocabulary(("a", "<eos>"))), "its vocabulary has"),
    ],
)
def test_another_run_is_refused(changes: Any, text: Corpus, message: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    toy.fit(out, train={"epochs": 1})
    before = toy.result(out)
    outcome = toy.run(out, settings=toy.config(**changes), text=text)
    assert outcome.code == 2
    assert message in outcome.message
    assert toy.result(out) == before


class LaterTrain(TrainConfig):
    """The settings of a later version, which has one more."""

    warm_up: float = 0.0


class LaterConfig(RunConfig):
    train: LaterTrain = LaterTrain()


def test_a_run_goes_on_after_an_upgrade_that_adds_a_setting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if it had been there with its default; with another value it is another run."""
    toy.fit(tmp_path / "whole")
    out = tmp_path / "run"
    toy.fit(out, train={"epochs": 1})
    assert "warm_up" not in (out / "config.json").read_text()
    monkeypatch.setitem(config.ABSENT, "train.warm_up", 0.0)
    monkeypatch.setitem(config.ABSENT, "noise.not.there", None)
    monkeypatch.setattr("noisin.training.record.RunConfig", LaterConfig)
    settings = toy.config().model_dump()
    other = LaterConfig.parse({**settings, "train": {**settings["train"], "warm_up": 3.0}})
    with pytest.raises(InvalidValue, match=r"other settings: train\.warm_up = 0\.0 and 3\.0\."):
        toy.train(other, out)
    toy.train(LaterConfig.parse(settings), out)
    assert toy.result(out) == toy.result(tmp_path / "whole")
    assert restore(RunRecord(out)).epoch <= 3, "its checkpoints are its own still"


def test_a_vocabulary_that_was_lost_is_written_again(tmp_path: Path) -> None:
    """The data has it still, and without it the model is of no use."""
    toy.fit(tmp_path / "run", train={"epochs": 1})
    (tmp_path / "run" / "vocabulary.json").unlink()
    assert toy.fit(tmp_path / "run", train={"epochs": 2}).vocabulary == toy.corpus().vocab


def test_a_folder_of_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(InvalidValue, match="contains 'thesis.tex' and is not a run"):
        toy.fit(tmp_path)


def test_a_continued_run_keeps_the_libraries_of_its_products(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are part of the arithmetic: what is fastest now must not change the bits of a run."""
    monkeypatch.setenv("NOISIN_GEMM", "onednn")
    for name in ("whole", "parted"):
        toy.fit(tmp_path / name, train={"epochs": 1 if name == "parted" else 2})
    monkeypatch.setenv("NOISIN_GEMM", "mkl")
    record = toy.fit(tmp_path / "parted", train={"epochs": 2})
    assert set(choice_of(record.products).values()) == {"onednn"}
    assert toy.result(tmp_path / "parted") == toy.result(tmp_path / "whole")
    other = toy.fit(tmp_path / "other", train={"epochs": 2})
    assert set(choice_of(other.products).values()) == {"mkl"}


def test_a_record_with_unknown_libraries_is_refused(tmp_path: Path) -> None:
    toy.fit(tmp_path, train={"epochs": 1})
    path = tmp_path / "environment.json"
    path.write_text(path.read_text().replace("=mkl", "=abacus"))
    with pytest.raises(InvalidValue, match="environment.json: 'input-small' must be .*'abacus'"):
        toy.fit(tmp_path, train={"epochs": 2})
