"""The worker processes of a sweep on this machine: start, monitor, replace and stop them."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from noisin._util import trust
from noisin._util.files import writing
from noisin._util.regular import open_regular
from noisin.errors import Unavailable, Unsupported
from noisin.experiments.sweep.ledger import Ledger
from noisin.experiments.sweep.lock import SweepLock
from noisin.experiments.sweep.standing import Standing
from noisin.experiments.sweep.worker import Job
from noisin.training.runtime.signals import Flag

Answer = dict[str, Any]  # as a worker sends it
Show = Callable[[list[Standing], list[Answer]], None]

POLL = 0.2  # seconds between two polls of the workers
SURVEY = 1.0  # and at the folders
# The sweep gives up after so many deaths in a row in which no worker has completed an epoch. A
# signal may come from outside and counts once; an error of the worker itself counts ten times.
DEATHS, OWN_FAULT = 50, 10


class WorkerProcess:
    """The process of a worker, and the last status that it sent.

    Args:
        job: the job of the worker.
        log: the file for its standard error.
        receive: called with this worker and each of its messages, in a separate thread.
    """

    def __init__(
        self, job: Job, log: Path, receive: Callable[[WorkerProcess, Answer], None]
    ) -> None:
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

    def close(self) -> None:
        """Wait for the process to end, and release its pipes and its thread."""
        self.process.wait()
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self._reader.join()


class WorkerPool:
    """Keeps a number of workers running until the sweep is done.

    Args:
        job: the job of the workers.
        ledger: the ledger of the same sweep.
        size: the number of workers.
        show: called several times a second with the state of all tasks and workers.
        say: called with messages for the user.
    """

    def __init__(
        self,
        job: Job,
        ledger: Ledger,
        size: int,
        show: Show,
        say: Callable[[str], None],
    ) -> None:
        self.job, self.ledger, self.size, self.show, self.say = job, ledger, size, show, say
        self.log = job.out / job.sweep.name / "workers.log"
        self.workers: list[WorkerProcess] = []
        self.messages: queue.Queue[tuple[WorkerProcess, Answer]] = queue.Queue()
        self.deaths = 0
        self.standings: list[Standing] = []
        self._surveyed = -SURVEY

    def work(self, flag: Flag) -> None:
        """Return when the sweep is done, or when a signal has stopped every worker."""
        signalled = False
        try:
            for _ in range(self.size):
                self._start()
            while self.workers:
                self._listen()
                if flag.signum is not None and not signalled:
                    signalled = True
                    self.say("stopping: saving the active runs.")
                    for worker in self.workers:
                        worker.process.send_signal(flag.signum)
                self._replace_dead_workers(signalled)
                if time.monotonic() - self._surveyed > SURVEY:
                    self.standings, self._surveyed = self.ledger.survey(), time.monotonic()
                self.show(self.standings, [w.status for w in self.workers if w.status])
            self.standings = self.ledger.survey()
            self.show(self.standings, [])
        finally:
            for worker in self.workers:
                worker.process.kill()
                worker.close()

    def _start(self) -> None:
        worker = WorkerProcess(self.job, self.log, lambda *message: self.messages.put(message))
        self.workers.append(worker)

    def _new_messages(self) -> Iterator[tuple[WorkerProcess, Answer]]:
        """The messages that have arrived, or that arrive within :data:`POLL` seconds."""
        try:
            yield self.messages.get(timeout=POLL)
            while True:
                yield self.messages.get_nowait()
        except queue.Empty:
            return

    def _listen(self) -> None:
        for worker, message in self._new_messages():
            if "error" in message:
                raise Unavailable(message["error"])
            if "note" in message:
                self.say(message["note"])
            elif "over" in message:
                worker.status = {}
                self._surveyed = -SURVEY  # at once, else it is shown neither as active nor as done
                self.deaths = 0
            elif "finished" in message:
                self.deaths = 0
            else:
                worker.status = message

    def _replace_dead_workers(self, signalled: bool) -> None:
        for worker in list(self.workers):
            code = worker.process.poll()
            if code is None:
                continue
            self.workers.remove(worker)
            worker.close()
            if code == 0 or signalled:
                continue
            self._take_back_work(worker, code)
            self.standings = self.ledger.survey()
            if not all(standing.is_over for standing in self.standings):
                self._start()

    def _take_back_work(self, worker: WorkerProcess, code: int) -> None:
        """Return the task of a dead worker to the queue."""
        self.deaths += 1 if code < 0 else OWN_FAULT
        if self.deaths > DEATHS:
            raise Unsupported(
                f"sweep: workers keep dying before they complete an epoch, the last one with exit "
                f"code {code}. Their output is in {self.log}."
            )
        with SweepLock(self.job.out):
            self.ledger.recover()
        at = f" at {worker.status['run']}" if worker.status else ""
        self.say(f"a worker died{at} (exit code {code}); the sweep continues.")
