"""The queue of a sweep on PostgreSQL: ``python -m benchmarks.queue [runs | workers]``.

``runs``
    Tiny runs on two worker groups with host names and folders of their own: what a run costs in
    addition to its training, and how many the queue hands out in a second.
``workers``
    A simulation of 1,000 workers by at most 8 processes, without training: each process takes,
    and ends tasks, or renews leases, as fast as it can. The server's processor time for each, which
    does not depend on what else the machine does, says how short the runs of 1,000 workers may be
    before they wait for the database.

Both start a server of their own on loopback, and end after a fixed number of tasks or seconds.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

from benchmarks.report import processor
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
PROCESSES = tuple(map(int, os.environ.get("NOISIN_BENCH_PROCESSES", "1 8").split()))
HOSTNAME = 'hostname "$1" && shift && exec "$@"'


def grid(folder: Path, count: int) -> Sweep:
    """Runs of a few steps each."""
    text = write_corpus(folder / "text")
    points = [
        SweepPoint(name=f"p{n}", settings=settings(text, lr=1 + n / 1000, epochs=1))
        for n in range(count)
    ]
    return Sweep(name="bench", points=points)


def measure_runs(server: PostgresServer, folder: Path) -> Iterator[dict[str, Any]]:
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
    yield {
        "codes": codes,
        "runs": len(runs),
        "seconds": round(seconds, 1),
        "runs_per_second": round(len(runs) / seconds, 2),
        "training_seconds_per_run": round(statistics.fmean(trained), 3),
        "other_seconds_per_run": round(2 * seconds / len(runs) - statistics.fmean(trained), 3),
    }


def simulate(
    address: str, folder: Path, sweep: Sweep, name: str, kind: str, ready: Barrier, results: Any
) -> None:
    """Be many workers, one after another: make tasks, or renew leases, until the time is over."""
    (folder / name).mkdir(exist_ok=True)
    ledger = Ledger(sweep, folder / name, address, name, patience=30)
    lease = ledger.take()
    times: list[float] = []
    ready.wait()
    last = time.monotonic() + SECONDS
    while lease is not None and time.monotonic() < last:
        began = time.perf_counter()
        if kind == "renewals":
            lease._renew()
            disconnect(ledger.leases.engine)
        else:
            end = Standing(sweep.tasks[lease.task], (Outcome("diverged"),))
            ledger.end(lease, ledger.trial(lease), end)
            lease = ledger.take()
        times.append(time.perf_counter() - began)
    results.put(times)


def measure_workers(server: PostgresServer, folder: Path) -> Iterator[dict[str, Any]]:
    """The rates of tasks and of renewals, and what they cost the server."""
    rows = []
    for kind in ("tasks", "renewals"):
        for count in PROCESSES:
            rows.append(_simulated(server, folder / f"{kind}-{count}", kind, count))
            yield rows[-1]
    task, renewal = (
        min(row["server_milliseconds_each"] for row in rows if row["kind"] == kind) / 1e3
        for kind in ("tasks", "renewals")
    )
    renewing = WORKERS * RENEWALS / LEASE * renewal
    shortest = WORKERS * task / (1 - renewing) if renewing < 1 else None
    yield {
        "workers": WORKERS,
        "cores_for_renewals": round(renewing, 3),
        "shortest_runs_per_core_in_seconds": shortest and round(shortest, 1),
    }


def _simulated(server: PostgresServer, folder: Path, kind: str, count: int) -> dict[str, Any]:
    folder.mkdir()
    sweep = grid(folder, 2000).model_copy(update={"name": folder.name})
    with SweepLock(folder):
        Ledger(sweep, folder, server.secret_address, "first").recover()
    context = multiprocessing.get_context("spawn")
    results, ready = context.Queue(), context.Barrier(count + 1)
    processes = [
        context.Process(
            target=simulate,
            args=(server.secret_address, folder, sweep, str(n), kind, ready, results),
        )
        for n in range(count)
    ]
    for process in processes:
        process.start()
    ready.wait()
    before = server_seconds(server)
    times = [t for _ in processes for t in results.get(timeout=20 * SECONDS)]
    for process in processes:
        process.join()
    return {
        "kind": kind,
        "processes": count,
        "per_second": round(len(times) / SECONDS, 1),
        "milliseconds": round(1e3 * statistics.median(times), 1),
        "server_milliseconds_each": round(1e3 * (server_seconds(server) - before) / len(times), 2),
    }


def server_seconds(server: PostgresServer) -> float:
    """The processor time of the server, with that of its ended connections."""
    fields = Path(f"/proc/{server.pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


PARTS = {"runs": measure_runs, "workers": measure_workers}


def main(parts: list[str]) -> int:
    """Measure the parts, and print them as lines of JSON; the exit code."""
    if not {*parts} <= PARTS.keys():
        print("usage: python -m benchmarks.queue [runs] [workers]")
        return 2
    print(json.dumps({"processor": processor(), "cores": os.cpu_count()}), flush=True)
    for part in parts or PARTS:
        with postgres_server() as server, tempfile.TemporaryDirectory() as name:
            for row in PARTS[part](server, Path(name)):
                print(json.dumps(row), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
