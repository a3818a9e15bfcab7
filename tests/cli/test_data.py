"""``noisin data``."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import noisin.data
from tests.cli.run import in_process


def test_table(text: Path, capsys: Any) -> None:
    assert in_process("data", str(text)) == 0
    shown = capsys.readouterr().out
    corpus = noisin.data.load(text)
    assert f"cats: {len(corpus.vocab)} words, from {text}" in shown
    assert f"{len(corpus.train)}" in shown
    assert "12-grams also in train" in shown
    assert "<unk>" in shown
    assert corpus.sha256 in shown
    assert corpus.vocab.sha256 in shown


def test_json(text: Path, capsys: Any) -> None:
    assert in_process("data", str(text), "--json") == 0
    told = json.loads(capsys.readouterr().out)
    facts = noisin.data.describe(noisin.data.load(text))
    assert told["tokens"] == facts.tokens
    assert told["overlap"] == facts.overlap
    assert told["sha256"] == facts.sha256


def test_the_list(capsys: Any) -> None:
    assert in_process("data", "--list") == 0
    shown = capsys.readouterr().out
    for row in ("manual text perplexity", "jsb music nats per frame", "ett series nats per step"):
        assert any(line.split() == row.split() for line in shown.splitlines()), row
    assert in_process("data", "--list", "--json") == 0
    assert {"name": "ptb", "task": "text", "unit": "perplexity"} in json.loads(
        capsys.readouterr().out
    )


@pytest.mark.skipif("NOISIN_DATA" not in os.environ, reason="NOISIN_DATA is not set")
def test_music_and_series(capsys: Any) -> None:
    assert in_process("data", "jsb", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["sequences"] == {"train": 229, "valid": 76, "test": 77}
    assert told["steps"]["test"] == 4_725
    assert (told["shortest"]["test"], told["longest"]["test"]) == (32, 160)
    assert round(told["density"]["test"], 4) == 0.0442
    assert in_process("data", "ett") == 0
    shown = capsys.readouterr().out
    assert "HUFL, HULL, MUFL, MULL, LUFL, LULL, OT; 31 covariates; scaled-gaussian" in shown
    assert "steps, scored" in shown
    assert "8,640" in shown
    assert in_process("data", "bikes", "--data", "/nowhere") == 2
    assert "hour.csv was not found" in capsys.readouterr().err


SALES = """
[data]
name = "{path}"
likelihood = "poisson"
columns.targets = ["sold"]
columns.covariates = ["price"]
columns.sequence = "shop"
[model]
tied = false
"""


def test_your_own_series(tmp_path: Path, capsys: Any) -> None:
    rows = [f"{shop},{day % 3},{day / 8}" for shop in "abcde" for day in range(4 + ord(shop) - 97)]
    (tmp_path / "sales.csv").write_text("\n".join(["shop,sold,price", *rows]), "utf-8")
    file = tmp_path / "sales.toml"
    file.write_text(SALES.format(path=tmp_path / "sales.csv"), "utf-8")
    assert in_process("data", str(file), "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["name"], told["values"]) == ("sales", "sold; 1 covariate; poisson")
    assert told["sequences"] == {"train": 3, "valid": 1, "test": 1}
    assert (told["longest"], told["shortest"]["train"]) == ({"train": 6, "valid": 7, "test": 8}, 4)
    assert in_process("data", str(file)) == 0
    assert "steps, scored" in capsys.readouterr().out
    file.write_text(SALES.format(path=tmp_path / "sales.csv").replace("sold", "gone"), "utf-8")
    assert in_process("data", str(file)) == 2
    assert "gone" in capsys.readouterr().err


def test_a_file_of_settings_of_a_text(text: Path, tmp_path: Path, capsys: Any) -> None:
    file = tmp_path / "cats.toml"
    file.write_text(f'data.name = "{text}"\ndata.tokens = "characters"\n', "utf-8")
    assert in_process("data", str(file), "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert in_process("data", str(text), "--tokens", "characters", "--json") == 0
    assert json.loads(capsys.readouterr().out) == told


@pytest.mark.parametrize(
    ("settings", "flags", "said"),
    [
        ('data.name = "manual"', ["--lower"], "Leave the flags out"),
        ('data.name = "manual"', ["--data", "."], "Leave the flags out"),
        ('[compare.a]\ndata.name = "manual"\n[compare.b]\ndata.name = "ptb"', [], "different data"),
        ('data.name = "mine"\ndata.task = "mine:Task"', [], "a task of your own, mine:Task"),
    ],
)
def test_files_that_say_too_much_or_nothing(
    settings: str, flags: list[str], said: str, tmp_path: Path, capsys: Any
) -> None:
    (tmp_path / "some.toml").write_text(settings, "utf-8")
    assert in_process("data", str(tmp_path / "some.toml"), *flags) == 2
    assert said in capsys.readouterr().err


def test_the_built_in_text_is_the_default(capsys: Any) -> None:
    assert in_process("data") == 0
    assert "from pydoc_data.topics of CPython" in capsys.readouterr().out
