"""Run a sweep. Needs Optuna: ``pip install 'noisin[sweep]'``."""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

from noisin import data
from noisin._util.files import write_atomically, writing
from noisin.errors import InvalidValue
from noisin.experiments.sweep.address import hidden, storage_of
from noisin.experiments.sweep.database import open_database
from noisin.experiments.sweep.definition import Sweep, SweepRun
from noisin.experiments.sweep.engine import Engine, LocalEngine
from noisin.experiments.sweep.exchange import fetch_records, publish_rest
from noisin.experiments.sweep.lock import SweepLock
from noisin.experiments.sweep.mirror import Mirror, is_url, working_folder
from noisin.experiments.sweep.outcome import DIGITS, all_folders
from noisin.experiments.sweep.sampling import settings
from noisin.experiments.sweep.standing import Standing, point_rows, write_rows
from noisin.experiments.sweep.worker import Job
from noisin.experiments.sweep.workers import Show, WorkerPool
from noisin.training.config import DataConfig, RunConfig
from noisin.training.record import RunRecord
from noisin.training.runtime.signals import Interrupted, caught

START = 20.0  # seconds to wait for a database server that is just being started
WAITING = {"lease": "NOISIN_LEASE", "patience": "NOISIN_PATIENCE"}


def run(
    sweep: Sweep,
    out: str | Path,
    jobs: int = 1,
    storage: str | None = None,
    show: Show = lambda *_: None,
    say: Callable[[str], None] = lambda _: None,
    engine: Engine = LocalEngine(),  # noqa: B008 - it has no state
) -> list[Standing]:
    """Make all runs that do not exist yet; return how each task ended.

    Args:
        sweep: what to run, such as :func:`noisin.experiments.sweep.read` gives.
        out: the folder of all sweeps; the runs of this one are in a folder of its name. Or a URL,
            such as ``s3://bucket/runs``, to which a folder of this machine is copied.
        jobs: the number of workers, which share the threads of the engine.
        storage: the address of a database; by default ``NOISIN_STORAGE``, or else a SQLite file in
            the sweep's folder.
        show: called several times a second with the state of all tasks and workers.
        say: called with messages for the user.
        engine: starts the workers: by default as processes on this machine; see
            :class:`noisin.experiments.sweep.ray_engine.RayEngine` for a Ray cluster.

    Raises:
        Interrupted: after Ctrl-C or SIGTERM; all runs are saved, and the same call continues.
    """
    waiting = _waiting()
    url = str(out) if is_url(str(out)) else None
    mirror = Mirror(url, sweep.name) if url else None
    out = working_folder(url) if url else Path(out).absolute()
    corpora = _load(sweep)
    home = out / sweep.name
    job = Job(
        sweep=sweep,
        out=out,
        url=url,
        storage=storage_of(storage) or f"sqlite:///{home / 'study.db'}",
        session=f"{socket.gethostname()} {os.getpid()} {time.time_ns()}",
        threads=engine.threads(jobs),
        is_recovered=True,
        **waiting,
    )
    _prepare(job, mirror, home)
    ledger = job.ledger()
    if mirror is not None:
        fetch_records(mirror, sweep, ledger.survey(), home)
    with SweepLock(out):
        _write(home / "sweep.json", sweep.model_dump(mode="json"))
        _write(home / "sampler.json", settings(sweep.search))
        ledger.recover()
    standings = ledger.survey()
    _refuse_other_data(standings, out, corpora)
    left = sum(not standing.is_over for standing in standings)
    if left:
        pool = WorkerPool(job, ledger, min(jobs, left), show, say, engine)
        standings = _work(pool, hidden(url) if url else str(home))
    if mirror is not None:
        publish_rest(mirror, standings, home)
    with SweepLock(out):
        write_rows(point_rows(standings), home / "points.json")
    return standings


def _prepare(job: Job, mirror: Mirror | None, home: Path) -> None:
    """Check the database and the URL before the folder of the sweep is created.

    A database in that folder is created with it.
    """

    def check() -> None:
        # With less patience than the workers have: it may be the wrong address.
        open_database(job.storage, min(START, job.patience)).engine.dispose()

    is_inside = Path(job.storage.removeprefix("sqlite:///")).absolute().is_relative_to(job.out)
    if not is_inside:
        check()
    if mirror is not None:
        mirror.probe()
    with writing(home):
        home.mkdir(parents=True, exist_ok=True)
    if is_inside:
        check()


def _waiting() -> dict[str, float]:
    """The times of a job that the environment changes."""
    known = {name: os.environ.get(variable, "") for name, variable in WAITING.items()}
    try:
        chosen = {name: float(text) for name, text in known.items() if text}
    except ValueError:
        chosen = {"": 0.0}
    if not all(0.5 <= seconds <= 86400 for seconds in chosen.values()):
        raise InvalidValue(
            f"{' and '.join(WAITING.values())} must be seconds between 0.5 and 86400, got {known}."
        )
    return chosen


def _write(path: Path, content: object) -> None:
    write_atomically(path, (json.dumps(content, indent=2) + "\n").encode())


def _work(pool: WorkerPool, home: str) -> list[Standing]:
    with caught() as flag:
        pool.work(flag)
        if flag.signum is not None and not all(s.is_over for s in pool.standings):
            raise Interrupted(
                flag.signum,
                f"stopped; all runs are saved in {home}. Run the same command again to continue.",
            )
    return pool.standings


def _load(sweep: Sweep) -> dict[DataConfig, str]:
    """The hashes of the data of the sweep, loaded now so that what is missing stops it at once."""
    runs = [run for task in _examples(sweep) for run in task]
    configs = {run.config.data: run.config for run in runs}
    return {place: _sha256(config) for place, config in configs.items()}


def _sha256(config: RunConfig) -> str:
    row = config.data.task_row
    if row is not None and row.words:  # which needs no torch
        place, tokenization = config.data, config.data.tokenization
        return data.load(place.name, place.folder, **asdict(tokenization)).sha256
    from noisin.tasks.base import facts_of
    from noisin.training.build import build_task

    return str(facts_of(build_task(config))["data"]["sha256"])


def _examples(sweep: Sweep) -> Iterable[Sequence[SweepRun]]:
    if sweep.search is None:
        return [task.runs for task in sweep.tasks]
    return [sweep.searched(values).runs for values in sweep.search.examples()]


def _refuse_other_data(
    standings: Iterable[Standing], out: Path, corpora: dict[DataConfig, str]
) -> None:
    """Check that the complete runs were trained on the same text."""
    folders = all_folders(out)
    for standing in standings:
        for run, end in standing.runs:
            expected = corpora.get(run.config.data)
            if end.state != "complete" or expected is None:
                continue
            folder = folders.get(run.digest[:DIGITS])
            # A run that another machine has completed may not be here, or only its beginning.
            if folder is None or (record := RunRecord(folder)).summary is None:
                continue
            if (found := record.identity["data"]) != expected:
                raise InvalidValue(
                    f"sweep: {record.folder} was trained on another text: its sha256 is {found}, "
                    f"and that of {run.config.data.name!r} is {expected}. Choose another folder."
                )
