"""The workers of a sweep on this machine: started, listened to, replaced when they die, stopped."""

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
from noisin.experiments.sweep.standing import Standing
from noisin.experiments.sweep.turn import Turn
from noisin.experiments.sweep.worker import Job
from noisin.training.runtime.signals import Flag

Answer = dict[str, Any]  # as a worker sends it
Show = Callable[[list[Standing], list[Answer]], None]

LOOK = 0.2  # seconds between two looks at the workers
SURVEY = 1.0  # and at the folders
# Deaths in a row, without an epoch coming to its end anywhere, until it is no accident: by signals
# that may come from outside, or by errors of the workers' own, each of which counts for ten.
DEATHS, OWN_FAULT = 50, 10


class Member:
    """A worker's process, and what it has told last.

    Args:
        job: what it is told.
        log: a file for what it says beside its answers.
        heard: takes this member and each answer, from a thread of its own.
    """

    def __init__(self, job: Job, log: Path, heard: Callable[[Member, Answer], None]) -> None:
        self.status: Answer = {}
        self._heard = heard
        threads = str(job.threads)
        with writing(log):
            file = open_regular(log, "ab")
        with file:
            self.process = subprocess.Popen(
                trust.python("noisin.experiments.sweep.process"),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                start_new_session=True,  # Ctrl-C is for us; we tell them
                env={**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads},
            )
        self._ear = threading.Thread(target=self._hear, daemon=True)
        self._ear.start()
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has died, as will be seen
            self.process.stdin.write(job.model_dump_json().encode() + b"\n")
            self.process.stdin.flush()

    def _hear(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as answers:
            for line in answers:
                with contextlib.suppress(ValueError):  # cut off by its death
                    self._heard(self, json.loads(line))

    def bury(self) -> None:
        """Leave nothing of it in this process."""
        self.process.wait()
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self._ear.join()


class Crew:
    """Keeps so many workers at work until all is over.

    Args:
        job: what each is told.
        ledger: of the same sweep.
        size: how many.
        show: is told how all stands, several times a second.
        say: is told what the user should know.
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
        self.members: list[Member] = []
        self.messages: queue.Queue[tuple[Member, Answer]] = queue.Queue()
        self.deaths = 0
        self.standings: list[Standing] = []
        self._surveyed = -SURVEY

    def work(self, flag: Flag) -> None:
        """Until all is over, or until a signal has stopped every worker."""
        told = False
        try:
            for _ in range(self.size):
                self._start()
            while self.members:
                self._listen()
                if flag.signum is not None and not told:
                    told = True
                    self.say("stopping: the runs at work are being saved.")
                    for member in self.members:
                        member.process.send_signal(flag.signum)
                self._replace_the_dead(told)
                if time.monotonic() - self._surveyed > SURVEY:
                    self.standings, self._surveyed = self.ledger.survey(), time.monotonic()
                self.show(self.standings, [m.status for m in self.members if m.status])
            self.standings = self.ledger.survey()
            self.show(self.standings, [])
        finally:
            for member in self.members:
                member.process.kill()
                member.bury()

    def _start(self) -> None:
        member = Member(self.job, self.log, lambda *told: self.messages.put(told))
        self.members.append(member)

    def _heard(self) -> Iterator[tuple[Member, Answer]]:
        """What was told since, or within a moment from now."""
        try:
            yield self.messages.get(timeout=LOOK)
            while True:
                yield self.messages.get_nowait()
        except queue.Empty:
            return

    def _listen(self) -> None:
        for member, message in self._heard():
            if "error" in message:
                raise Unavailable(message["error"])
            if "note" in message:
                self.say(message["note"])
            elif "over" in message:
                member.status = {}
                self._surveyed = -SURVEY  # at once: else it is neither at work nor done
                self.deaths = 0
            elif "finished" in message:
                self.deaths = 0
            else:
                member.status = message

    def _replace_the_dead(self, told: bool) -> None:
        for member in list(self.members):
            code = member.process.poll()
            if code is None:
                continue
            self.members.remove(member)
            member.bury()
            if code == 0 or told:
                continue
            self._mourn(member, code)
            self.standings = self.ledger.survey()
            if not all(standing.is_over for standing in self.standings):
                self._start()

    def _mourn(self, member: Member, code: int) -> None:
        """What it was at is left to the others."""
        self.deaths += 1 if code < 0 else OWN_FAULT
        if self.deaths > DEATHS:
            raise Unsupported(
                f"sweep: workers die again and again without an epoch coming to its end, the last "
                f"with exit code {code}. What they said is in {self.log}."
            )
        with Turn(self.job.out):
            self.ledger.recover()
        at = f" at {member.status['run']}" if member.status else ""
        self.say(f"a worker died{at} (exit code {code}); the rest goes on.")
