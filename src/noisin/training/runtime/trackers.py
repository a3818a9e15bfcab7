"""The trackers that come with noisin. Each imports its package when a run begins.

A run that continues continues there too: it is known by the path of its folder.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from typing import Any

from noisin._util.files import write_atomically
from noisin._util.settings import flat
from noisin.training.config.hash import dump
from noisin.training.runtime.progress import RunOutline

PROJECT = "noisin"


def identity(outline: RunOutline) -> str:
    """Identifies a run of this machine, in letters and digits."""
    return hashlib.sha256(str(outline.folder.absolute()).encode()).hexdigest()[:24]


class TensorBoard:
    """Writes the folder ``tensorboard/`` of a run."""

    def begin(self, outline: RunOutline) -> None:
        """Open the folder; epochs after the one that a run continues from are hidden."""
        from torch.utils.tensorboard import SummaryWriter

        purge = outline.done + 1 if outline.done else None
        self._writer: Any = SummaryWriter(str(outline.folder / "tensorboard"), purge_step=purge)

    def epoch(self, number: int, values: Mapping[str, float]) -> None:
        """Write the numbers of an epoch."""
        for name, value in values.items():
            self._writer.add_scalar(name, value, number)
        self._writer.flush()

    def end(self) -> None:
        """Close the files."""
        self._writer.close()


class WeightsAndBiases:
    """A run of the project ``noisin``, or ``WANDB_PROJECT``; see the docs of wandb for others."""

    def begin(self, outline: RunOutline) -> None:
        """Open the run."""
        import wandb

        self._run: Any = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=outline.title,
            id=identity(outline),
            resume="allow",
            dir=str(outline.folder),
            config=dump(outline.config),
        )

    def epoch(self, number: int, values: Mapping[str, float]) -> None:
        """Log the numbers of an epoch."""
        self._run.log(dict(values), step=number)

    def end(self) -> None:
        """Finish the run."""
        self._run.finish()


class MLflow:
    """A run of the experiment ``noisin``, or of ``MLFLOW_EXPERIMENT_NAME``, at the tracking URI."""

    def begin(self, outline: RunOutline) -> None:
        """Open the run that has the tag of this one, or a new one."""
        from mlflow.tracking import MlflowClient

        self._client: Any = MlflowClient()
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        found = self._client.get_experiment_by_name(name)
        experiment = self._client.create_experiment(name) if found is None else found.experiment_id
        tag = f"tags.`noisin.run` = '{identity(outline)}'"
        runs = self._client.search_runs([experiment], tag, max_results=1)
        if runs:
            self._id = runs[0].info.run_id
            self._client.update_run(self._id, status="RUNNING")
            return
        tags = {"noisin.run": identity(outline), "mlflow.runName": outline.title}
        self._id = self._client.create_run(experiment, tags=tags).info.run_id
        for setting, value in flat(dump(outline.config)).items():
            self._client.log_param(self._id, setting.replace('"', ""), value)

    def epoch(self, number: int, values: Mapping[str, float]) -> None:
        """Log the numbers of an epoch."""
        for name, value in values.items():
            self._client.log_metric(self._id, name, value, step=number)

    def end(self) -> None:
        """Close the run."""
        self._client.set_terminated(self._id)


class Aim:
    """A run of the experiment ``noisin`` in the repository of the current folder."""

    def begin(self, outline: RunOutline) -> None:
        """Open the run whose hash, which Aim chooses, is in the folder, or a new one."""
        import aim

        path = outline.folder / "aim.txt"
        known = path.read_text(encoding="utf-8").strip() if path.exists() else None
        self._run: Any = aim.Run(run_hash=known, experiment=PROJECT)
        write_atomically(path, self._run.hash.encode())
        self._run.name = outline.title
        self._run["settings"] = dump(outline.config)

    def epoch(self, number: int, values: Mapping[str, float]) -> None:
        """Track the numbers of an epoch."""
        for name, value in values.items():
            self._run.track(value, name=name, epoch=number, step=number)

    def end(self) -> None:
        """Close the run."""
        self._run.close()
