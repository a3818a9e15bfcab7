"""The workers of a sweep on this machine: started, listened to, replaced when they die, stopped."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from noisin.errors import Unavailable, Unsupported
from noisin.experiments.sweep.ledger import Ledger
from noisin.experiments.sweep.standing import Standing
from noisin.experiments.sweep.turn import Turn
from noisin.experiments.sweep.worker import Job
from noisin.training.signals import Flag

LOOK = 0.2  # seconds between two looks at the workers
SURVEY = 1.0  # and at the folders
DEATHS = 20  # in a row, without an epoch coming to its end anywhere: then it is no accident


@dataclass
class Member:
    """A worker, and what it has told last."""

    process: subprocess.Popen[bytes]
    status: dict[str, Any] = field(default_factory=dict)


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
        show: Callable[[list[Standing], list[dict[str, Any]]], None],
        say: Callable[[str], None],
    ) -> None:
        self.job, self.ledger, self.size, self.show, self.say = job, ledger, size, show, say
        self.log = job.out / job.sweep.name / "workers.log"
        self.members: list[Member] = []
        self.messages: queue.Queue[tuple[Member, dict[str, Any]]] = queue.Queue()
        self.deaths = 0
        self.standings: list[Standing] = []

    def work(self, flag: Flag) -> None:
        """Until all is over, or until a signal has stopped every worker."""
        told = False
        surveyed = -SURVEY
        self.members = [self._start() for _ in range(self.size)]
        try:
            while self.members:
                self._listen()
                if flag.signum is not None and not told:
                    told = True
                    for member in self.members:
                        member.process.send_signal(flag.signum)
                self._replace_the_dead(told)
                if time.monotonic() - surveyed > SURVEY:
                    self.standings, surveyed = self.ledger.survey(), time.monotonic()
                self.show(self.standings, [m.status for m in self.members if m.status])
            self.standings = self.ledger.survey()
            self.show(self.standings, [])
        finally:
            for member in self.members:
                member.process.kill()
                member.process.wait()

    def _start(self) -> Member:
        threads = str(self.job.threads)
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "noisin.experiments.sweep.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us; we tell them
                env={**os.environ, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads},
            )
        member = Member(process)
        threading.Thread(target=self._hear, args=(member,), daemon=True).start()
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has died, as will be seen
            process.stdin.write(self.job.model_dump_json().encode() + b"\n")
            process.stdin.flush()
        return member

    def _hear(self, member: Member) -> None:
        assert member.process.stdout is not None
        for line in member.process.stdout:
            try:
                message = json.loads(line)
            except ValueError:
                continue  # cut off by its death
            self.messages.put((member, message))

    def _heard(self) -> Iterator[tuple[Member, dict[str, Any]]]:
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
            if code != 0 and not told:
                self._mourn(member, code)
                self.members.append(self._start())

    def _mourn(self, member: Member, code: int) -> None:
        """What it was at is left to the others."""
        self.deaths += 1
        if self.deaths > DEATHS:
            raise Unsupported(
                f"sweep: workers have died {self.deaths} times without an epoch coming to its end, "
                f"the last with exit code {code}. What they said is in {self.log}."
            )
        at = f" at {member.status['run']}" if member.status else ""
        self.say(f"a worker died{at} (exit code {code}); another takes its place.")
        with Turn(self.job.out):
            self.ledger.recover()
