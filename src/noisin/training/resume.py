"""Start a run or continue one: what must match, and where to continue."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from noisin._util.products import Choice, choice_of
from noisin.errors import InvalidValue
from noisin.recurrent.kernels import compiled
from noisin.tasks import Task
from noisin.tasks.base import facts_of
from noisin.training.build import threads_worthwhile
from noisin.training.checkpoint import Checkpoints
from noisin.training.config import RunConfig
from noisin.training.record import RunRecord
from noisin.training.runtime.device import find_device
from noisin.training.runtime.environment import changes, cores, environment
from noisin.training.runtime.products import chosen_products
from noisin.training.runtime.workers import Workers
from noisin.training.state import TrainState

THREADS_PER_CORE = 4  # with many more threads, a run would seem to hang


def identity(config: RunConfig, task: Task) -> dict[str, str]:
    """The :attr:`RunRecord.identity` of a run with this config and task."""
    hashes = {name: str(fact["sha256"]) for name, fact in facts_of(task).items()}
    return {"config": config.hash(limits=False), **hashes}


def is_new(record: RunRecord) -> bool:
    """Whether there is no run in the folder yet; its settings are written when it starts."""
    return not record.exists


def threads_to_use(record: RunRecord, config: RunConfig, model: nn.Module, rows: int) -> int:
    """The number of threads. It affects rounding, so a continued run keeps its number."""
    if not is_new(record):
        return record.threads
    if config.threads is None:
        return min(torch.get_num_threads(), threads_worthwhile(model, rows))
    found = cores()
    if found is not None and config.threads > THREADS_PER_CORE * found:
        raise InvalidValue(
            f"training: threads = {config.threads}, but only {found} cores are available. More "
            f"threads than cores slow training down: choose {found} or fewer."
        )
    return config.threads


def device_to_use(record: RunRecord, config: RunConfig) -> torch.device:
    """The device. A continued run keeps the one that ``"auto"`` chose: it draws the noise."""
    if config.device != "auto" or is_new(record):
        return find_device(config.device)
    began = str(record.environment.get("device"))
    return find_device(began, f"The run in {record.folder} began on it: continue it there.")


def products_to_use(record: RunRecord, workers: Workers) -> Choice:
    """The libraries of the products, chosen by the main process for all.

    They affect rounding, so a continued run keeps its own.
    """
    text = ""
    if workers.main:
        text = chosen_products() if is_new(record) else record.products
    return choice_of(workers.tell_text(text), str(record.folder / "environment.json"))


def refuse_another(record: RunRecord, config: RunConfig, now: Mapping[str, str], data: str) -> None:
    """Raise if the folder contains a different run, or one that cannot be continued."""
    if is_new(record):
        if record.metrics:
            raise InvalidValue(
                f"training: {record.folder} has the metrics.jsonl of a run but no config.json. "
                f"Restore it, or choose another folder."
            )
        return
    before = record.identity
    if before["config"] != now["config"]:
        differences = "; ".join(record.config.differences(config))
        raise InvalidValue(
            f"training: {record.folder} contains a run with other settings: {differences}. Use "
            f"the same settings to continue it, or another folder."
        )
    for name in now:
        if name == "start" and before.get(name) != now[name]:
            raise InvalidValue(
                f"training: {record.folder} contains a run that started from other weights: their "
                f"file has the sha256 {before.get(name)}, and that of {config.train.start} is now "
                f"{now[name]}. Restore that run, or use another folder."
            )
        if before.get(name) != now[name]:
            raise InvalidValue(
                f"training: {record.folder} contains a run on other data: its {name} has the "
                f"sha256 {before.get(name)}, and that of {data!r} is {now[name]}. Use the same "
                f"data to continue it, or another folder."
            )
    epochs = len(record.metrics)
    if record.summary is not None and epochs > config.train.epochs:
        raise InvalidValue(
            f"training: {record.folder} contains a run of {epochs} epochs, and train.epochs is "
            f"{config.train.epochs}. Limits can be raised, not lowered: use another folder."
        )
    refuse_without_checkpoints(record, config)


def refuse_without_checkpoints(record: RunRecord, config: RunConfig) -> None:
    """Raise if starting from the beginning would overwrite results in the folder.

    A process that is killed before its first checkpoint leaves an empty folder of checkpoints and
    at most the line of the first epoch, which is reproduced exactly.
    """
    if is_complete(record, config) or Checkpoints(record.checkpoints, {}).numbers():
        return
    epochs = len(record.metrics)
    if record.summary is not None:
        raise InvalidValue(
            f"training: {record.folder} contains a complete run without its checkpoints, so it "
            f"cannot be continued to other limits. Restore them, or choose another folder."
        )
    if epochs > 1 or (epochs and not record.checkpoints.is_dir()):
        raise InvalidValue(
            f"training: {record.folder} contains a run of {epochs} epochs without its checkpoints, "
            f"so it cannot be continued. Restore them, or start again in another folder."
        )


def is_complete(record: RunRecord, config: RunConfig) -> bool:
    """Whether the run has ended with exactly these limits."""
    return record.summary is not None and record.config.hash() == config.hash()


def go_back(
    state: TrainState, checkpoints: Checkpoints, record: RunRecord, note: Callable[[str], None]
) -> None:
    """Load the newest valid checkpoint, if there is one."""
    checkpoints.clean_up()
    newest = checkpoints.newest(note)
    if newest is not None:
        for weights in newest.manifest.best:  # needed at the end of the run: raise now
            checkpoints.best(newest, weights)
        state.load(newest)
        _check_metrics(state, record)
        checkpoints.set_aside(newer_than=newest.manifest.number)


def _check_metrics(state: TrainState, record: RunRecord) -> None:
    """Check that the epochs before the checkpoint are recorded; the summary needs them."""
    epochs = len(record.metrics_until(state.offset))
    if epochs != state.epoch:
        raise InvalidValue(
            f"training: {record.folder / 'metrics.jsonl'} has {epochs} epochs, and the checkpoint "
            f"was made after {state.epoch}. Restore the whole file, or start again in another "
            f"folder."
        )


def write_record(
    record: RunRecord, config: RunConfig, task: Task, state: TrainState, start: Mapping[str, Any]
) -> None:
    """Create the record, or truncate it to where the run continues.

    ``start`` is the entry of the weights that the run starts from, if they are another run's.
    """
    now = {**_surroundings(state.device.type, task), **start}
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
    record.write("config.json", config.to_json())  # its presence marks a run
    record.make_checkpoints()  # after it, because a folder with checkpoints alone is not a run


def _surroundings(device: str, task: Task) -> dict[str, Any]:
    observation = getattr(task, "observation", None)
    known = {} if observation is None else {"observation": observation.to_json()}
    return {
        **environment(torch.get_num_threads(), device),
        "kernel": compiled.origin(),
        "products": chosen_products(),
        "unit": {"name": task.unit.name, "per": task.unit.per},
        **known,
        **facts_of(task),
    }
