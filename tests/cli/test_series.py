"""Your own series, from a file of settings to forecasts; and what is refused on the way."""

from __future__ import annotations

import csv
import json
import os
import re
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisin.data.columns import Columns
from noisin.training.config import RunConfig
from tests.cli.run import in_process
from tests.data.test_midi import parse

SMALL = ("--model.hidden_size", "4", "--train.epochs", "1", "--threads", "1")
SETTINGS = """
[data]
name = "{name}"
likelihood = "{likelihood}"

[data.columns]
targets = ["sold"]
covariates = ["price"]
context = 8
season = 4

[model]
num_layers = 1
tied = false

[noise]
std = 0.3

[train]
batch_size = 4
bptt = 10
lr = 0.01
optimizer = "adam"
averaging = "none"
"""


def write(path: Path, sold: list[Any], head: tuple[str, str] = ("sold", "price")) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(head)
        writer.writerows([value, 10 + i % 3] for i, value in enumerate(sold))
    return path


def settings(folder: Path, data: Path, likelihood: str = "poisson") -> str:
    path = folder / "mine.toml"
    path.write_text(SETTINGS.format(name=data, likelihood=likelihood), encoding="utf-8")
    return str(path)


def counts(T: int = 120) -> list[Any]:
    return np.random.RandomState(0).poisson(5 + 4 * (np.arange(T) % 4 == 0)).tolist()


