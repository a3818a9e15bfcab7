"""``noisin train``: one run, runs side by side, going on, and the picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from noisin.cli import train
from noisin.experiments import comparison
from noisin.experiments.pictures import learning_curves
from noisin.tasks.unit import PERPLEXITY
from noisin.training import RunRecord
from noisin.training.scores import in_unit
from tests.cli.conftest import SMALL
from tests.cli.run import in_process

EPOCHS = ("--train.epochs", "2")


def test_one_run(run: Path) -> None:
    record = RunRecord(run)
    assert record.summary is not None
    assert record.summary["epochs"] == 2
    config = record.config
    assert config.noise is not None
    assert (config.noise.gamma, config.model.hidden_size, config.train.lr) == (0.5, 8, 5.0)
    assert config.train.averaging == "from_start", "of the paper's recipe"
    assert (run / "learning-curves.svg").read_text().count("<svg") == 1
    assert (run / "learning-curves.png").stat().st_size > 5_000


@pytest.fixture
def small_compare(text: Path, tmp_path: Path) -> list[str]:
    return ["train", "--data.name", str(text), *SMALL, *EPOCHS, "--out", str(tmp_path / "r")]


def test_the_main_job(small_compare: list[str], tmp_path: Path, capsys: Any) -> None:
    """All of it, on a small text: three records, a table, the rows, the picture; and again."""
    assert in_process(*small_compare) == 0
    printed = capsys.readouterr()
    (folder,) = (tmp_path / "r").iterdir()
    names = ["no-noise", "noise", "dropout"]
    records = {name: RunRecord(folder / name) for name in names}
    configs = {name: record.config for name, record in records.items()}
    assert [configs[name].noise is not None for name in names] == [False, True, False]
    assert [configs[name].model.dropout.output > 0 for name in names] == [False, False, True]
    assert len({config.seed for config in configs.values()}) == 1
    rows = json.loads((folder / "comparison.json").read_text())
    assert [(row["run"], row["weights"]) for row in rows] == [
        (name, weights) for name in names for weights in ("raw", "averaged")
    ]
    for row in rows:
        summary = records[row["run"]].summary
        assert summary is not None
        assert row["unit"] == {"name": "perplexity", "per": "word"}
        assert row["test"] == in_unit(summary[row["weights"]]["test"], PERPLEXITY)
        assert row["counts"] == (row["weights"] == summary["best"]["weights"])
        assert row["gap"] == pytest.approx(row["valid"] - row["train"])
        assert f"{row['test']:.1f}" in printed.out
        assert f"{row['best_epoch']} of 2" in printed.out
    assert (folder / "learning-curves.svg").exists()
    assert str(folder) in printed.out
    assert printed.err.count("epoch  2") == 3, "progress, in plain lines"
    metrics = [(folder / name / "metrics.jsonl").read_bytes() for name in names]
    assert in_process(*small_compare) == 0
    assert capsys.readouterr().err == "", "complete runs are not repeated"
    assert metrics == [(folder / name / "metrics.jsonl").read_bytes() for name in names]


def test_a_dry_run(
    small_compare: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """Folders, sizes and states as the real one has them; nothing is written."""
    monkeypatch.setenv("COLUMNS", "80")
    assert in_process(*small_compare, "--dry-run") == 0
    told = capsys.readouterr().out
    assert not (tmp_path / "r").exists()
    assert max(map(len, told.replace(str(tmp_path), "").splitlines())) <= 80
    assert told.count("(new)") == 3
    assert in_process(*small_compare) == 0
    printed = capsys.readouterr()
    (folder,) = (tmp_path / "r").iterdir()
    for name in ("no-noise", "noise", "dropout"):
        record = RunRecord(folder / name)
        assert f"in {folder / name} (new)" in told
        size = f"{record.summary['parameters']:,} parameters; cpu, {record.threads} thread"
        assert size in " ".join(told.split())
        header = next(text for text in printed.err.splitlines() if text.startswith(f"{name}: "))
        assert header in " ".join(told.split()), "what the run says when it begins"
    assert in_process(*small_compare, "--dry-run") == 0
    assert capsys.readouterr().out.count("(complete)") == 3
    config = (folder / "noise" / "config.json").read_text()
    (folder / "noise" / "config.json").write_text(config.replace('"seed": 1111', '"seed": 1'))
    assert in_process(*small_compare, "--dry-run") == 2
    assert "contains a run with other settings" in capsys.readouterr().err


def test_numbers_are_whole_on_a_narrow_terminal(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    train._print(comparison.rows([RunRecord(run)]))
    shown = capsys.readouterr().out
    assert "best epoch" in shown
    assert run.name[:12] in shown, "which is folded"
    assert "…" not in shown


def test_other_settings_another_folder_but_not_other_limits(
    text: Path, tmp_path: Path, capsys: Any
) -> None:
    base = ("train", "manual", "--data.name", str(text), *SMALL, "--out", str(tmp_path))
    assert in_process(*base, "--train.epochs", "1") == 0
    assert len(list(tmp_path.iterdir())) == 1
    assert in_process(*base, "--train.epochs", "2") == 0
    (folder,) = tmp_path.iterdir()
    assert len(RunRecord(folder).metrics) == 2, "it went on"
    assert in_process(*base, "--train.epochs", "1", "--seed", "2") == 0
    assert len(list(tmp_path.iterdir())) == 2


def test_a_file_of_ones_own(text: Path, tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        f"""
        base = "manual"
        threads = 1
        [data]
        name = "{text}"
        [model]
        hidden_size = 4
        [train]
        epochs = 1
        batch_size = 4
        [compare.a.noise]
        gamma = 0.1
        [compare.b.noise]
        std = 0.2
        """
    )
    assert in_process("train", str(path), "--out", str(tmp_path / "r")) == 0
    (folder,) = (tmp_path / "r").iterdir()
    assert folder.name.startswith("mine-")
    assert sorted(p.name for p in folder.iterdir() if p.is_dir()) == ["a", "b"]


def test_without_matplotlib(
    small_compare: list[str], monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.setattr(learning_curves, "find_spec", lambda _: None)
    assert in_process(*small_compare, "--train.epochs", "1", *()) == 2, "given twice"
    capsys.readouterr()
    assert in_process(*small_compare) == 0
    assert "run pip install 'noisin[plot]' and the same command again" in " ".join(
        capsys.readouterr().out.split()
    )


def test_a_text_too_short(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "short.txt"
    path.write_text("a b c\n" * 30)
    arguments = ("--data.name", str(path), "--out", str(tmp_path / "r"))
    assert in_process("train", "manual", *arguments) == 2
    assert "tokens are too few for" in capsys.readouterr().err
