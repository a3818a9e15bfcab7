"""Starting a run, or continuing one: what must be the same, and where to continue from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from noisin.errors import InvalidValue
from noisin.tasks import Task
from noisin.tasks.base import facts_of
from noisin.training.build import threads_worthwhile
from noisin.training.checkpoint import Checkpoints
from noisin.training.config import RunConfig
from noisin.training.record import RunRecord
from noisin.training.runtime.environment import changes, cores, environment
from noisin.training.state import TrainState

THREADS_PER_CORE = 4  # a few too many are slow; many more would seem to hang


def identity(config: RunConfig, task: Task) -> dict[str, str]:
    """What a run would have for :attr:`RunRecord.identity`."""
    hashes = {name: str(fact["sha256"]) for name, fact in facts_of(task).items()}
    return {"config": config.hash(limits=False), **hashes}


def is_new(record: RunRecord) -> bool:
    """Whether there is no run in the folder yet: its settings are written when it begins."""
    return not record.exists


def threads_to_use(record: RunRecord, config: RunConfig, model: nn.Module, rows: int) -> int:
    """The number of threads is part of the arithmetic: a run keeps the one it began with."""
    if not is_new(record):
        return record.threads
    if config.threads is None:
        return min(torch.get_num_threads(), threads_worthwhile(model, rows))
    found = cores()
    if found is not None and config.threads > THREADS_PER_CORE * found:
        raise InvalidValue(
            f"training: threads = {config.threads}, and {found} cores can be used here. More "
            f"threads than cores only wait for each other: choose {found} or fewer."
        )
    return config.threads


def refuse_another(record: RunRecord, config: RunConfig, now: Mapping[str, str], data: str) -> None:
    """See that the run in the folder, if there is one, is this one and can be continued."""
    if is_new(record):
        if record.metrics:
            raise InvalidValue(
                f"training: {record.folder} has metrics.jsonl of a run and no config.json. Put "
                f"that back, or choose another folder."
            )
        return
    before = record.identity
    if before["config"] != now["config"]:
        differences = "; ".join(record.config.differences(config))
        raise InvalidValue(
            f"training: {record.folder} contains a run with other settings: {differences}. Use the "
            f"same to continue it, or another folder."
        )
    for name in now:
        if before.get(name) != now[name]:
            raise InvalidValue(
                f"training: {record.folder} contains a run on other data: its {name} has the "
                f"sha256 {before.get(name)}, and that of {data!r} is {now[name]}. Use the same to "
                f"continue it, or another folder."
            )
    refuse_without_checkpoints(record, config)


def refuse_without_checkpoints(record: RunRecord, config: RunConfig) -> None:
    """See that to start from the beginning would not replace what the folder holds.

    A process that is killed before it has saved leaves the folder of the checkpoints empty, and at
    most the line of the first epoch, which will be the same again.
    """
    if is_complete(record, config) or Checkpoints(record.checkpoints, {}).numbers():
        return
    epochs = len(record.metrics)
    if record.summary is not None:
        raise InvalidValue(
            f"training: {record.folder} holds a complete run without its checkpoints, so it cannot "
            f"be continued to other limits. Put them back, or choose another folder."
        )
    if epochs > 1 or (epochs and not record.checkpoints.is_dir()):
        raise InvalidValue(
            f"training: {record.folder} holds a run of {epochs} epochs without its checkpoints, so "
            f"it cannot be continued. Put them back, or choose another folder to start again."
        )


def is_complete(record: RunRecord, config: RunConfig) -> bool:
    """Whether the run has ended, by these very limits."""
    return record.summary is not None and record.config.hash() == config.hash()


def go_back(
    state: TrainState, checkpoints: Checkpoints, record: RunRecord, note: Callable[[str], None]
) -> None:
    """Put a new run where the newest good checkpoint was made, if there is one."""
    checkpoints.clean_up()
    newest = checkpoints.newest(note)
    if newest is not None:
        for weights in newest.manifest.best:  # the end of the run needs them: refuse now
            checkpoints.best(newest, weights)
        state.load(newest)
        _check_metrics(state, record)
        checkpoints.set_aside(newer_than=newest.manifest.number)


def _check_metrics(state: TrainState, record: RunRecord) -> None:
    """See that the epochs before the checkpoint are there, which the summary will need."""
    epochs = len(record.metrics_until(state.offset))
    if epochs != state.epoch:
        raise InvalidValue(
            f"training: {record.folder / 'metrics.jsonl'} has {epochs} epochs up to where the "
            f"checkpoint was made, and that was after {state.epoch}. Put the whole file back, or "
            f"start anew in another folder."
        )


def write_record(record: RunRecord, config: RunConfig, task: Task, state: TrainState) -> None:
    """Begin the record, or bring it to where the run continues."""
    now = _surroundings(torch.get_num_threads(), config, task)
    for name, content in getattr(task, "files", {}).items():
        record.write(name, content)
    if state.step == 0:
        record.write("environment.json", now)
    else:
        before = record.environment
        new = changes(before, now)
        if new:
            resumed = [*before.get("resumed", []), {"step": state.step, **new}]
            record.write("environment.json", {**before, "resumed": resumed})
    record.cut_metrics(state.offset)  # the rest will be written again
    record.remove_summary()
    record.make_checkpoints()
    record.write("config.json", config.to_json())  # the last: from now on this is a run


def _surroundings(threads: int, config: RunConfig, task: Task) -> dict[str, Any]:
    observation = getattr(task, "observation", None)
    known = {} if observation is None else {"observation": observation.to_json()}
    return {
        **environment(threads, config.device),
        "unit": {"name": task.unit.name, "per": task.unit.per},
        **known,
        **facts_of(task),
    }
