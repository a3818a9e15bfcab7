"""Train from a config: build the task and the model, and record all settings."""

from __future__ import annotations

from pathlib import Path

import torch

from noisin._util import arguments
from noisin.errors import InvalidValue
from noisin.tasks import Task
from noisin.tasks.base import first_batch, name_of, observation_of
from noisin.training import resume
from noisin.training.build import build_model, build_task
from noisin.training.config import RunConfig
from noisin.training.noise_schedule import NoiseSchedule
from noisin.training.record import RunRecord
from noisin.training.resume import device_to_use
from noisin.training.runtime.device import own_random_stream
from noisin.training.runtime.progress import Progress, RunOutline
from noisin.training.runtime.tracking import find_tracker
from noisin.training.runtime.workers import Workers
from noisin.training.starting import initial_weights
from noisin.training.trainer import Trainer


def run(
    config: RunConfig,
    out: str | Path,
    *,
    task: Task | None = None,
    progress: Progress | None = None,
    workers: Workers | None = None,
) -> RunRecord:
    """Train the model of a config on its task, and record the run in a folder.

    Args:
        config: all settings.
        out: the folder: new, empty, or that of the same run, which is then continued.
        task: the task of the config, if it is already loaded.
        progress: shows the progress of the run.
        workers: the processes that train together.
    """
    _check(config, out)
    trainer = Trainer(config.train, out, settings=config, progress=progress, workers=workers)
    with own_random_stream(device_to_use(trainer.record, config)):
        if task is None:
            with trainer.workers.main_first():
                task = build_task(config)
        torch.manual_seed(config.seed)
        return trainer.fit(
            build_model(config, observation_of(task)), task, NoiseSchedule(config.noise)
        )


def outline(config: RunConfig, out: str | Path) -> RunOutline:
    """What :func:`run` would train in a folder; raises where it would, and writes no record."""
    _check(config, out)
    record = RunRecord(out)
    device = device_to_use(record, config)
    with own_random_stream(device):
        task = build_task(config)
        model = build_model(config, observation_of(task))
        rows = first_batch(task).x.shape[1] * config.train.K
    identity = resume.identity(config, task)
    identity |= initial_weights(config.train.start, record, model, task).identity
    resume.refuse_another(record, config, identity, name_of(task))
    for name in config.train.trackers:
        find_tracker(name)
    return RunOutline(
        record.folder,
        config,
        parameters=sum(weight.numel() for weight in model.parameters()),
        device=device.type,
        threads=resume.threads_to_use(record, config, model, rows),
        done=len(record.metrics),
    )


def _check(config: RunConfig, out: str | Path) -> None:
    arguments.instance("run: config", config, RunConfig, "Read one with RunConfig.from_toml(path).")
    if config.own is not None:
        raise InvalidValue(
            f"run: {out}: the model is {config.own.model.get('name', 'your own')}, which was not "
            f"built from settings. Pass it to Trainer(config.train, out).fit(model, task)."
        )
