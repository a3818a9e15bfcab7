"""Tune a run: find where to start, search, and write what was found."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noisin._util import toml
from noisin._util.files import write_atomically, writing
from noisin._util.lock import locked
from noisin.errors import InvalidValue
from noisin.experiments.tuning.trials import NAME, Trials
from noisin.experiments.tuning.tunable import Tunable
from noisin.tasks.unit import Unit
from noisin.training.config import RunConfig
from noisin.training.record import RunRecord, finite
from noisin.training.runtime.progress import Progress, Quiet
from noisin.training.runtime.signals import caught
from noisin.tuning.budget import Budget, require_enough
from noisin.tuning.plan import MOST, TuningPlan, ladder, rungs_of
from noisin.tuning.search import Tried, Tuned, TuningTrial, tune

if TYPE_CHECKING:
    from noisin.experiments.tuning.start import Start
    from noisin.tasks import Task


@dataclass(frozen=True)
class TunedRun:
    """What was found, and where it is.

    Attributes:
        tuned: the search.
        config: the settings of the best run.
        folder: the folder of all trials, of ``tuned.toml`` and of ``tune.json``.
        unit: the unit of the scores, which the search has in nats.
        clean: the run without noise, if the search started from it.
        start: where it started, if that was measured.
    """

    tuned: Tuned
    config: RunConfig
    folder: Path
    unit: Unit
    clean: Tried | None
    start: Start | None

    @property
    def spent(self) -> int:
        """The epochs of all runs, the one without noise included."""
        return self.tuned.spent + (self.clean.epochs if self.clean else 0)


def run(
    tunable: Tunable,
    budget: str,
    out: Path,
    *,
    around: float | None = None,
    keep_lr: bool = False,
    progress: Progress | None = None,
) -> TunedRun:
    """Find a good std within a budget. The same call continues a search that was stopped.

    Args:
        tunable: the settings.
        budget: such as ``"2h"`` or ``"40epochs"``, for all runs together.
        out: the folder in which the folder of the search is created.
        around: the std to start from; by default it is measured.
        keep_lr: do not try other learning rates.
        progress: shows the runs.
    """
    allowed, epochs = Budget.read(budget), tunable.epochs
    first = rungs_of(epochs)[0]
    before = first if around is None else 0  # epochs without noise
    if allowed.epochs is not None:
        require_enough(allowed.epochs, TuningPlan.least(epochs), budget, before=before)
    task = _prepared(tunable, around)
    folder = out / f"tune-{tunable.name}-{tunable.mark}"
    with caught() as flag, _held(folder):
        trials = Trials(tunable, folder, task, progress or Quiet(), flag)
        lr = None if keep_lr else tunable.lr
        clean, start = None, None
        if around is None:
            clean, start = _start(trials, lr, first)
            around = start.std
        limit, each = _limit(trials, allowed, around, lr, before)
        require_enough(limit, TuningPlan.least(epochs), budget, each, before)
        tuned = tune(trials, budget=limit - before, epochs=epochs, around=around, lr=lr)
        config = tunable.config(tuned.std, tuned.lr)
        unit = trials.record(tuned.std, tuned.lr).unit
        found = TunedRun(tuned, config, folder, unit, clean, start)
        _write(found, tunable, budget)
        return found


def _prepared(tunable: Tunable, around: float | None) -> Task:
    """The data. What cannot be tuned is refused here, before anything is written."""
    from noisin.tasks.base import observation_of
    from noisin.training.build import build_model, build_noise, build_task

    for std in ladder(around or 1.0, MOST):
        build_noise(tunable.config(std).noise)
    task = build_task(tunable.clean)
    build_model(tunable.config(around or 1.0), observation_of(task))
    return task


def _start(trials: Trials, lr: float | None, epochs: int) -> tuple[Tried, Start]:
    from noisin.experiments.tuning.start import find_start

    score, folder = trials(TuningTrial(0.0, lr, epochs))
    if math.isinf(score):
        raise InvalidValue(
            f"tune: the run without {trials.tunable.what}, {folder}, diverged, so there is nothing "
            f"to start from. Use a lower train.lr, or name a std to start from: --around 0.5."
        )
    record = trials.record(0.0, lr)
    return Tried(0.0, lr, epochs, score), find_start(trials.tunable, record, trials.task)


def _limit(
    trials: Trials, allowed: Budget, around: float, lr: float | None, before: int
) -> tuple[int, float | None]:
    """The budget in epochs; and, if it is a time, that of an epoch of the first trial."""
    if allowed.seconds is None:
        return allowed.in_epochs(math.inf), None
    std, first = ladder(around, 1)[0], rungs_of(trials.tunable.epochs)[0]
    trials(TuningTrial(std, lr, first))
    each = trials.seconds(std, lr, first) / first
    spent = trials.seconds(0.0, lr, first) if before else 0.0
    left = Budget(seconds=max(0.0, allowed.seconds - spent))
    return before + left.in_epochs(each), each


@contextmanager
def _held(folder: Path) -> Iterator[None]:
    """Create the folder, lock it, and use the same libraries for the products of all trials."""
    from noisin._util import products
    from noisin.training.runtime.products import chosen_products

    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        made = min(folder.glob(f"{NAME}-*/environment.json"), default=None)
        choice = RunRecord(made.parent).products if made else chosen_products()
        with products.using(products.choice_of(choice, str(folder))):
            yield


def as_toml(config: RunConfig) -> str:
    """The settings that differ from their defaults, as a file that ``noisin train`` reads."""
    return toml.dumps(config.model_dump(mode="json", exclude_defaults=True)) + "\n"


def _write(found: TunedRun, tunable: Tunable, budget: str) -> None:
    tuned = found.tuned
    head = f"# Found by noisin tune: {tunable.what} of std {tuned.std:g}.\n\n"
    write_atomically(found.folder / f"{NAME}.toml", (head + as_toml(found.config)).encode())
    content: dict[str, Any] = {
        "what": tunable.what,
        "budget": budget,
        "spent": found.spent,
        "plan": asdict(tuned.plan) | {"cost": tuned.plan.cost},
        "start": None if found.start is None else asdict(found.start),
        "clean": None if found.clean is None else asdict(found.clean),
        "tried": [asdict(one) for one in tuned.tried],
        "chosen": {"std": tuned.std, "lr": tuned.lr, "score": tuned.score},
    }
    write_atomically(
        found.folder / "tune.json", (json.dumps(finite(content), indent=2) + "\n").encode()
    )