@pytest.fixture(scope="module")
def sales(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run on counts with a price."""
    folder = tmp_path_factory.mktemp("series")
    data = write(folder / "sales.csv", counts())
    assert in_process("train", settings(folder, data), *SMALL, "--out", str(folder / "runs")) == 0
    (run,) = (folder / "runs").glob("mine-*")
    return run


def test_evaluate_and_report(sales: Path, tmp_path: Path, capsys: Any) -> None:
    assert in_process("evaluate", str(sales), "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["unit"], told["per"], told["count"]) == ("nats", "step", 12)
    assert "conventions" not in told, "a single sequence"
    summary = json.loads((sales / "summary.json").read_text())
    assert told["nats"] == pytest.approx(summary["best"]["test"]["nats"], rel=1e-6)
    assert in_process("evaluate", str(sales), "--method", "arithmetic", "--samples", "3") == 0
    assert "12 steps)" in capsys.readouterr().out
    assert in_process("report", str(sales.parent), "--out", str(tmp_path / "page.html")) == 0
    page = (tmp_path / "page.html").read_text()
    assert "nats per step" in page
    assert '<th scope="col">series and model</th>' in page
    assert "sales.csv, LSTM 1×4<" in page, "whether weights are tied is said of words alone"


def test_forecasts_beside_the_naive_one(sales: Path, tmp_path: Path, capsys: Any) -> None:
    arguments = ("generate", str(sales), "--out", str(tmp_path), "--samples", "20", "--noise")
    assert in_process(*arguments) == 0
    shown = capsys.readouterr().out
    assert "3 forecasts of 4 steps of test, one after another, 20 paths each, with noise" in shown
    assert "naive 4" in shown
    told = json.loads((tmp_path / "forecast-1111.json").read_text())
    assert told["forecasts"] == 3
    for kind, words in (("targets", "sold, noise on"), ("without_noise", "sold, noise off")):
        score = told[kind]["sold"]
        assert score["crps"] > 0
        assert set(score["naive"]) == {"4"}
        (line,) = [line for line in shown.splitlines() if line.startswith(words)]
        assert f"{score['crps']:.4g}" in line
    assert (tmp_path / "forecast-1111.png").read_bytes().startswith(b"\x89PNG")
    first = (tmp_path / "forecast-1111.json").read_bytes()
    assert in_process(*arguments) == 0
    assert (tmp_path / "forecast-1111.json").read_bytes() == first, "of the same seed"
    assert in_process(*arguments[:-1]) == 0
    alone = json.loads((tmp_path / "forecast-1111.json").read_text())
    assert alone["targets"] == told["without_noise"]
    assert "without_noise" not in alone


def test_forecasts_of_several_sequences(tmp_path: Path, capsys: Any) -> None:
    """Shops one after another; the last three are test, and one of those is too short."""
    lengths = {"a": 40, "b": 40, "c": 30, "d": 18, "e": 3, "f": 13}
    rows = [f"{shop},{sold},10\n" for shop, n in lengths.items() for sold in counts(n)]
    data = tmp_path / "shops.csv"
    data.write_text("shop,sold,price\n" + "".join(rows))
    file = Path(settings(tmp_path, data))
    columns = 'sequence = "shop"\ntest = 0.5\nvalid = 0.2\n'
    file.write_text(file.read_text().replace("context = 8\n", columns))
    assert in_process("train", str(file), *SMALL, "--out", str(tmp_path / "runs")) == 0
    (run,) = (tmp_path / "runs").glob("mine-*")
    capsys.readouterr()
    assert in_process("generate", str(run), "--samples", "5", "--out", str(tmp_path)) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "5 forecasts of 4 steps of 2 sequences of test (too short: 1), one after" in shown
    told = json.loads((tmp_path / "forecast-1111.json").read_text())
    assert (told["sequences"], told["forecasts"]) == (2, 5)  # 3 in 18 steps after 4, 2 in 13
    errors = [
        abs(sold[t] - sold[t - 4])
        for sold, forecasts in ((counts(18), 3), (counts(13), 2))
        for t in range(4, 4 + 4 * forecasts)
    ]
    assert told["targets"]["sold"]["naive"]["4"] == pytest.approx(np.mean(errors))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--prompt", "the"], "--prompt is for text, and this run does not predict words"),
        (["--top-k", "3"], "--top-k is for text"),
        (["--samples", "0"], "--samples must lie in 1 to 100,000, got 0"),
        (["--length", "99"], "too few for a forecast of 99"),
        (["--out", "no/such"], "--out must be a folder that exists"),
        (["--seed", "-1"], "--seed must be 0 or more"),
    ],
)
def test_what_generate_refuses(
    arguments: list[str], message: str, sales: Path, capsys: Any
) -> None:
    assert in_process("generate", str(sales), *arguments) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("size", ["0", "-3"])
def test_a_batch_size_that_is_not_positive(size: str, sales: Path, capsys: Any) -> None:
    assert in_process("evaluate", str(sales), "--batch-size", size) == 2
    said = capsys.readouterr().err
    assert f"--batch-size must be 1 or more, got {size}." in said
    assert "Series" not in said


def test_a_season_that_no_length_fits(tmp_path: Path, capsys: Any) -> None:
    data = write(tmp_path / "sales.csv", counts(60))
    file = Path(settings(tmp_path, data))
    file.write_text(file.read_text().replace("season = 4", "season = 100"))
    assert in_process("train", str(file), *SMALL, "--out", str(tmp_path / "runs")) == 0
    (run,) = (tmp_path / "runs").glob("mine-*")
    capsys.readouterr()
    for length in ("5", "1"):
        assert in_process("generate", str(run), "--length", length) == 2
        said = capsys.readouterr().err
        assert "No length is small enough, because a season of 100 steps comes before" in said
        assert "smaller data.columns.season, or with more rows in or before the split" in said
        assert "Use a smaller length" not in said


def test_a_length_that_only_the_longest_sequence_is_near_to(tmp_path: Path, capsys: Any) -> None:
    """The message is about a sequence for which a smaller length helps, if there is one."""
    shops = {"a": 30, "b": 30, "c": 3, "d": 13}
    rows = [f"{shop},{sold},10\n" for shop, n in shops.items() for sold in counts(n)]
    data = tmp_path / "shops.csv"
    data.write_text("shop,sold,price\n" + "".join(rows))
    file = Path(settings(tmp_path, data))
    columns = 'sequence = "shop"\ntest = 0.5\nvalid = 0.25\n'
    file.write_text(file.read_text().replace("context = 8\n", columns))
    assert in_process("train", str(file), *SMALL, "--out", str(tmp_path / "runs")) == 0
    (run,) = (tmp_path / "runs").glob("mine-*")
    capsys.readouterr()
    assert in_process("generate", str(run), "--length", "50") == 2
    assert "shop d has 13 steps, too few for a forecast of 50 after the first 4. Use a smaller" in (
        capsys.readouterr().err
    )


def test_forecasts_of_a_stochastic_rnn(tmp_path: Path, capsys: Any) -> None:
    data = write(tmp_path / "sales.csv", counts())
    latent = ("--model.latent.kind", "vrnn", "--model.latent.z_size", "2")
    run = ("train", settings(tmp_path, data), *SMALL, *latent, "--out", str(tmp_path / "runs"))
    assert in_process(*run) == 0
    (folder,) = (tmp_path / "runs").glob("mine-*")
    assert in_process("generate", str(folder), "--samples", "20") == 0
    told = json.loads((folder / "forecast-1111.json").read_text())
    assert told["targets"]["sold"]["crps"] > 0
    assert "20 paths each:" in capsys.readouterr().out


@pytest.mark.long
def test_a_sweep(tmp_path: Path, capsys: Any) -> None:
    """A grid over a series: records and points as for text, in its own unit."""
    data = write(tmp_path / "sales.csv", counts())
    own = SETTINGS.format(name=data, likelihood="poisson")
    grid = tmp_path / "mine.toml"
    grid.write_text(
        f'base = "bikes"\nseeds = [1]\n{own}epochs = 1\n\n[grid]\nmodel.hidden_size = [2, 4]\n'
    )
    out = str(tmp_path / "runs")
    assert in_process("sweep", str(grid), "--jobs", "1", "--out", out) == 0
    shown = capsys.readouterr()
    assert "nats per step" in shown.out
    runs = sorted((tmp_path / "runs" / "mine").glob("hidden_size-*-seed-1-*"))
    assert len(runs) == 2
    bests = [json.loads((run / "summary.json").read_text())["best"] for run in runs]
    points = json.loads((tmp_path / "runs" / "mine" / "points.json").read_text())
    found = sorted(point["valid"]["mean"] for point in points)
    assert found == sorted(best["valid"]["nats"] for best in bests)
    assert points[0]["unit"] == {"name": "nats", "per": "step"}


BAD: dict[str, tuple[list[Any], str, str]] = {
    "a NaN": ([*counts(50), "nan", *counts(50)], "gaussian", "'sold' has 'nan' in row 51"),
    "a gap": ([*counts(50), "", *counts(50)], "gaussian", "'sold' has '' in row 51, expected a"),
    "text": ([*counts(50), "many"], "gaussian", "'sold' has 'many' in row 51"),
    "a count below zero": ([*counts(50), -3], "poisson", "has -3 in row 51, and the likelihood"),
    "half a count": ([*counts(50), 0.5], "poisson", "needs a whole number, 0 or more"),
    "another likelihood": (counts(50), "bernoulli", "the likelihood bernoulli needs 0 or 1"),
    "too short": ([3, 4], "poisson", "has no train data"),
    "a large count": ([*counts(50), "1e30"], "poisson", "has 1e+30 in row 51, and the likelihood"),
    "a count of 20 digits": (
        *([*counts(119), "9" * 20], "poisson"),
        "has 1e+20 in row 120, and the likelihood poisson needs counts of at most 16,777,216",
    ),
    "a count that float32 changes": ([*counts(50), 2**24 + 1], "poisson", "has 16777217 in row 51"),
    "a square that overflows": (
        *([*counts(20), 1e200, *counts(80)], "gaussian"),
        "'sold' has 1e+200 in row 21, too large for the standard deviation of train",
    ),
    "a sum that overflows": ([1e308] * 9 + [-1e308] * 91, "student-t", "has 1e+308 in row 1, too"),
    "a large value in test": (
        *([*counts(99), 1e60, *counts(3)], "scaled-gaussian"),
        "'sold' has 1e+60 in row 100, ",
    ),
    "values that hardly differ": ([1e-200, 2e-200] * 50, "gaussian", "differ by too little"),
    "an underscore": ([*counts(50), "1_0"], "gaussian", "'sold' has '1_0' in row 51, expected a"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_data_is_refused_before_anything_is_written(
    case: str, tmp_path: Path, capsys: Any
) -> None:
    values, likelihood, message = BAD[case]
    data = write(tmp_path / "sales.csv", values)
    path = settings(tmp_path, data, likelihood)
    assert in_process("train", path, *SMALL, "--out", str(tmp_path / "runs")) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(("row", "value"), [(20, 1e308), (20, -1e200), (110, 1e60)])
def test_a_covariate_that_is_too_large(row: int, value: float, tmp_path: Path, capsys: Any) -> None:
    data = write(tmp_path / "sales.csv", counts())
    lines = data.read_text().splitlines()
    lines[row] = f"3,{value}"
    data.write_text("\n".join(lines))
    run = ("train", settings(tmp_path, data), *SMALL, "--out", str(tmp_path / "runs"))
    assert in_process(*run) == 2
    said = capsys.readouterr().err
    assert f"sales.csv: column 'price' has {value:g} in row {row}, " in said
    assert said.count("\n") == 1, "and no warning of numpy"
    assert not (tmp_path / "runs").exists()


def test_a_sequence_of_one_step(tmp_path: Path, capsys: Any) -> None:
    for i, length in enumerate((5, 4, 1, 6)):
        write(tmp_path / f"shop-{i}.csv", counts(length))
    file = settings(tmp_path, tmp_path)
    run = ("train", file, "--out", str(tmp_path / "runs"))
    assert in_process(*run) == 2
    assert "here the splits are sequences of their own. Leave" in capsys.readouterr().err
    Path(file).write_text(Path(file).read_text().replace("context = 8", ""))
    assert in_process(*run) == 2
    assert "shop-2.csv: has one step, expected two or more" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def test_a_csv_without_the_named_column(tmp_path: Path, capsys: Any) -> None:
    data = write(tmp_path / "sales.csv", counts(), head=("solds", "price"))
    assert in_process("train", settings(tmp_path, data), "--out", str(tmp_path / "runs")) == 2
    assert "has no column 'sold'. Its columns are solds, price. Did you mean 'solds'?" in (
        capsys.readouterr().err
    )
    assert not (tmp_path / "runs").exists()


def test_the_file_in_the_docs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "data.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```toml\n([^`]*?\[data\.columns\].*?)```", page, re.DOTALL)
    config = RunConfig.parse(tomllib.loads(example))
    assert config.data.task_name == "series"
    assert config.data.described_columns == Columns(
        ("sold",), "poisson", covariates=("price", "holiday"), sequence="shop", season=7
    )


def test_columns_by_flags(tmp_path: Path, capsys: Any) -> None:
    """The same settings as a file has them, with names separated by commas."""
    data = write(tmp_path / "sales.csv", counts())
    flags = ("--data.name", str(data), "--data.likelihood", "student-t")
    flags += ("--data.columns.targets", "sold, price", "--data.columns.changes", "true")
    run = ("train", "bikes", *flags, *SMALL, "--out", str(tmp_path / "runs"))
    assert in_process(*run) == 0
    (folder,) = (tmp_path / "runs").glob("bikes-*")
    config = json.loads((folder / "config.json").read_text())
    assert config["data"]["columns"]["targets"] == ["sold", "price"]
    assert "nats per step" in capsys.readouterr().out


@pytest.mark.skipif("NOISIN_DATA" not in os.environ, reason="NOISIN_DATA is not set")
def test_music_is_scored_by_both_conventions_and_drawn(tmp_path: Path, capsys: Any) -> None:
    run = ("train", "jsb", *SMALL, "--train.batch_size", "80", "--out", str(tmp_path))
    assert in_process(*run) == 0
    (folder,) = tmp_path.glob("jsb-*")
    capsys.readouterr()
    assert in_process("evaluate", str(folder)) == 0
    shown = capsys.readouterr().out
    assert "4,725 frames)" in shown
    assert "without the first frame of each of 77 sequences" in shown
    assert "(4,648 frames)" in shown
    assert "mean of the sequences" in shown
    assert in_process("generate", str(folder), "--length", "9", "--out", str(tmp_path)) == 0
    roll, _ = parse((tmp_path / "music-1111.mid").read_bytes(), 1)
    assert len(roll) == 9
    assert f"9 frames with {roll.sum()} notes" in capsys.readouterr().out
    assert (tmp_path / "music-1111.png").read_bytes().startswith(b"\x89PNG")
    assert in_process("generate", str(folder), "--samples", "3") == 2
    assert "--samples is for forecasts" in capsys.readouterr().err
    assert in_process("generate", str(folder), "--noise") == 2
    assert "was trained without noise" in capsys.readouterr().err


@pytest.mark.skipif("NOISIN_DATA" not in os.environ, reason="NOISIN_DATA is not set")
@pytest.mark.parametrize(
    "model",
    [
        ("--model.latent.kind", "srnn", "--model.latent.z_size", "2"),
        ("--model.head.kind", "autoregressive"),
    ],
    ids=["srnn", "autoregressive"],
)
def test_music_is_drawn_from_other_models(model: tuple[str, ...], tmp_path: Path) -> None:
    run = ("train", "jsb", *SMALL, *model, "--train.batch_size", "80", "--out", str(tmp_path))
    assert in_process(*run, "--train.tokens", "8000", "--train.clean_tokens", "0") == 0
    (folder,) = tmp_path.glob("jsb-*")
    assert in_process("generate", str(folder), "--length", "9", "--out", str(tmp_path)) == 0
    roll, _ = parse((tmp_path / "music-1111.mid").read_bytes(), 1)
    assert roll.any()
