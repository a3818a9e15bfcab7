"""The results on sequences: the tables of the page are those of the records."""

from __future__ import annotations

import re
import runpy
import shutil
from pathlib import Path
from statistics import mean

import pytest

from noisin.errors import InvalidData, InvalidValue
from noisin.experiments.collection import collect
from noisin.experiments.records import Run
from noisin.experiments.sweep import read

RESULTS = Path(__file__).parents[1] / "results"
PAGE = (RESULTS / "README.md").read_text(encoding="utf-8")
WORDS = " ".join(PAGE.split())
RUNS = collect(RESULTS / "sequences")
SEEDS = [1111, 1112, 1113]
TABLE, FORECASTS = (
    runpy.run_path(str(RESULTS / "sequences" / f"{name}.py")) for name in ("table", "forecasts")
)
FINALS: dict[str, dict[tuple[str, str], list[Run]]] = TABLE["finals"](RUNS)
strength, after_first = TABLE["strength"], TABLE["after_first"]


@pytest.mark.parametrize("data", FINALS)
def test_the_tables_are_those_of_the_records(data: str) -> None:
    """If not, the table as it should be is in the message."""
    assert TABLE["table"](data, FINALS[data]) in PAGE


def test_the_forecasts_are_those_of_the_records() -> None:
    """Of every final run on a series."""
    for data in ("bikes", "ett"):
        for runs in FINALS[data].values():
            assert all(list(run.folder.glob("forecast-*.json")) for run in runs)
    assert FORECASTS["table"](RESULTS / "sequences") in PAGE


