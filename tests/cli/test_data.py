"""``noisin data``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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


def test_the_built_in_text_is_the_default(capsys: Any) -> None:
    assert in_process("data") == 0
    assert "from pydoc_data.topics of CPython" in capsys.readouterr().out
