"""A text of a few words, a model of a few units, and runs of them in processes of their own."""

from __future__ import annotations

import functools
import json
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from noisin import training
from noisin.data import Corpus, Vocabulary
from noisin.errors import NoisinError
from noisin.tasks import PERPLEXITY, Text, Unit
from noisin.training import Interrupted, RunConfig, RunRecord
from noisin.training.record import TIMES
from noisin.training.runtime import distributed
from noisin.training.runtime.progress import RunOutline, Status

WORDS = 12


def corpus(seed: int = 0, words: int = WORDS) -> Corpus:
    """Words that follow a fixed law, 800 of them to learn from."""
    random = np.random.RandomState(seed)
    law = random.dirichlet(np.full(words, 0.2), size=words).cumsum(1)

    def text(length: int) -> np.ndarray:
        ids = [0]
        for u in random.random_sample(length - 1):
            ids.append(min(words - 1, int(np.searchsorted(law[ids[-1]], u))))
        return np.array(ids, dtype=np.int32)

    vocabulary = Vocabulary(("<eos>", *(f"w{k}" for k in range(1, words))))
    return Corpus(
        "toy", vocabulary, text(800), text(250), text(200), f"{seed:064d}", source="tests"
    )


TOY: dict[str, Any] = {
    "model": {"hidden_size": 6, "dropout": {"output": 0.2, "between": 0.1}},
    "noise": {"gamma": 0.5},
    "train": {"batch_size": 8, "bptt": 10, "lr": 5.0, "clip": 1.0, "epochs": 3},
    "threads": 1,
}


def config(**changes: Any) -> RunConfig:
    """The toy's settings, changed: ``config(train={"lr": 1.0}, seed=3)``."""
    merged = {
        name: {**TOY.get(name, {}), **value} if isinstance(value, Mapping) else value
        for name, value in changes.items()
    }
    return RunConfig.parse({**TOY, **merged})


