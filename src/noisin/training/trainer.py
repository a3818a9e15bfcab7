"""The training loop.

Any model with ``loss`` and ``log_prob`` is trained on any task with ``unit`` and ``batches``:

>>> from noisin import data, models, tasks, training
>>> text = tasks.Text(data.load("manual"), batch_size=20)
>>> model = models.LanguageModel(text.observation.size, hidden_size=128)
>>> trainer = training.Trainer(training.TrainConfig(epochs=5), out="runs/demo")
>>> record = trainer.fit(model, text)  # doctest: +SKIP

A run that was stopped or killed continues when the same code is called again, and ends with results
that are bit for bit those of an uninterrupted run. :func:`noisin.training.run` builds the model and
the task from a config.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn

from noisin._util import arguments, products
from noisin._util.lock import locked
from noisin.data import Batch
from noisin.errors import InvalidType, Unsupported
from noisin.models import Trainable
from noisin.models.padding import require_none
from noisin.noise.sampling import set_shard
from noisin.tasks import Score, Task
from noisin.tasks.base import Split, first_batch, name_of, splits_of
from noisin.training import resume
from noisin.training.annealing import require_kl
from noisin.training.checkpoint import Checkpoints
from noisin.training.conclusion import recorded, summarize
from noisin.training.config import RunConfig, TrainConfig
from noisin.training.identity import own_config
from noisin.training.noise_schedule import NoiseSchedule
from noisin.training.predictors import Clean, Tally, tally
from noisin.training.record import RunRecord
from noisin.training.runtime.clock import Clock
from noisin.training.runtime.device import own_random_stream, rewind, use_threads
from noisin.training.runtime.divergence import Diverged, advice, all_finite, first_weight, trace
from noisin.training.runtime.memory import give_back
from noisin.training.runtime.progress import Progress, Quiet, RunOutline, Status
from noisin.training.runtime.signals import Interrupted, caught
from noisin.training.runtime.tracking import Tracked, find_tracker
from noisin.training.runtime.workers import Workers
from noisin.training.schedule import Weights
from noisin.training.starting import initial_weights
from noisin.training.state import TrainState, recorded_means
from noisin.training.step import Gradient, Stepper

CHECK_EVERY = 20  # steps between two checks of the loss if a check has to wait for the device
LIMITS = (None, "tokens", "minutes")  # limits that can cut an epoch short
NOTHING, SAVE, STOP = 0, 1, 2  # requests of a process after a step; a signal is STOP + its number


class Trainer:
    """Trains a model on a task and records the run in a folder.

    Args:
        train: the recipe, its limits, and how often to save.
        out: the folder: new, empty, or that of the same run, which is then continued.
        threads: processor threads; by default as many as the model has enough work for.
        device: where to compute: ``"cpu"``, ``"cuda"``, ``"mps"`` or ``"auto"``.
        progress: shows the progress of the run.
        workers: the processes that train together.
        settings: the config that the model and the task were built from. Without it, the record
            contains their identities: see :mod:`noisin.training.identity`.
    """

    def __init__(
        self,
        train: TrainConfig,
        out: str | Path,
        *,
        threads: int | None = None,
        device: str = "cpu",
        progress: Progress | None = None,
        workers: Workers | None = None,
        settings: RunConfig | None = None,
    ) -> None:
        advice = "Pass the train section of a config, such as TrainConfig(epochs=5)."
        arguments.instance("Trainer: train", train, TrainConfig, advice)
        self.train = train
        self.settings, self.threads, self.device = settings, threads, device
        self.record = RunRecord(out)
        self.workers = Workers() if workers is None else workers
        self.progress = progress if progress is not None and self.workers.main else Quiet()
        if self.workers.main and (trackers := [find_tracker(name) for name in train.trackers]):
            self.progress = Tracked(self.progress, trackers)

    def fit(
        self,
        model: nn.Module,
        task: Task,
        noise: NoiseSchedule = NoiseSchedule(),  # noqa: B008
    ) -> RunRecord:
        """Train until a limit is reached. A run in the folder is continued.

        Args:
            model: a module with ``loss`` and ``log_prob``: see :class:`noisin.models.Trainable`.
            task: the data: see :class:`noisin.tasks.Task`.
            noise: the noise of the model in each epoch.

        Raises:
            Interrupted: after Ctrl-C or SIGTERM; the run is saved.
            Diverged: if the loss is no longer finite.
        """
        _check(model, task)
        require_kl(self.train, model)
        self.config = self.settings or own_config(
            self.train, model, task, threads=self.threads, device=self.device
        )
        self.task, self.noise = task, noise
        self.stepper = Stepper(self.train, self.workers, self.config.seed)
        device = resume.device_to_use(self.record, self.config)
        with ExitStack() as stack:
            with self.workers.main_first():
                stack.enter_context(own_random_stream(device))
                self.flag = stack.enter_context(caught())
                # What can be refused without the record is, before a folder is created for it.
                first = first_batch(task)
                require_none(model, first)
                self.initial = initial_weights(self.train.start, self.record, model, task)
                if self.workers.main:
                    self.record.make_folder()
                    stack.enter_context(locked(self.record.folder))
                self.identity = resume.identity(self.config, task) | self.initial.identity
                resume.refuse_another(self.record, self.config, self.identity, name_of(task))
            rows = first.x.shape[1] * self.train.K
            threads = resume.threads_to_use(self.record, self.config, model, rows)
            stack.enter_context(use_threads(threads))
            stack.enter_context(products.using(resume.products_to_use(self.record, self.workers)))
            stack.callback(set_shard, model, None)  # later callers give it whole batches
            if not resume.is_complete(self.record, self.config):
                self._train(self._start(model, first, device))
            self._agreed(NOTHING)  # one process may have caught a signal after the last poll
        return self.record

    def _start(self, model: nn.Module, first: Batch, device: torch.device) -> TrainState:
        """The initial state of the run, or that of its newest checkpoint."""
        self.initial.load(model)
        state = TrainState(model, self.train, device)
        pattern = state.pattern(first, self.train.K)
        self.checkpoints = Checkpoints(self.record.checkpoints, self.identity, pattern)
        with self.workers.main_first():
            resume.go_back(state, self.checkpoints, self.record, self.progress.note)
        if state.step != (furthest := self.workers.agree(state.step)):
            raise Unsupported(
                f"training: this process would continue from step {state.step} of "
                f"{self.record.folder}, and another from step {furthest}. All processes must see "
                f"the same folder."
            )
        self.workers.split(state.model, first)
        state.carried = self.workers.scatter(state.carried)
        self.clock = Clock(self.train, state.seconds, state.tokens)
        self.saved = state.position
        if state.cut and not state.stop and self._over(state) is None:
            raise Unsupported(
                f"training: {self.record.folder} was stopped by a limit in the middle of an epoch "
                f"and cannot be continued. Start again in another folder with the larger limit."
            )
        if self.workers.main:
            resume.write_record(self.record, self.config, self.task, state, self.initial.entry)
        return state

    def _train(self, state: TrainState) -> None:
        """Train epochs until a limit is reached."""
        self.progress.begin(self._outline(state))
        try:
            while (reason := self._over(state)) is None:
                self._train_epoch(state)
                self.progress.epoch(self._validate(state), self.task.unit)
            self._conclude(state, reason)
        except Interrupted:
            self._save(state)
            raise
        finally:
            self.progress.end()

    def _outline(self, state: TrainState) -> RunOutline:
        return RunOutline(
            self.record.folder,
            self.config,
            parameters=sum(weight.numel() for weight in state.parameters),
            device=state.device.type,
            threads=torch.get_num_threads(),
            done=state.epoch,
        )

    def _over(self, state: TrainState) -> str | None:
        """The limit that the run has reached at the end of an epoch, if any."""
        if state.stop:  # in the middle of an epoch
            return None
        if state.epoch >= self.train.epochs:
            return "epochs"
        if state.schedule.out_of_patience(self.train):
            return "patience"
        return self._limit(state)

    def _limit(self, state: TrainState) -> str | None:
        """The limit on tokens or minutes that is reached. Clocks differ, so all processes agree."""
        over = self.clock.over(state.tokens)
        if self.train.minutes is None:
            return over
        return LIMITS[self.workers.agree(LIMITS.index(over))]

    def _train_epoch(self, state: TrainState) -> None:
        """Train on the remaining batches of this epoch."""
        self.noise.begin(state.model, state.epoch)
        state.model.train()
        state.cut = False
        for batch in self.task.batches("train", epoch=state.epoch, start=state.stop):
            if state.stop and self._limit(state):
                state.cut = True
                break
            self._step(state, batch)
            self._after_step(state)

    def _step(self, state: TrainState, batch: Batch) -> None:
        """One training step."""
        gradient = self.stepper.gradient(state, batch)
        self._check_finite(state, gradient)
        self.stepper.update(state, batch)

    def _check_finite(self, state: TrainState, gradient: Gradient) -> None:
        """Stop before a non-finite value reaches the weights, or soon after on a device."""
        if state.device.type != "cpu" and state.step % CHECK_EVERY:
            return
        if not (sum(state.sums.values()) + gradient.norm).isfinite():
            rewind(gradient.drawn_from, state.device)  # the batch again, with the same noise
            raise self._diverged(state, state.step + 1, trace(state.model, gradient.forward))

    def _diverged(self, state: TrainState, step: int, where: str) -> Diverged:
        numbers = self.checkpoints.numbers()
        kept = (
            f"the last good checkpoint is {self.checkpoints.path(numbers[-1])}" if numbers else ""
        )
        noise = self.noise.noise(state.epoch)
        return Diverged(
            f"training: the loss is not finite at step {step} of {self.record.folder} (epoch "
            f"{state.epoch + 1}): {where}. {advice(self.train, noise)} Use another folder for a "
            f"run with other settings; {kept or 'this one has no checkpoint yet'}."
        )

    def _after_step(self, state: TrainState) -> None:
        """Save, stop or report if due."""
        if self._agreed(SAVE if self.clock.save_is_due(state.step) else NOTHING) == SAVE:
            self._save(state)
        if self.clock.report_is_due():
            self.progress.status(self._status(state))

    def _status(self, state: TrainState) -> Status:
        extent = getattr(self.task, "extent", None)
        part = state.stop / extent if extent else 0.0
        return self.clock.status(
            state.tokens, state.epoch, part, self.task.unit, state.means["nats"]
        )

    def _agreed(self, request: int) -> int:
        """The largest request of all processes; a signal stops all of them at the same point."""
        if self.flag.signum is not None:
            request = STOP + self.flag.signum
        request = self.workers.agree(request)
        if request >= STOP:
            raise self._interrupted(request - STOP)
        return request

    def _interrupted(self, signum: int) -> Interrupted:
        return Interrupted(
            signum,
            f"stopped and saved in {self.record.folder}. Run the same command again to continue.",
        )

    def _poll(self) -> None:
        """Stop an evaluation if a signal was caught."""
        if self.flag.signum is not None:
            raise self._interrupted(self.flag.signum)

    def _validate(self, state: TrainState) -> dict[str, Any]:
        """End an epoch: evaluate, update the schedule, record the metrics, save."""
        noise, means = self.noise.noise(state.epoch), state.means
        train = Score(means["nats"], state.scored)
        valid = self._score(state, "valid")
        for split, score in (("train", train), ("valid", valid)):
            if not math.isfinite(score.nats):
                raise self._diverged(state, state.step, f"measured on {split}")
        averaged = None
        if state.average is not None:
            averaged = state.average.scored(partial(self._score, state, "valid"), valid)
        clean = self._score(state, "train_clean") if self._has("train_clean") else None
        metrics: dict[str, Any] = {
            "epoch": state.epoch + 1,
            "step": state.step,
            "tokens": state.tokens,
            "lr": state.schedule.lr,
            "noise_std": None if noise is None else math.sqrt(noise.variance),
            "train": recorded(train),
            "train_clean": recorded(clean),
            "valid": recorded(valid),
            "valid_averaged": recorded(averaged),
            **recorded_means(means),
            "seconds": round(self.clock.seconds, 3),
            "tokens_per_second": round(self.clock.speed(state.tokens), 1),
        }
        nats = None if averaged is None else averaged.nats
        improved = state.schedule.judge(self.train, valid.nats, nats)
        if self.workers.main:
            state.offset = self.record.append(metrics)
        state.next_epoch()
        self._save(state, improved)
        give_back()
        return metrics

    def _has(self, split: Split) -> bool:
        return split in splits_of(self.task)

    def _score(self, state: TrainState, split: Split) -> Score:
        """The score of the clean model; each process computes a part, and a signal stops it."""
        own = Tally()
        with suppress(Interrupted):  # raised in all processes by the next line
            own = self._own_tally(state, split)
        self._agreed(NOTHING)
        log_p, count = self.workers.sum([own.log_p, own.count])
        return Tally(log_p, int(count)).score

    def _own_tally(self, state: TrainState, split: Split) -> Tally:
        shares = self.workers.shares(state.model, self.task.batches(split))
        # Latent variables are drawn alike after every epoch, and not from the stream of training.
        with own_random_stream(state.device), closing(shares):
            torch.manual_seed(self.config.seed)
            report = partial(self._report_score, state, split)
            return tally(Clean(state.model), shares, self._poll, report)

    def _report_score(self, state: TrainState, split: Split, score: Score) -> None:
        """Report that a split is being scored, if due."""
        if self.clock.report_is_due():
            status = self.clock.status(state.tokens, state.epoch, 1.0, self.task.unit, score.nats)
            self.progress.status(replace(status, scoring=split))

    def _save(self, state: TrainState, improved: Sequence[Weights] = ()) -> None:
        """Save a checkpoint unless this state is saved; it is the best of ``improved`` weights."""
        if state.position == self.saved:
            return
        if not all_finite([*state.parameters, *state.sums.values()]):
            raise self._diverged(state, state.step, first_weight(state.model) or "in its loss")
        saved = state.state_dict(self.clock.seconds, self.workers.gather(state.carried))
        if self.workers.main:
            state.best = self.checkpoints.save(
                state.weights(),
                state.average_weights(),
                saved,
                step=state.step,
                epoch=state.epoch,
                best=state.best,
                improved=improved,
            )
        self.saved = state.position
        self.clock.saved()

    def _conclude(self, state: TrainState, reason: str) -> None:
        """Score the best weights on the test data and write the summary."""
        with self.workers.main_first():
            newest = self.checkpoints.newest(self.progress.note)
        assert newest is not None
        summary = summarize(
            state,
            self.checkpoints,
            newest,
            self.record.metrics,
            lambda split: self._score(state, split) if self._has(split) else None,
            ended=reason,
            seconds=round(self.clock.seconds, 3),
            config=self.config.hash(),
        )
        with self.workers.main_first():
            if self.workers.main:
                self.record.write("summary.json", summary.to_json())


def _check(model: object, task: object) -> None:
    if not isinstance(model, nn.Module) or not isinstance(model, Trainable):
        raise InvalidType(
            f"Trainer: expected a torch.nn.Module with loss(batch, state) and log_prob(batch, "
            f"state), got {type(model).__name__}. See noisin.models.Trainable."
        )
    if not isinstance(task, Task):
        raise InvalidType(
            f"Trainer: expected a task with unit and batches(split, epoch=, start=), got "
            f"{type(task).__name__}. See noisin.tasks.Task."
        )
