"""Starting a run, or going on with one: what must be the same, and where to go on from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from noisin.data import Corpus
from noisin.errors import InvalidValue
from noisin.training.checkpoint import Checkpoints
from noisin.training.config import RunConfig
from noisin.training.environment import changes, environment
from noisin.training.record import RunRecord
from noisin.training.run import Run


def identity(config: RunConfig, corpus: Corpus) -> dict[str, str]:
    """What makes two runs one: all settings but the limits, the text, and the vocabulary."""
    return {
        "config": config.hash(limits=False),
        "data": corpus.sha256,
        "vocabulary": corpus.vocab.sha256,
    }


def open_record(record: RunRecord, config: RunConfig, corpus: Corpus) -> int:
    """Begin the record of a run, or see that it is this one's; return the threads to use.

    The number of threads is part of the arithmetic, so a run keeps the one it began with.
    """
    if record.exists:
        _refuse_another(record, config, corpus)
        return int(record.environment["threads"])
    threads = config.threads or torch.get_num_threads()
    record.write("vocabulary.json", corpus.vocab.to_json())
    record.write("environment.json", _surroundings(threads, config, corpus))
    record.write("config.json", config.to_json())  # the last: from now on this is a run
    return threads


def is_complete(record: RunRecord, config: RunConfig) -> bool:
    """Whether the run has ended, by these very limits."""
    return record.summary is not None and record.config.hash() == config.hash()


def go_back(
    run: Run, record: RunRecord, checkpoints: Checkpoints, note: Callable[[str], None]
) -> None:
    """Put a new run where the newest good checkpoint was made; metrics beyond it are dropped."""
    checkpoints.clean_up()
    newest = checkpoints.newest(note)
    if newest is not None:
        run.load(newest)
        checkpoints.set_aside(newer_than=newest.manifest.number)
    record.cut_metrics(run.offset)


def update_record(record: RunRecord, config: RunConfig, corpus: Corpus, run: Run) -> None:
    """Note on what and with which limits the run goes on."""
    if run.step == 0:
        return
    before = record.environment
    new = changes(before, _surroundings(int(before["threads"]), config, corpus))
    if new:
        resumed = [*before.get("resumed", []), {"step": run.step, **new}]
        record.write("environment.json", {**before, "resumed": resumed})
    record.remove_summary()  # it has not ended as that says
    record.write("config.json", config.to_json())


def _surroundings(threads: int, config: RunConfig, corpus: Corpus) -> dict[str, Any]:
    return {
        **environment(threads, config.device),
        "data": {
            "name": corpus.name,
            "sha256": corpus.sha256,
            "tokens": [len(corpus.train), len(corpus.valid), len(corpus.test)],
        },
        "vocabulary": {"sha256": corpus.vocab.sha256, "words": len(corpus.vocab)},
    }


def _refuse_another(record: RunRecord, config: RunConfig, corpus: Corpus) -> None:
    before = record.config
    if before.hash(limits=False) != config.hash(limits=False):
        differences = "; ".join(before.differences(config))
        raise InvalidValue(
            f"training: {record.folder} holds a run with other settings: {differences}. Use the "
            f"same to go on with it, or another folder."
        )
    known = record.environment
    for name, found in (("data", corpus.sha256), ("vocabulary", corpus.vocab.sha256)):
        if _hash(known, name) != found:
            raise InvalidValue(
                f"training: {record.folder} holds a run on other data: its {name} has the sha256 "
                f"{_hash(known, name)}, and that of {corpus.name!r} is {found}. Use the same to go "
                f"on with it, or another folder."
            )


def _hash(known: Mapping[str, Any], name: str) -> str:
    section = known.get(name)
    return str(section.get("sha256")) if isinstance(section, dict) else "unknown"