@dataclass
class Seen:
    """A progress that remembers."""

    titles: list[str] = field(default_factory=list)
    outlines: list[RunOutline] = field(default_factory=list)
    statuses: list[Status] = field(default_factory=list)
    epochs: list[Mapping[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    ended: int = 0
    on_epoch: Callable[[], None] = lambda: None

    def begin(self, outline: RunOutline) -> None:
        self.titles.append(outline.title)
        self.outlines.append(outline)

    def status(self, status: Status) -> None:
        self.statuses.append(status)

    def epoch(self, metrics: Mapping[str, Any], unit: Unit) -> None:
        self.epochs.append(metrics)
        self.on_epoch()

    def note(self, message: str) -> None:
        self.notes.append(message)

    def end(self) -> None:
        self.ended += 1


def fit(out: Path, progress: Seen | None = None, text: Corpus | None = None, **changes: Any) -> Any:
    """Train the toy in this process."""
    return train(config(**changes), out, text, progress=progress)


def train(settings: RunConfig, out: Path, text: Corpus | None = None, **options: Any) -> RunRecord:
    """Train by these settings on the toy's text, or another; or on the task that they name."""
    task = None
    if settings.data.task is None:
        task = Text.from_config(settings, corpus() if text is None else text)
    return training.run(settings, out, task=task, **options)


def perplexity(score: Mapping[str, Any]) -> float:
    """A score of a record as people read it."""
    return PERPLEXITY.value(score["nats"])


@dataclass(frozen=True)
class Outcome:
    """How a process ended: its exit code (minus the signal that killed it), and what it said."""

    code: int
    message: str
    notes: list[str]


class Process:
    """Training in a process of its own, forked from this one so that it starts at once."""

    def __init__(
        self,
        out: Path,
        settings: RunConfig,
        text: Corpus | None = None,
        before: Callable[[], None] = lambda: None,
    ) -> None:
        _warm_up()
        self._said = Path(tempfile.gettempdir()) / f"said-{os.getpid()}-{time.monotonic_ns()}.json"
        self._process = multiprocessing.get_context("fork").Process(
            target=_train, args=(out, settings, corpus() if text is None else text, before),
            kwargs={"said": self._said},
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of fork in newer Pythons
            self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def wait(self, seconds: float = 240) -> Outcome:
        self._process.join(seconds)
        code = self._process.exitcode
        if code is None:
            self._process.kill()
            raise TimeoutError(f"the process was still at work after {seconds} s")
        said = json.loads(self._said.read_text()) if self._said.exists() else {}
        self._said.unlink(missing_ok=True)
        return Outcome(code, said.get("message", ""), said.get("notes", []))


@functools.cache
def _warm_up() -> None:
    """Load here, once, what every fork would otherwise load anew."""
    with tempfile.TemporaryDirectory() as folder:
        fit(Path(folder) / "run", train={"epochs": 1})


def _train(
    out: Path, settings: RunConfig, text: Corpus, before: Callable[[], None], said: Path
) -> None:
    """What the command line does: one message, and its exit codes."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    seen, code, message = Seen(), 0, ""
    try:
        before()
        with distributed.connected(settings.device) as workers:
            train(settings, out, text, progress=seen, workers=workers)
    except NoisinError as error:
        code, message = 2, str(error)
    except Interrupted as error:
        code, message = error.exit_code, str(error)
    except KeyboardInterrupt:
        code = 130
    said.write_text(json.dumps({"message": message, "notes": seen.notes}))
    sys.exit(code)


def run(out: Path, **options: Any) -> Outcome:
    """Train in a process of its own, to the end."""
    settings = options.pop("settings", None) or config()
    return Process(out, settings, **options).wait()


FILE_EVENTS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.truncate"}


def at_file_events(out: Path, act: Callable[[int], Any]) -> None:
    """Call ``act(n)`` before the n-th time that this process touches a file of the run."""
    count = 0

    def hook(event: str, args: tuple[Any, ...]) -> None:
        nonlocal count
        if event in FILE_EVENTS and args and str(args[0]).startswith(str(out)):
            count += 1
            act(count)

    sys.addaudithook(hook)


def signal_at(out: Path, n: int, *numbers: int) -> Callable[[], None]:
    """For ``before``: the process sends itself signals when it touches a file the n-th time."""

    def act(count: int) -> None:
        if count == n:
            for number in numbers:
                os.kill(os.getpid(), number)

    return lambda: at_file_events(out, act)


def wait_for(condition: Callable[[], bool], seconds: float = 120) -> None:
    """Wait until something has happened in another process."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.002)


def result(out: Path) -> dict[str, Any]:
    """All that two equal runs have in common, to the last bit: weights, metrics, summary."""
    record = RunRecord(out)
    newest = manifest(out, max(numbers(out)))
    return {
        "weights": newest["files"]["weights.safetensors"],
        "average": newest["files"].get("average.safetensors"),
        "best": {
            weights: manifest(out, number)["files"][f"{name}.safetensors"]
            for weights, name in (("raw", "weights"), ("averaged", "average"))
            if (number := newest["best"].get(weights))
        },
        "metrics": [without_times(line) for line in record.metrics],
        "summary": without_times(record.summary or {}, "best", "raw", "averaged", "last"),
    }


def numbers(out: Path) -> list[int]:
    """The checkpoints of a run."""
    entries = (out / "checkpoints").iterdir()
    return sorted(int(entry.name) for entry in entries if entry.name.isdecimal())


def manifest(out: Path, number: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        (out / "checkpoints" / f"{number:06d}" / "manifest.json").read_text()
    )
    return found


def without_times(line: Mapping[str, Any], *inside: str) -> dict[str, Any]:
    left_out = {*TIMES, "checkpoint"}  # how often a run has saved depends on when it was killed
    return {
        key: without_times(value) if key in inside and value else value
        for key, value in line.items()
        if key not in left_out
    }
