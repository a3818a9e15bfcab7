"""The queue of a sweep on PostgreSQL: ``python -m benchmarks.queue [runs | workers]``.

``runs``
    Tiny runs on two worker groups with host names and folders of their own: what a run costs in
    addition to its training, and how many the queue hands out in a second.
``workers``
    A simulation of 1,000 workers by at most 8 processes, without training: each process takes,
    renews and ends tasks as fast as it can. The rate says how short the runs of 1,000 workers may
    be before they wait for the database.

Both start a server of their own on loopback, and end after a fixed number of tasks or seconds.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from noisin.experiments.collection import collect
from noisin.experiments.sweep import Sweep
from noisin.experiments.sweep.database import disconnect
from noisin.experiments.sweep.definition import SweepPoint
from noisin.experiments.sweep.leases import LEASE, RENEWALS
from noisin.experiments.sweep.ledger import Ledger
from noisin.experiments.sweep.lock import SweepLock
from noisin.experiments.sweep.outcome import Outcome
from noisin.experiments.sweep.standing import Standing
from tests.experiments.sweep.toy import settings
from tests.experiments.sweep.toy import write_text as write_corpus
from tests.postgres import PASSWORD, PostgresServer, postgres_server

RUNS = int(os.environ.get("NOISIN_BENCH_RUNS", "200"))
WORKERS = 1000
SECONDS = 15.0  # of each simulation
PROCESSES = (1, 4, 8)
HOSTNAME = 'hostname "$1" && shift && exec "$@"'


def grid(folder: Path, count: int) -> Sweep:
    """Runs of a few steps each."""
    text = write_corpus(folder / "text")
    points = [
        SweepPoint(name=f"p{n}", settings=settings(text, lr=1 + n / 1000, epochs=1))
        for n in range(count)
    ]
    return Sweep(name="bench", points=points)


def measure_runs(server: PostgresServer, folder: Path) -> dict[str, Any]:
    """Two groups make the runs together; what is not training is overhead."""
    text = write_corpus(folder / "text")
    lrs = [round(1 + n / 1000, 3) for n in range(RUNS)]
    train = "batch_size = 4\nbptt = 12\nepochs = 1\naveraging = 'none'"
    (folder / "bench.toml").write_text(
        f"base = 'manual'\nthreads = 1\n[data]\nname = '{text}'\n[model]\nhidden_size = 4\n"
        f"num_layers = 1\n[train]\n{train}\n[grid]\ntrain.lr = {lrs}\n",
        "utf-8",
    )
    began = time.monotonic()
    groups = [
        subprocess.Popen(
            [
                *("unshare", "--uts", "sh", "-c", HOSTNAME, "-", name),
                *(sys.executable, "-m", "noisin", "sweep", str(folder / "bench.toml")),
                *("--storage", server.address, "--out", str(folder / name)),
            ],
            env={**os.environ, "PGPASSWORD": PASSWORD, "NOISIN_KERNEL": "eager"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for name in ("node-a", "node-b")
    ]
    codes = [group.wait() for group in groups]
    seconds = time.monotonic() - began
    runs = [run for n in ("node-a", "node-b") for run in collect(folder / n) if run.complete]
    trained = [
        json.loads((run.folder / "summary.json").read_text("utf-8"))["seconds"] for run in runs
    ]
    return {
        "codes": codes,
        "runs": len(runs),
        "seconds": round(seconds, 1),
        "runs_per_second": round(len(runs) / seconds, 2),
        "training_seconds_per_run": round(statistics.fmean(trained), 3),
        "other_seconds_per_run": round(2 * seconds / len(runs) - statistics.fmean(trained), 3),
    }


def simulate(address: str, folder: Path, sweep: Sweep, name: str, results: Any) -> None:
    """Be many workers, one after another: take, renew and end tasks until the time is over."""
    (folder / name).mkdir()
    ledger = Ledger(sweep, folder / name, address, name, patience=30)
    last = time.monotonic() + SECONDS
    times: dict[str, list[float]] = {"take": [], "renew": [], "end": []}

    def timed(kind: str, call: Any) -> Any:
        began = time.perf_counter()
        try:
            return call()
        finally:
            times[kind].append(time.perf_counter() - began)

    while time.monotonic() < last:
        lease = timed("take", ledger.take)
        if lease is None:
            break
        trial = timed("take", lambda lease=lease: ledger.trial(lease))
        for _ in range(RENEWALS):
            timed("renew", lease._renew)
            disconnect(ledger.leases.engine)
        end = Standing(sweep.tasks[lease.task], (Outcome("diverged"),))
        timed("end", lambda lease=lease, trial=trial, end=end: ledger.end(lease, trial, end))
    results.put(times)


def measure_workers(server: PostgresServer, folder: Path) -> list[dict[str, Any]]:
    """The rate of tasks and of renewals for each number of processes."""
    context, rows = multiprocessing.get_context("spawn"), []
    for count in PROCESSES:
        place = folder / f"{count}"
        place.mkdir()
        sweep = grid(place, 2000).model_copy(update={"name": f"simulated-{count}"})
        with SweepLock(place):
            Ledger(sweep, place, server.secret_address, "first").recover()
        results = context.Queue()
        processes = [
            context.Process(
                target=simulate, args=(server.secret_address, place, sweep, str(n), results)
            )
            for n in range(count)
        ]
        began = time.monotonic()
        for process in processes:
            process.start()
        found = [results.get(timeout=20 * SECONDS) for _ in processes]
        for process in processes:
            process.join()
        rows.append(_row(count, found, time.monotonic() - began))
        print(json.dumps(rows[-1]), flush=True)
    return rows


def _row(count: int, found: list[dict[str, list[float]]], seconds: float) -> dict[str, Any]:
    merged = {kind: [t for times in found for t in times[kind]] for kind in found[0]}
    tasks = len(merged["end"])
    rate = tasks / SECONDS
    # A worker with runs of D seconds needs 1 / D tasks a second, and its renewals, which are
    # RENEWALS of each simulated task and RENEWALS / LEASE a second in reality.
    renewing = statistics.fmean(merged["renew"]) if merged["renew"] else 0.0
    own = SECONDS * count / tasks - RENEWALS * renewing
    share = WORKERS * RENEWALS / LEASE * renewing / count
    return {
        "processes": count,
        "tasks_per_second": round(rate, 1),
        "statements_per_second": round(rate * (RENEWALS + 2), 1),
        "milliseconds": {kind: round(1e3 * statistics.median(t), 1) for kind, t in merged.items()},
        "share_of_renewals_of_1000": round(share, 3),
        "shortest_runs_of_1000_in_seconds": (
            round(WORKERS * own / count / (1 - share), 1) if share < 1 else None
        ),
        "wall": round(seconds, 1),
    }


def main(parts: list[str]) -> None:
    """Measure the parts, and print them as lines of JSON."""
    print(json.dumps({"processor": platform.processor(), "cores": os.cpu_count()}))
    for part in parts or ["runs", "workers"]:
        with postgres_server() as server, tempfile.TemporaryDirectory() as name:
            measured = {"runs": measure_runs, "workers": measure_workers}[part](server, Path(name))
        if part == "runs":
            print(json.dumps(measured))


if __name__ == "__main__":
    main(sys.argv[1:])
