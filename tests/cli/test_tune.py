"""``noisin tune`` on a toy text: what it finds, writes and refuses; a kill costs nothing."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import tomllib
from pathlib import Path
from typing import Any

import pytest

import noisin
from noisin.cli.tune import _conclusion
from noisin.experiments import presets
from noisin.experiments.tuning.driver import TunedRun
from noisin.experiments.tuning.tunable import Tunable
from noisin.tasks.unit import NATS_PER_STEP
from noisin.training import RunConfig, RunRecord
from noisin.tuning.search import TuningTrial
from tests.cli.run import forked, in_process
from tests.pairwise import PRODUCTS
from tests.training.toy import result, wait_for

SMALL = ("--model.hidden_size", "8", "--train.batch_size", "4", "--train.lr", "1")
EPOCHS = ("--train.epochs", "3", "--train.bptt", "10", "--threads", "1")  # rungs of 1 and 3
LEAST = 1 + 3 + 2 * 2  # without noise, and the cheapest plan
KILLS = range(1, LEAST) if PRODUCTS else (2, 6)  # after so many epochs


@pytest.fixture(autouse=True)
def _nothing_to_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOISIN_KERNEL", "eager")


def arguments(text: Path, out: Path, *more: str, budget: str = f"{LEAST}epochs") -> list[str]:
    fixed = ("manual", "--data.name", str(text), *SMALL, *EPOCHS, "--out", str(out))
    return ["tune", *fixed, "--budget", budget, *more]


def folder_of(out: Path) -> Path:
    (folder,) = out.iterdir()
    return folder


def tune_json(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder_of(out) / "tune.json").read_text())
    return found


def epochs_trained(out: Path) -> int:
    return sum(len(RunRecord(run).metrics) for run in folder_of(out).glob("tuned-*"))


def results(out: Path) -> dict[str, Any]:
    """All that two equal searches have in common, to the last bit."""
    folder = folder_of(out)
    files = {name: (folder / name).read_bytes() for name in ("tune.json", "tuned.toml")}
    return files | {run.name: result(run) for run in sorted(folder.glob("tuned-*"))}


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text whose parts are alike, so that every epoch is better than the one before."""
    folder = tmp_path_factory.mktemp("text") / "alike"
    folder.mkdir()
    for split, lines in (("train", 90), ("valid", 30), ("test", 30)):
        (folder / f"{split}.txt").write_text("the cat sat on the mat\na dog in the sun\n" * lines)
    return folder