@pytest.mark.parametrize(
    ("script", "given", "said"),
    [
        ("next", [], "MODEL"),
        ("next", ["jsb-rnn"], "jsb-rnn"),
        ("next", ["jsb-gru", __file__], "is not a folder"),
        ("table", ["nowhere"], "nowhere does not exist"),
        ("table", [__file__], "is not a folder"),
        ("table", ["."], "has no runs"),
        ("forecasts", ["nowhere"], "nowhere has no"),
    ],
)
def test_the_scripts_refuse_wrong_arguments(
    script: str,
    given: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With one message and exit code 2."""
    monkeypatch.chdir(tmp_path)
    path = str(RESULTS / "sequences" / f"{script}.py")
    monkeypatch.setattr("sys.argv", [path, *given])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(path, run_name="__main__")
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err


def test_what_is_not_of_the_plan_or_damaged_is_refused(tmp_path: Path) -> None:
    stray = tmp_path / "jsb-rnn-final"
    shutil.copytree(FINALS["jsb"]["gru", "none"][0].folder, stray / "none-seed-1111")
    with pytest.raises(InvalidValue, match="no final run of the plan"):
        TABLE["finals"](collect(tmp_path))
    path = tmp_path / "bikes-lstm-final" / "none-seed-1111" / "forecast-1.json"
    path.parent.mkdir(parents=True)
    for content in ("{", "[]", "{}", '{"noise": false, "targets": {"count": {}}}'):
        path.write_text(content)
        with pytest.raises(InvalidData, match="forecast-1.json is damaged"):
            FORECASTS["table"](tmp_path)


@pytest.mark.parametrize("data", FINALS)
def test_only_arms_that_are_finished_are_published(data: str) -> None:
    """With all seeds, at the strength that was best on valid with another one."""
    for (model, arm), runs in FINALS[data].items():
        assert [run.config.seed for run in runs] == SEEDS
        (own,) = {strength(run) for run in runs}
        tried = [
            run
            for run in RUNS
            if run.folder.parent.name in _tunings(data, model)
            and run.folder.name.startswith(f"{arm}-")
        ]
        assert bool(tried) == (arm != "none")
        if tried:
            best = min(tried, key=_valid)
            assert (strength(best), best.config.seed) == (own, 1110)


def _tunings(data: str, model: str) -> tuple[str, str]:
    """The sweeps of the first stage."""
    return f"{data}-{model}-tuning", f"{data}-{model}-extended"


def _valid(run: Run) -> float:
    assert run.best is not None
    return float(run.best["best_valid"])


@pytest.mark.parametrize(
    "path", sorted((RESULTS / "sequences").glob("*.toml")), ids=lambda p: p.stem
)
def test_the_files_describe_their_records(path: Path) -> None:
    """Every record of a sweep is one of its points, by its settings."""
    sweep = read(str(path))
    known = {run.digest for task in sweep.tasks for run in task.runs}
    made = {run.config.hash() for run in RUNS if run.folder.parent.name == path.stem}
    assert made <= known
    assert not made or made == known or path.stem.endswith("-final")


def test_what_the_page_says_of_the_published_lstm() -> None:
    """*Reached* is a comparison of means, of frames 2 to T on test."""
    said = re.findall(r"reached the (\d\.\d\d) of Bai et al\. with (\w+)", " ".join(PAGE.split()))
    assert said
    for value, arm in said:
        found = [after_first(run) for run in FINALS["jsb"]["lstm", arm]]
        assert mean(v for v in found if v is not None) <= float(value)


def test_what_the_page_says_of_the_vrnn() -> None:
    (none, dropout, noise), kls = _bounds("vrnn")
    assert f"VRNN {none} (none), {dropout} (dropout) and {noise} (noise)" in WORDS
    assert f"Its KL is {kls[0]:.1f} nats per frame without noise and {kls[2]:.1f} with" in WORDS
    runs = [run for arm in TABLE["ARMS"] for run in FINALS["jsb"]["vrnn", arm]]
    epochs = [run.best["epoch"] for run in runs if run.best]
    assert f"epochs, {min(epochs)} to {max(epochs)}, so" in WORDS


def test_what_the_page_says_of_the_srnn() -> None:
    (none, dropout, noise), kls = _bounds("srnn")
    assert f"{none} without regularization, {dropout} with dropout and {noise} with noise" in WORDS
    assert f"KL is {kls[0]:.1f} nats per frame without noise and {kls[2]:.1f} with" in WORDS


def _bounds(model: str) -> tuple[list[str], list[float]]:
    """The importance-weighted bounds on test of each arm, and how far it uses z."""
    runs = [FINALS["jsb"][model, arm] for arm in TABLE["ARMS"]]
    kls = [mean(run.best["measured"]["kl"] for run in of_arm if run.best) for of_arm in runs]
    return [f"{mean(map(_iwae, of_arm)):.3f}" for of_arm in runs], kls


def _iwae(run: Run) -> float:
    (line,) = [line for line in run.evaluations if line["method"] == "iwae"]
    assert (line["split"], line["K"]) == ("test", 16)
    return float(line["nats"])


def test_the_scores_on_the_projects_page() -> None:
    """Those of test, over all frames, in two decimals."""
    page = " ".join((RESULTS.parent / "README.md").read_text(encoding="utf-8").split())
    (none, dropout, noise), (gru, _, noisy_gru), (srnn, _, noisy_srnn), (vrnn, _, noisy_vrnn) = (
        [
            f"{mean(run.best['test'] for run in FINALS['jsb'][model, arm] if run.best):.2f}"
            for arm in TABLE["ARMS"]
        ]
        for model in ("lstm", "gru", "srnn", "vrnn")
    )
    assert f"units from {none} nats per frame on test to {noise}, and tuned dropout" in page
    assert f"on its output to {dropout}; a GRU from {gru} to {noisy_gru} and two" in page
    assert f"VRNN, from {srnn} to {noisy_srnn} and from {vrnn} to {noisy_vrnn} (bounds)" in page
    for data, it in ("nottingham", "an LSTM of 2 × 280 units"), ("piano-midi", "the LSTM"):
        (none, dropout, noise), (loud,) = (
            [
                f"{mean(run.best['test'] for run in FINALS[data]['lstm', arm] if run.best):.2f}"
                for arm in TABLE["ARMS"]
            ],
            {run.config.noise.std for run in FINALS[data]["lstm", "noise"] if run.config.noise},
        )
        told = f"noise of std {loud:g} takes {it} from {none} to {noise}, and tuned dropout to"
        assert f"{told} {dropout}" in page
    none, noise = (
        f"{mean(run.best['test'] for run in FINALS['nottingham']['gru', arm] if run.best):.2f}"
        for arm in ("none", "noise")
    )
    assert f"and a GRU from {none} to {noise}; on classical" in page


def test_what_the_page_says_of_nottingham() -> None:
    """Of frames 2 to T on test: the published LSTM and TCN, reached or not."""
    means = [
        mean(v for run in FINALS["nottingham"]["lstm", arm] if (v := after_first(run)) is not None)
        for arm in TABLE["ARMS"]
    ]
    none, dropout, noise = means
    assert f"has reached without regularization ({none:.3f}), and 3.07 with a TCN" in WORDS
    assert f"reached with noise ({noise:.3f}) and not with dropout ({dropout:.3f})" in WORDS
    assert none <= 3.29
    assert noise <= 3.07 < dropout


def test_what_the_page_says_of_the_gru_on_nottingham() -> None:
    none, dropout, noise = (
        [run.best for run in FINALS["nottingham"]["gru", arm] if run.best] for arm in TABLE["ARMS"]
    )
    before = mean(best["test"] for best in none)
    gains = [100 * (1 - mean(best["test"] for best in arm) / before) for arm in (noise, dropout)]
    assert f"The GRU gains as much from noise**, {gains[0]:.1f} % on test" in WORDS
    assert f"no effect was found ({gains[1]:.1f} %" in WORDS
    assert {best["epoch"] for best in noise} == {40}
    tried = _tried("nottingham-gru")
    for kind in ("noise", "dropout"):
        of_kind = {point: valid for point, valid in tried.items() if point.startswith(kind)}
        best = min(of_kind, key=of_kind.__getitem__)
        assert best == {"noise": "noise-0.8", "dropout": "dropout-0.4"}[kind]
        assert f"{of_kind[best]:.3f}" in WORDS
    for point in ("noise-0.5", "noise-1.2", "dropout-0.6"):
        assert f"{tried[point]:.3f}" in WORDS


def _tried(model: str) -> dict[str, float]:
    """The lowest score on valid of each strength, with the seed of the tuning."""
    return {
        run.folder.name.split("-seed-")[0]: run.best["valid"]
        for stage in ("tuning", "extended")
        for run in collect(RESULTS / "sequences" / f"{model}-{stage}")
        if run.best
    }


def test_what_the_page_says_of_piano_midi() -> None:
    none, dropout, noise = (
        [run.best for run in FINALS["piano-midi"]["lstm", arm] if run.best] for arm in TABLE["ARMS"]
    )
    before = mean(best["test"] for best in none)
    gains = [100 * (1 - mean(best["test"] for best in arm) / before) for arm in (noise, dropout)]
    told = "helps the LSTM** by {:.1f} % on test and dropout by {:.1f} %".format(*gains)
    assert f"On Piano-midi noise {told}" in WORDS
    epochs = [sorted(best["epoch"] for best in arm) for arm in (none, noise)]
    told = "after {} to {} epochs, with noise after {} to {} of 40".format(
        *(end for arm in epochs for end in (arm[0], arm[-1]))
    )
    assert told in WORDS
    tried = _tried("piano-midi-lstm")
    assert min(tried, key=tried.__getitem__) == "noise-1.2"
    for points in ("noise-0.8", "noise-1.2"), ("dropout-0.4", "dropout-0.6"):
        for point in points:
            assert f"{tried[point]:.3f}" in WORDS
