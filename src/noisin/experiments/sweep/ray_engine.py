"""Workers of a sweep on a Ray cluster. Needs Ray: ``pip install 'noisin[ray]'``.

Each worker is an actor, which reserves as many CPUs as the worker has threads, starts the process
that would be started on one machine (:mod:`noisin.experiments.sweep.process`) on its own node, and
passes on its messages. If the actor dies, for example because the command that started it was
killed, the pipe to that process closes, and the process saves and stops. An actor whose node has
died stops its process, which would otherwise go on where nobody sees it.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import noisin
from noisin._util.files import writing
from noisin.errors import InvalidValue, NoisinError
from noisin.experiments.sweep.engine import Answer, Receive, WorkerProcess
from noisin.experiments.sweep.ray_cluster import RayCluster
from noisin.experiments.sweep.worker import Job

POLL = 0.2  # seconds between two polls of the process of a worker
PATIENCE = 30.0  # seconds to wait for CPUs before the user is told
FAREWELL = 10.0  # seconds to wait for the last messages of a worker
# Ray would kill the process of a worker together with the actor, before it has saved.
SPARE_CHILDREN = {"env_vars": {"RAY_kill_child_processes_on_worker_exit": "0"}}


class RayEngine:
    """Starts workers on a Ray cluster; a context manager that is connected to it.

    Args:
        address: the address of a running cluster; without it, that of ``RAY_ADDRESS`` or a new
            cluster on this machine, which ends with this context.
        say: called with messages for the user.
    """

    def __init__(
        self, address: str | None = None, say: Callable[[str], None] = lambda _: None
    ) -> None:
        self._cluster = RayCluster(address, say)
        self._ray: Any = None

    def __enter__(self) -> Self:
        self._ray = self._cluster.connect()
        return self

    def __exit__(self, *_: object) -> None:
        self._cluster.disconnect()

    def threads(self, jobs: int) -> int:
        """The CPUs of the cluster divided by ``jobs``, at most those of its smallest node."""
        alive = [node["Resources"] for node in self._ray.nodes() if node["Alive"]]
        return threads_of_each([int(resources.get("CPU", 0)) for resources in alive], jobs)

    def start(self, job: Job, log: Path, receive: Receive) -> RayWorker:
        """Start an actor, as soon as a node has the CPUs for it."""
        return RayWorker(self._ray, job, log, receive)


class WorkerActor:
    """Starts the process of a worker on the node of the actor, and passes on its messages."""

    def __init__(self) -> None:
        self._answers: queue.Queue[Answer] = queue.Queue()
        self._worker: WorkerProcess | None = None
        self._raylet = os.getppid()  # the process that is the node

    def work(self, job: str, log: str, version: str) -> Iterator[Answer]:
        """The messages of the worker; the last one has its exit code."""
        try:
            if version != noisin.__version__:
                raise InvalidValue(
                    f"sweep: this node has noisin {noisin.__version__}, and the command that "
                    f"started the sweep has {version}. Install the same version."
                )
            with writing(Path(log).parent):
                Path(log).parent.mkdir(parents=True, exist_ok=True)
            given = Job(**json.loads(job))
            self._worker = WorkerProcess(given, Path(log), lambda _, m: self._answers.put(m))
        except NoisinError as error:
            yield {"error": f"{socket.gethostname()}: {error}"}
            return
        yield {"started": True}
        lost = False
        while (code := self._worker.poll()) is None:
            yield from self._waiting(POLL)
            if not lost and os.getppid() != self._raylet:
                lost = True
                self.stop()
        self._worker.close()
        yield from self._waiting(0)
        if lost:
            yield {"exit": -signal.SIGTERM, "death": "its node died"}
        else:
            yield {"exit": code, "death": f"exit code {code}"}

    def _waiting(self, timeout: float) -> Iterator[Answer]:
        with contextlib.suppress(queue.Empty):
            yield self._answers.get(timeout=timeout) if timeout else self._answers.get_nowait()
            while True:
                yield self._answers.get_nowait()

    def stop(self) -> None:
        """Tell the process to save and stop."""
        if self._worker is not None:
            self._worker.stop()


class RayWorker:
    """The handle of an actor, and the last status that its worker sent.

    Args:
        ray: the module, connected to a cluster.
        job: the job of the worker.
        log: the file for its standard error, on its node.
        receive: called with this worker and each of its messages, in a separate thread.
    """

    def __init__(self, ray: Any, job: Job, log: Path, receive: Receive) -> None:
        self.status: Answer = {}
        self._ray, self._receive = ray, receive
        self._code: int | None = None
        self._death = ""
        self._started = False
        actor = ray.remote(WorkerActor).options(
            num_cpus=job.threads,
            max_concurrency=2,  # it can be stopped while it works
            runtime_env=SPARE_CHILDREN,
        )
        self._actor: Any = actor.remote()
        self._answers = self._actor.work.options(num_returns="streaming").remote(
            job.model_dump_json(), str(log), noisin.__version__
        )
        self._timer = threading.Timer(PATIENCE, self._report_waiting, [job.threads])
        self._timer.daemon = True
        self._timer.start()
        self._reader = threading.Thread(target=self._read_answers, daemon=True)
        self._reader.start()

    def _report_waiting(self, threads: int) -> None:
        waiting = f"a worker has not started yet: it waits for a node with free CPUs ({threads})."
        self._receive(self, {"note": waiting})

    def _read_answers(self) -> None:
        errors = self._ray.exceptions
        code, death = int(-signal.SIGKILL), "lost by the Ray cluster"
        try:
            for reference in self._answers:
                answer: Answer = self._ray.get(reference)
                self._timer.cancel()
                if "started" in answer:
                    self._started = True
                elif "exit" in answer:
                    code, death = answer["exit"], answer["death"]
                else:
                    self._receive(self, answer)
        except errors.RayTaskError as error:  # of the actor's own code
            code, death = 1, f"an error on its node: {type(error.cause).__name__}: {error.cause}"
        except errors.RayError as error:
            code = code if self._started else 1  # it may never start, such as without noisin
            reason = str(error).strip().splitlines() or [""]
            death = f"lost by the Ray cluster: {type(error).__name__}: {reason[-1].strip()}"
        finally:
            self._timer.cancel()
            self._death, self._code = death, code

    def poll(self) -> int | None:
        """The exit code of the worker, or that of SIGKILL if its actor was lost."""
        return self._code

    def death(self) -> str:
        """The exit code, or what Ray knows about the loss."""
        return self._death

    def stop(self) -> None:
        """Tell the worker to save and stop; one that still waits for CPUs is not started."""
        if self._started:
            self._actor.stop.remote()
        else:
            self.kill()

    def kill(self) -> None:
        """End the actor. The process of a worker then saves and stops."""
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._ray.kill(self._actor)

    def close(self) -> None:
        """Wait for the last message, and return the CPUs of the actor to the cluster."""
        self._reader.join(FAREWELL)
        self.kill()


def threads_of_each(cpus: Sequence[int], jobs: int) -> int:
    """The threads of each of ``jobs`` workers on nodes with so many CPUs, some of them with none.

    >>> threads_of_each([0, 8, 4], jobs=2), threads_of_each([0, 8, 4], jobs=6)
    (4, 2)
    >>> threads_of_each([0, 1], jobs=6), threads_of_each([0], jobs=1)  # the others wait
    (1, 1)
    """
    sizes = [size for size in cpus if size]
    return max(1, min([sum(sizes) // jobs, *sizes]))
