"""Train from a config: build the task and the model, and record all settings."""

from __future__ import annotations

from pathlib import Path

import torch

from noisin._util import arguments
from noisin.errors import InvalidValue
from noisin.tasks import Task
from noisin.tasks.base import observation_of
from noisin.training.build import build_model, build_task
from noisin.training.config import RunConfig
from noisin.training.noise_schedule import NoiseSchedule
from noisin.training.record import RunRecord
from noisin.training.runtime.device import find_device, own_random_stream
from noisin.training.runtime.progress import Progress
from noisin.training.runtime.workers import Workers
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
    arguments.instance("run: config", config, RunConfig, "Read one with RunConfig.from_toml(path).")
    if config.own is not None:
        raise InvalidValue(
            f"run: {out}: the model is {config.own.model.get('name', 'your own')}, which was not "
            f"built from settings. Pass it to Trainer(config.train, out).fit(model, task)."
        )
    trainer = Trainer(config.train, out, settings=config, progress=progress, workers=workers)
    with own_random_stream(find_device(config.device)):
        if task is None:
            with trainer.workers.main_first():
                task = build_task(config)
        torch.manual_seed(config.seed)
        return trainer.fit(
            build_model(config, observation_of(task)), task, NoiseSchedule(config.noise)
        )