@pytest.fixture(scope="module")
def searched(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search that nothing happened to."""
    out = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NOISIN_KERNEL", "eager")
        assert in_process(*arguments(text, out)) == 0
    return out


def test_it_keeps_its_budget_and_says_what_it_tried(searched: Path) -> None:
    found = tune_json(searched)
    assert found["spent"] == epochs_trained(searched) == LEAST
    assert found["plan"] | {"lr": False} == found["plan"]
    assert (found["plan"]["rungs"], found["plan"]["counts"]) == ([1, 3], [3, 2])
    assert found["clean"]["std"] == 0.0
    assert len({one["score"] for one in found["tried"]}) == 5  # all epochs differ
    full = {one["std"]: one["score"] for one in found["tried"] if one["epochs"] == 3}
    assert len(full) == 2
    assert found["chosen"]["score"] == min(full.values()) == full[found["chosen"]["std"]]
    for name in ("tune.svg", "tune.png"):
        assert (folder_of(searched) / name).stat().st_size > 1000


def test_the_result_is_trained_by_the_second_command(
    searched: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And nothing is trained twice: the chosen trial is that run."""
    folder, before = folder_of(searched), results(searched)
    assert in_process("train", str(folder / "tuned.toml"), "--out", str(folder)) == 0
    assert results(searched) == before
    chosen = tune_json(searched)["chosen"]
    config = presets.read(str(folder / "tuned.toml")).configs()["tuned"]
    assert config.noise is not None
    assert (config.noise.std, config.train.epochs) == (chosen["std"], 3)
    name = f"tuned-{presets.mark([config])}"
    assert name in before
    assert name in capsys.readouterr().out


@pytest.mark.parametrize(
    ("best", "said"),
    [
        ((0.4, 20.0), []),
        ((0.4, 10.0), ["The learning rate is the lowest that was tried", "use --train.lr 10."]),
        ((9.0, 40.0), ["the highest that was tried", "lr 40.", "The std is the largest that was "
                       "trained to the end, and", "use a larger budget, or --around 10."]),
        ((0.1, 20.0), ["The std is the smallest that was trained to the end", "--around 0.064."]),
    ],
)  # fmt: skip
def test_it_says_that_the_best_may_lie_beyond(best: tuple[float, float], said: list[str]) -> None:
    def train(trial: TuningTrial) -> tuple[float, str]:
        given = trial.std, trial.lr or 0.0
        return sum(abs(math.log(a / b)) for a, b in zip(given, best, strict=True)), "state"

    tunable = Tunable.of("manual", {}, "noise")
    tuned = noisin.tune(train, budget=74, epochs=11, lr=20.0)
    config = tunable.config(tuned.std, tuned.lr)
    found = TunedRun(tuned, config, Path("tune-manual"), NATS_PER_STEP, None, None)
    text = _conclusion(found, tunable)
    assert all(part in text for part in said), text
    assert text.count("beyond") == len(said) // 2


@pytest.mark.long
def test_killed_at_any_place_it_ends_in_the_same_bits(
    searched: Path, text: Path, tmp_path: Path
) -> None:
    out = tmp_path / "killed"

    def kill_after(epochs: int) -> None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        process = forked(*arguments(text, out), stdout=nowhere, stderr=nowhere)
        wait_for(
            lambda: (
                process.exitcode is not None
                or (out.exists() and any(out.iterdir()) and epochs_trained(out) >= epochs)
            )
        )
        assert process.exitcode is None
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()

    for epochs in KILLS:
        kill_after(epochs)
    assert in_process(*arguments(text, out)) == 0
    assert results(out) == results(searched)


@pytest.mark.long
def test_a_larger_budget_extends_the_search(searched: Path, text: Path, tmp_path: Path) -> None:
    """What was trained is used again, whether or not it still goes on."""
    out = tmp_path / "larger"
    shutil.copytree(searched, out)
    before = {run: RunRecord(run).metrics for run in folder_of(out).glob("tuned-*")}
    assert in_process(*arguments(text, out, budget=f"{LEAST + 1}epochs")) == 0
    assert tune_json(out)["plan"]["counts"] == [4, 2]
    assert tune_json(out)["spent"] == LEAST + 1
    for run, metrics in before.items():
        assert RunRecord(run).metrics[: len(metrics)] == metrics  # to the time that it took


def test_dropout_is_tuned_by_the_same_budget(text: Path, tmp_path: Path) -> None:
    more = ("--what", "dropout", "--around", "0.5", "--model.dropout.output", "0.1")
    assert in_process(*arguments(text, tmp_path, *more, budget="7epochs")) == 0
    found = tune_json(tmp_path)
    assert (found["what"], found["spent"], found["start"]) == ("dropout", 7, None)
    settings = tomllib.loads((folder_of(tmp_path) / "tuned.toml").read_text())
    rate = RunConfig.parse(settings).model.dropout.output
    assert settings["model"]["dropout"] == {"output": rate}  # the only rate that was given
    assert rate / (1 - rate) == pytest.approx(found["chosen"]["std"] ** 2, rel=1e-3)


@pytest.mark.long
def test_a_time_is_a_budget_too(text: Path, tmp_path: Path) -> None:
    more = ("--around", "0.4", "--keep-lr", "--train.clean_tokens", "0")
    given = arguments(text, tmp_path, *more, budget="24h")
    given[given.index("3")] = "1"  # epoch
    assert in_process(*given) == 0
    assert tune_json(tmp_path)["plan"]["counts"] == [8]
    assert tune_json(tmp_path)["plan"]["lr"] is False


def test_a_time_that_is_too_short_names_the_least(
    text: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert in_process(*arguments(text, tmp_path, "--around", "0.4", budget="0.001s")) == 2
    said = capfd.readouterr().err.strip().splitlines()[-1]
    assert "a budget of 0.001s, which is 0 epochs of" in said
    assert "the least is 7 epochs, about" in said


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--budget", "7epochs"], "the least is 8 epochs, with 3 stds and runs of 3 epochs"),
        (["--budget", "soon"], "the budget must be a time, such as 2h"),
        (["--budget", "8epochs", "--around", "0"], "--around must lie in [0.001, 1000], got 0"),
        (["--budget", "8epochs", "--train.minutes", "3"], "train.minutes must be left out"),
        (["--budget", "8epochs", "--noise.family", "gausian"], "gaussian"),
        (["--budget", "8epochs", "--noise.family", "noises:Fixed"], "from_variance"),
        (["--budget", "8epochs", "--noise.site", "state"], "noise.site"),
        (["--budget", "8epochs", "--what", "zoneout"], "what"),
        (["--budget", "8epochs", "--noise.std", "0.4"], "--noise.std is what tune chooses. Leave"),
        (["--budget", "8epochs", "--noise.gamma", "2"], "--noise.gamma is what tune chooses"),
        (
            [
                *("--budget", "8epochs", "--what", "dropout,model.zoneout.p_h"),
                *("--model.zoneout.p_h", "0.1"),
            ],
            "--model.zoneout.p_h is what tune chooses. Leave it out, or name the std in the middle",
        ),
        (["--budget", "8epochs", "--data.name", "nowhere.txt"], "nowhere.txt"),
    ],
)
def test_bad_input_gets_one_message_before_anything_is_written(
    more: list[str],
    message: str,
    text: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "noises.py").write_text(
        "class Fixed:\n    variance = 1.0\n    def __init__(self, gamma): pass\n"
        "    def sample(self, shape, *, like, generator=None): return like.new_zeros(shape)\n"
    )
    out = tmp_path / "out"
    given = ["tune", "manual", *SMALL, *EPOCHS, "--out", str(out), "--data.name", str(text)]
    given = [*given[:-2], *([] if "--data.name" in more else given[-2:]), *more]
    assert in_process(*given) == 2
    said = capfd.readouterr()
    assert said.out == ""
    assert len(said.err.strip().splitlines()) == 1
    assert message in said.err
    assert not out.exists()


