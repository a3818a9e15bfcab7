"""A model read back from its run, or refused with what is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

import noisin
from noisin.errors import InvalidValue, Unavailable
from noisin.training import RunRecord, restore
from tests.training import toy


def test_restore(tmp_path: Path) -> None:
    record = toy.fit(tmp_path / "run", train={"averaging": "none", "epochs": 1})
    restored = restore(record)
    assert not restored.model.training
    assert restored.vocab == toy.corpus().vocab
    assert (restored.epoch, restored.weights) == (1, "raw")
    assert restored.model.layers[0].rnn.noise == noisin.noise.Gaussian(0.5)
    with pytest.raises(InvalidValue, match="has no averaged weights"):
        restore(record, weights="averaged")


def test_restore_from_what_is_no_run(tmp_path: Path) -> None:
    record = RunRecord(tmp_path)
    with pytest.raises(InvalidValue, match="is not a run"):
        restore(record)
    record.write("config.json", toy.config().to_json())
    with pytest.raises(Unavailable, match=r"vocabulary.json: cannot be read"):
        restore(record)
    record.write("vocabulary.json", toy.corpus().vocab.to_json())
    with pytest.raises(InvalidValue, match=r"environment.json does not"):
        restore(record)
