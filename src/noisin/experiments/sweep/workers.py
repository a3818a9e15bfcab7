"""The workers of a sweep: start, monitor, replace and stop them."""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterator

from noisin.errors import Unavailable, Unsupported
from noisin.experiments.sweep.engine import Answer, Engine, RunningWorker
from noisin.experiments.sweep.ledger import Ledger
from noisin.experiments.sweep.lock import SweepLock
from noisin.experiments.sweep.standing import Standing
from noisin.experiments.sweep.worker import Job
from noisin.training.runtime.signals import Flag

Show = Callable[[list[Standing], list[Answer]], None]

POLL = 0.2  # seconds between two polls of the workers
SURVEY = 1.0  # and at the folders
GRACE = 60.0  # seconds to save the runs after an error, such as a database that went away
# The sweep gives up after so many deaths in a row in which no worker has completed an epoch. A
# signal may come from outside and counts once; an error of the worker itself counts ten times.
DEATHS, OWN_FAULT = 50, 10


class WorkerPool:
    """Keeps a number of workers running until the sweep is done.

    Args:
        job: the job of the workers.
        ledger: the ledger of the same sweep.
        size: the number of workers.
        show: called several times a second with the state of all tasks and workers.
        say: called with messages for the user.
        engine: starts the workers.
    """

    def __init__(
        self,
        job: Job,
        ledger: Ledger,
        size: int,
        show: Show,
        say: Callable[[str], None],
        engine: Engine,
    ) -> None:
        self.job, self.ledger, self.size, self.show, self.say = job, ledger, size, show, say
        self.engine = engine
        self.log = job.out / job.sweep.name / "workers.log"
        self.workers: list[RunningWorker] = []
        self.messages: queue.Queue[tuple[RunningWorker, Answer]] = queue.Queue()
        self.deaths = 0
        self.standings: list[Standing] = []
        self._surveyed = -SURVEY
        self._is_stopping = False

    def work(self, flag: Flag) -> None:
        """Return when the sweep is done, or when a signal has stopped every worker."""
        try:
            for _ in range(self.size):
                self._start()
            while self.workers:
                self._listen()
                if flag.signum is not None and not self._is_stopping:
                    self.say("stopping: saving the active runs.")
                    self._stop()
                self._replace_dead_workers()
                if time.monotonic() - self._surveyed > SURVEY:
                    self.standings, self._surveyed = self.ledger.survey(), time.monotonic()
                self.show(self.standings, [w.status for w in self.workers if w.status])
            self.standings = self.ledger.survey()
            self.show(self.standings, [])
        except Exception:
            self._stop()
            self._await_end()
            raise
        finally:
            for worker in self.workers:
                worker.kill()
                worker.close()

    def _stop(self) -> None:
        """Tell the workers to save and stop, once: a second signal would end them at once."""
        if not self._is_stopping:
            self._is_stopping = True
            for worker in self.workers:
                worker.stop()

    def _await_end(self) -> None:
        """Wait until all workers have ended, at most for :data:`GRACE` seconds."""
        last = time.monotonic() + GRACE
        while any(worker.poll() is None for worker in self.workers) and time.monotonic() < last:
            time.sleep(POLL)

    def _start(self) -> None:
        self.workers.append(self.engine.start(self.job, self.log, self._receive))

    def _receive(self, worker: RunningWorker, message: Answer) -> None:
        self.messages.put((worker, message))

    def _new_messages(self) -> Iterator[tuple[RunningWorker, Answer]]:
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

    def _replace_dead_workers(self) -> None:
        for worker in list(self.workers):
            code = worker.poll()
            if code is None:
                continue
            self.workers.remove(worker)
            worker.close()
            if code == 0 or self._is_stopping:
                continue
            self._take_back_work(worker, code)
            self.standings = self.ledger.survey()
            if not all(standing.is_over for standing in self.standings):
                self._start()

    def _take_back_work(self, worker: RunningWorker, code: int) -> None:
        """Return the task of a dead worker to the queue."""
        self.deaths += 1 if code < 0 else OWN_FAULT
        if self.deaths > DEATHS:
            raise Unsupported(
                f"sweep: workers keep dying before they complete an epoch, the last one with "
                f"{worker.death()}. Their output is in {self.log}."
            )
        with SweepLock(self.job.out):
            self.ledger.recover()
        at = f" at {worker.status['run']}" if worker.status else ""
        self.say(f"a worker died{at} ({worker.death()}); the sweep continues.")