def test_the_settings_of_a_run_are_tuned(
    text: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """By its folder or its config.json, as if a file had them; noisin show reads both too."""
    once = ["--train.epochs", "1", *EPOCHS[2:], "--noise.std", "0.3"]
    given = ["manual", "--data.name", str(text), *SMALL, *once, "--out", str(tmp_path / "a")]
    assert in_process("train", *given) == 0
    (run,) = (tmp_path / "a").glob("manual-*")
    shown: list[str] = []
    for path in (run, run / "config.json"):
        capfd.readouterr()
        assert in_process("show", str(path)) == 0
        shown.append(capfd.readouterr().out)
        out, more = tmp_path / f"tuned{len(shown)}", ("--around", "0.5", "--out")
        more = ("--budget", "3epochs", "--keep-lr", *more, str(out))
        assert in_process("tune", str(path), *more) == 0
        (folder,) = out.iterdir()
        assert folder.name.startswith(f"tune-{run.name}-")
        tuned = presets.read(str(folder / "tuned.toml")).configs()["tuned"]
        config = RunRecord(run).config
        assert tuned.differences(config)[0].startswith("noise.std = 0.")
        assert len(tuned.differences(config)) == 1
    assert shown[0] == shown[1]
    assert RunConfig.parse(tomllib.loads(shown[0])).differences(RunRecord(run).config) == []


def test_what_is_not_a_run_is_not_tuned(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "list.json").write_text("[1]")
    for name, message in (
        ("empty", "is not a run: it has no config.json. Name the folder of a run"),
        ("broken.json", "broken.json cannot be parsed"),
        ("list.json", "list.json"),
        ("none.json", "none.json"),
    ):
        given = ("tune", str(tmp_path / name), "--budget", "9epochs", "--out", str(tmp_path / "o"))
        assert in_process(*given) == 2
        said = capfd.readouterr().err
        assert message in said
        assert said.count("\n") == 1
        assert not (tmp_path / "o").exists()


def test_presets_that_it_cannot_tune_are_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    for preset, message in (("compare", "has several runs"), ("manul", "Did you mean 'manual'?")):
        assert in_process("tune", preset, "--budget", "2h", "--out", out) == 2
        assert message in capfd.readouterr().err
    assert in_process("tune", "manual", "--out", out) == 2  # without a budget
    assert not Path(out).exists()
