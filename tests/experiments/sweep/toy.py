"""Small sweeps on a text of a few words, and one worker in this process."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import optuna
import pytest

from noisin.experiments.sweep import Sweep
from noisin.experiments.sweep.definition import SweepPoint
from noisin.experiments.sweep.leases import LEASE
from noisin.experiments.sweep.ledger import TASK, Ledger, here
from noisin.experiments.sweep.lock import SweepLock
from noisin.experiments.sweep.outcome import all_folders
from noisin.experiments.sweep.worker import Job, Worker
from noisin.training.runtime.signals import Flag, Interrupted

SENTENCES = ["the cat sat on the mat\n", "a dog <unk> in the sun\n", "the dog saw a cat\n", "\n"]


def write_text(folder: Path) -> Path:
    """A corpus of a few hundred words."""
    folder.mkdir(parents=True, exist_ok=True)
    for i, split in enumerate(("train", "valid", "test")):
        lines = [SENTENCES[(j * j + i) % 4] for j in range(90 if split == "train" else 30)]
        (folder / f"{split}.txt").write_text("".join(lines))
    return folder


def settings(text: Path, **train: Any) -> dict[str, Any]:
    return {
        "data": {"name": str(text)},
        "model": {"hidden_size": 4, "num_layers": 1},
        "train": {
            "batch_size": 4,
            "bptt": 12,
            "lr": 2.0,
            "epochs": 2,
            "averaging": "none",
            **train,
        },
        "threads": 1,
    }


def grid(text: Path, *lrs: float, name: str = "toy", **options: Any) -> Sweep:
    """One point for each step size."""
    train = options.pop("train", {})
    points = [SweepPoint(name=f"lr-{lr:g}", settings=settings(text, **train, lr=lr)) for lr in lrs]
    return Sweep(name=name, points=points, **options)


def job(sweep: Sweep, out: Path, session: str = "one") -> Job:
    (out / sweep.name).mkdir(parents=True, exist_ok=True)
    storage = f"sqlite:///{out / sweep.name / 'study.db'}"
    return Job(sweep=sweep, out=out, storage=storage, session=session, threads=1)


def ledger(sweep: Sweep, out: Path, session: str = "one") -> Ledger:
    told = job(sweep, out, session)
    return Ledger(told.sweep, told.out, told.storage, told.session)


class Told(list[dict[str, Any]]):
    """What a worker has told."""

    @property
    def trained(self) -> list[str]:
        """The runs that were at work, once for each time that they were begun."""
        return [message["run"] for message in self if message.keys() == {"run", "epochs", "begun"}]


def work(sweep: Sweep, out: Path, session: str = "one") -> Told:
    """One worker, until nothing is left."""
    told = Told()
    Worker(job(sweep, out, session), Flag(), told.append).work()
    return told


def states(sweep: Sweep, out: Path, session: str = "one") -> list[str]:
    """How each task ended."""
    standings = ledger(sweep, out, session).survey()
    return ["+".join(end.state for end in standing.outcomes) for standing in standings]


def trials(sweep: Sweep, out: Path) -> list[tuple[int, str]]:
    """The trials of the study: the task, and the state."""
    found = ledger(sweep, out).study.get_trials(deepcopy=False)
    return [(trial.user_attrs[TASK], trial.state.name) for trial in found]


def folder(sweep: Sweep, out: Path, task: int = 0) -> Path:
    return all_folders(out)[sweep.tasks[task].runs[0].config.hash()[:12]]


def stopped_after_an_epoch(sweep: Sweep, out: Path) -> int:
    """The exit code of a worker that hears a signal when the first epoch is over."""
    flag = Flag()

    def tell(message: dict[str, Any]) -> None:
        if message.get("finished") == 1:
            flag.signum = signal.SIGINT

    with pytest.raises(Interrupted) as stopped:
        Worker(job(sweep, out), flag, tell).work()
    return stopped.value.exit_code


def take(
    sweep: Sweep,
    out: Path,
    by: Sequence[str],
    then: Callable[[optuna.Trial], Any] = id,
    lease: float = LEASE,
) -> int:
    """Take the next task as a worker does that dies at once; return its number."""
    queue = ledger(sweep, out)
    with SweepLock(out):
        queue.recover()
    queue.leases.holder, queue.leases.lease = " ".join(by), lease
    taken = queue.take()
    assert taken is not None
    then(queue.trial(taken))
    return taken.task


def dead() -> tuple[str, ...]:
    """A process of this machine that has died."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return *here()[:-1], str(process.pid)
