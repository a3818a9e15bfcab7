"""Engines: what starts the workers of a sweep. Here the one that starts processes on this machine.

:mod:`noisin.experiments.sweep.ray_engine` has the one for a Ray cluster. The
:class:`~noisin.experiments.sweep.workers.WorkerPool` monitors, replaces and stops the workers of
either.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from noisin._util import trust
from noisin._util.files import writing
from noisin._util.regular import open_regular
from noisin.experiments.sweep.worker import Job
from noisin.training.runtime.environment import require_threads

Answer = dict[str, Any]  # as a worker sends it


class RunningWorker(Protocol):
    """A worker that an engine has started.

    Attributes:
        status: the last status that it sent.
    """

    status: Answer

    def poll(self) -> int | None:
        """The exit code, negative if the worker was killed; None while it is running."""
        ...

    def death(self) -> str:
        """How the worker ended, in words."""
        ...

    def stop(self) -> None:
        """Tell the worker to save and stop."""
        ...

    def kill(self) -> None:
        """End the worker at once."""
        ...

    def close(self) -> None:
        """Wait for the worker to end, and release what belongs to it."""
        ...


Receive = Callable[[RunningWorker, Answer], None]  # called in any thread


class Engine(Protocol):
    """What starts the workers of a sweep."""

    def threads(self, jobs: int) -> int:
        """The threads of each of ``jobs`` workers."""
        ...

    def start(self, job: Job, log: Path, receive: Receive) -> RunningWorker:
        """Start a worker; ``receive`` is called with each of its messages."""
        ...


class LocalEngine:
    """Processes on this machine, which share its threads."""

    def threads(self, jobs: int) -> int:
        """The threads of each of ``jobs`` workers."""
        return max(1, available_threads() // jobs)

    def start(self, job: Job, log: Path, receive: Receive) -> WorkerProcess:
        """Start a process."""
        return WorkerProcess(job, log, receive)


class WorkerProcess:
    """The process of a worker, and the last status that it sent.

    Args:
        job: the job of the worker.
        log: the file for its standard error.
        receive: called with this worker and each of its messages, in a separate thread.
    """

    def __init__(self, job: Job, log: Path, receive: Receive) -> None:
        self.status: Answer = {}
        self._receive = receive
        threads = str(job.threads)
        with writing(log):
            file = open_regular(log, "ab")
        with file:
            self.process = subprocess.Popen(
                trust.python("noisin.experiments.sweep.process"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                start_new_session=True,  # this process receives Ctrl-C and passes it on
                env={**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads},
            )
        self._reader = threading.Thread(target=self._read_answers, daemon=True)
        self._reader.start()
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has died, which poll() will show
            self.process.stdin.write(job.model_dump_json().encode() + b"\n")
            self.process.stdin.flush()

    def _read_answers(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as answers:
            for line in answers:
                with contextlib.suppress(ValueError):  # cut off by its death
                    self._receive(self, json.loads(line))

    def poll(self) -> int | None:
        """The exit code, or None while the process is running."""
        return self.process.poll()

    def death(self) -> str:
        """The exit code, in words."""
        return f"exit code {self.process.returncode}"

    def stop(self) -> None:
        """Tell the process to save and stop. (Where Ray has started it, SIGINT is blocked.)"""
        self.process.terminate()

    def kill(self) -> None:
        """Kill the process."""
        self.process.kill()

    def close(self) -> None:
        """Wait for the process to end, and release its pipes and its thread."""
        self.process.wait()
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self._reader.join()


def available_threads() -> int:
    """The threads that this process may use, or ``OMP_NUM_THREADS`` if that is set."""
    asked = os.environ.get("OMP_NUM_THREADS", "")
    count = int(asked[:20]) if asked.isdecimal() else 0
    if count > 0:
        return require_threads("OMP_NUM_THREADS", count, "Unset it to use all cores.")
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
