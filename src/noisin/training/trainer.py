"""The training loop, from top to bottom.

>>> from noisin import training
>>> config = training.RunConfig(model={"hidden_size": 200}, noise={"gamma": 0.5})
>>> record = training.Trainer(config, out="runs/demo").fit()  # doctest: +SKIP
>>> record.summary["best"]["test"]  # doctest: +SKIP

A run that was stopped or killed goes on when the same is called again, and ends in the same bits as
one that was not.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import noisin
from noisin import data
from noisin._util import arguments
from noisin._util.lock import locked
from noisin.data import Corpus, Window, Windows
from noisin.data.cache import Ids
from noisin.errors import Unsupported
from noisin.models import detach
from noisin.tasks.unit import PERPLEXITY
from noisin.training import predictors, resume
from noisin.training.build import Objective, build_noise, build_objective
from noisin.training.checkpoint import Checkpoint, Checkpoints
from noisin.training.config import RunConfig
from noisin.training.record import RunRecord
from noisin.training.runtime.clock import Clock
from noisin.training.runtime.device import (
    find_device,
    own_random_stream,
    random_state,
    rewind,
    use_threads,
)
from noisin.training.runtime.divergence import Diverged, advice, all_finite, first_weight, trace
from noisin.training.runtime.progress import Progress, Quiet
from noisin.training.runtime.signals import Interrupted, caught
from noisin.training.runtime.tensorboard import Board
from noisin.training.runtime.workers import Workers
from noisin.training.schedule import Weights
from noisin.training.state import Run, load_weights

LOOK = 20  # steps between two looks at the loss, where looking means to wait for the device
LIMITS = (None, "tokens", "minutes")  # that may cut an epoch short
NOTHING, SAVE, STOP = 0, 1, 2  # what a process may wish for after a step; STOP + the signal


class Trainer:
    """Trains the model of a config, and keeps the record of it in a folder.

    Args:
        config: all settings.
        out: the folder; new, empty, or that of the same run, which then goes on.
        progress: shows how far it is.
        workers: the processes that train together.
    """

    def __init__(
        self,
        config: RunConfig,
        out: str | Path,
        progress: Progress | None = None,
        workers: Workers | None = None,
    ) -> None:
        arguments.instance(
            "Trainer: config", config, RunConfig, "Read one with RunConfig.from_toml(path)."
        )
        self.config = config
        self.record = RunRecord(out)
        self.workers = Workers() if workers is None else workers
        self.progress = progress if progress is not None and self.workers.main else Quiet()

    def fit(self, corpus: Corpus | None = None) -> RunRecord:
        """Train until a limit is reached, or go on where the run in the folder stands.

        Args:
            corpus: the text; that of the config unless given.

        Raises:
            Interrupted: after Ctrl-C or SIGTERM; the run is saved.
            Diverged: where the loss is no longer a finite number.
        """
        device = find_device(self.config.device)
        with ExitStack() as stack:
            with self.workers.main_first():
                if corpus is None:
                    corpus = data.load(self.config.data.name, self.config.data.folder)
                if self.workers.main:
                    self.record.make_folder()
                    stack.enter_context(locked(self.record.folder))
                stack.enter_context(own_random_stream(device))
                self.flag = stack.enter_context(caught())
                resume.refuse_another(self.record, self.config, corpus)
            threads = resume.threads_to_use(self.record, self.config, len(corpus.vocab))
            stack.enter_context(use_threads(threads))
            if not resume.is_complete(self.record, self.config):
                self._train(self._start(corpus, device), corpus)
            self._agreed(NOTHING)  # a signal after the last look is not for this run alone
        return self.record

    def _start(self, corpus: Corpus, device: torch.device) -> Run:
        """The run as it is at its beginning, or where its newest checkpoint was made."""
        train = self.config.train
        self.windows = Windows(
            corpus.train,
            train.batch_size,
            train.bptt,
            variable=train.variable_length,
            seed=self.config.seed,
        )
        for text in (corpus.valid, corpus.test, self._clean(corpus)):
            if text is not None:  # refuse now what is too short to measure on
                Windows(text, train.eval_batch_size, 1)
        torch.manual_seed(self.config.seed)
        run = Run(self.config, len(corpus.vocab), device)
        self.workers.split(run.model, train.batch_size)
        identity = resume.identity(self.config, corpus)
        self.checkpoints = Checkpoints(self.record.checkpoints, identity, run.pattern())
        with self.workers.main_first():
            resume.go_back(run, self.checkpoints, self.record, self.progress.note)
        if run.step != (furthest := self.workers.agree(run.step)):
            raise Unsupported(
                f"training: this process would go on from step {run.step} of {self.record.folder}, "
                f"and another from step {furthest}. All of them must see the same folder."
            )
        run.carried = self.workers.scatter(run.carried)
        self.clock = Clock(train, run.seconds, run.tokens)
        self.saved = run.position
        if run.cut and not run.row and self._over(run) is None:
            raise Unsupported(
                f"training: {self.record.folder} was ended by a limit in the middle of an epoch "
                f"and cannot go on. Start anew, in another folder, with the larger limit."
            )
        if self.workers.main:
            resume.write_record(self.record, self.config, corpus, run)
        return run

    def _train(self, run: Run, corpus: Corpus) -> None:
        """Epoch after epoch, until a limit is reached."""
        wanted = self.config.train.tensorboard and self.workers.main
        with Board(self.record.folder, wanted, run.epoch) as board:
            self.progress.begin(self.record.folder.name)
            try:
                while (reason := self._over(run)) is None:
                    self._train_epoch(run)
                    metrics = self._validate(run, corpus)
                    board.write(metrics)
                    self.progress.epoch(metrics, PERPLEXITY)
                with self.workers.main_first():
                    if self.workers.main:
                        self._conclude(run, corpus, reason)
            except Interrupted:
                self._save(run)
                raise
            finally:
                self.progress.end()

    def _over(self, run: Run) -> str | None:
        """The limit that the run has reached at the end of an epoch, if any."""
        if run.row:  # in the middle of one
            return None
        if run.epoch >= self.config.train.epochs:
            return "epochs"
        if run.course.out_of_patience(self.config.train):
            return "patience"
        return self._limit(run)

    def _limit(self, run: Run) -> str | None:
        """The limit on tokens or minutes that is reached; clocks differ, so processes agree."""
        over = self.clock.over(run.tokens)
        if self.config.train.minutes is None:
            return over
        return LIMITS[self.workers.agree(LIMITS.index(over))]

    def _train_epoch(self, run: Run) -> None:
        """All windows of the text that this epoch has not seen yet."""
        noise = build_noise(self.config.noise, run.epoch)
        if self.config.train.objective == "noise" and noise is not None:
            noisin.set_noise(run.model, noise)
        objective = build_objective(self.config, run.epoch)
        run.model.train()
        run.cut = False
        for window in self.windows.epoch(run.epoch, start=run.row):
            if run.row and self._limit(run):
                run.cut = True
                break
            self._step(run, objective, window)
            self._after_step(run)

    def _step(self, run: Run, objective: Objective, window: Window) -> None:
        """One window: loss, gradient, clip, update, average."""
        train = self.config.train
        mine = self.workers.share(window)
        x, target = mine.x.to(run.device), mine.target.to(run.device)
        forward = partial(objective, run.model, x, target, detach(run.carried))
        drawn_from = random_state(run.device)
        nll, penalty, run.carried = forward()
        run.optimizer.zero_grad()
        torch.autograd.backward(nll + penalty)
        gradients = [p.grad for p in run.parameters if p.grad is not None]
        losses = torch.stack([nll.detach(), penalty.detach()]).double()
        self.workers.average([*gradients, losses])
        norm = torch.nn.utils.get_total_norm(gradients, foreach=True)
        if train.clip:
            torch.nn.utils.clip_grads_with_norm_(run.parameters, train.clip, norm, foreach=True)
        run.count(losses, window.target.numel())
        self._check_finite(run, norm, forward, drawn_from)
        for group in run.optimizer.param_groups:
            group["lr"] = run.course.lr * (len(x) / train.bptt if train.variable_length else 1)
        run.optimizer.step()
        if run.average is not None:
            run.average.update()
        run.advance(window)

    def _check_finite(
        self, run: Run, norm: Tensor, forward: Callable[[], Any], drawn_from: Mapping[str, Tensor]
    ) -> None:
        """Stop before a number that is none reaches the weights, or soon after on a device."""
        if run.device.type != "cpu" and run.step % LOOK:
            return
        if not (run.sums.sum() + norm).isfinite():
            rewind(drawn_from, run.device)  # the window again, with the same noise
            raise self._diverged(run, run.step + 1, trace(run.model, forward))

    def _diverged(self, run: Run, step: int, where: str, what: str = "loss") -> Diverged:
        numbers = self.checkpoints.numbers()
        kept = (
            f"the last good checkpoint is {self.checkpoints.path(numbers[-1])}" if numbers else ""
        )
        return Diverged(
            f"training: the {what} is no finite number at step {step} of {self.record.folder} "
            f"(epoch {run.epoch + 1}): {where}. {advice(self.config, run.epoch)} A run with other "
            f"settings needs a folder of its own; {kept or 'this one had not saved yet'}."
        )

    def _after_step(self, run: Run) -> None:
        """Save, stop or tell, if it is time to."""
        if self._agreed(SAVE if self.clock.save_is_due(run.step) else NOTHING) == SAVE:
            self._save(run)
        if self.clock.report_is_due():
            part = run.row / self.windows.rows
            nats = math.log(run.perplexity)
            self.progress.status(self.clock.status(run.tokens, run.epoch, part, PERPLEXITY, nats))

    def _agreed(self, wish: int) -> int:
        """What all processes do, if one of them wishes it; a signal stops all at the same point."""
        if self.flag.signum is not None:
            wish = STOP + self.flag.signum
        wish = self.workers.agree(wish)
        if wish >= STOP:
            raise self._interrupted(wish - STOP)
        return wish

    def _interrupted(self, signum: int) -> Interrupted:
        return Interrupted(
            signum,
            f"stopped and saved in {self.record.folder}. Run the same command again to go on.",
        )

    def _validate(self, run: Run, corpus: Corpus) -> dict[str, Any]:
        """The end of an epoch: measure, decide, write it down, save."""
        train = self.config.train
        noise = build_noise(self.config.noise, run.epoch)
        valid = self._perplexity(run, corpus.valid)
        for text, value in (("train", run.perplexity), ("valid", valid)):
            if not math.isfinite(value):  # of a finite loss too, where exp() overflows
                raise self._diverged(run, run.step, f"that of {text}", "perplexity")
        averaged = None
        if run.average is not None:
            with run.average.applied():
                averaged = self._perplexity(run, corpus.valid)
        clean = self._clean(corpus)
        metrics = {
            "epoch": run.epoch + 1,
            "step": run.step,
            "tokens": run.tokens,
            "lr": run.course.lr,
            "noise_std": None if noise is None else noise.std,
            "train": run.perplexity,
            "train_clean": None if clean is None else self._perplexity(run, clean),
            "penalty": run.penalty if train.objective == "penalty" else None,
            "valid": valid,
            "valid_averaged": averaged,
            "seconds": round(self.clock.seconds, 3),
            "tokens_per_second": round(self.clock.speed(run.tokens), 1),
        }
        improved = run.course.judge(train, valid, averaged)
        if self.workers.main:
            run.offset = self.record.append(metrics)
        run.next_epoch()
        self._save(run, improved)
        return metrics

    def _clean(self, corpus: Corpus) -> Ids | None:
        """The part of the training text to measure without noise, if any."""
        tokens = self.config.train.clean_tokens
        return corpus.train[: tokens + 1] if tokens else None

    def _perplexity(self, run: Run, ids: Ids) -> float:
        """Of the clean model, measured by the main process for all. A signal breaks it off."""
        measured = math.nan
        if self.workers.main:
            with suppress(Interrupted):  # which all processes hear of in the next line
                measured = self._measured(run, ids)
        self._agreed(NOTHING)
        return self.workers.tell(measured)

    def _measured(self, run: Run, ids: Ids) -> float:
        def look(*_: Any) -> None:
            if self.flag.signum is not None:
                raise self._interrupted(self.flag.signum)

        hook = run.model.embedding.register_forward_pre_hook(look)
        try:
            batch_size = self.config.train.eval_batch_size
            return predictors.perplexity(run.model, ids, batch_size=batch_size).perplexity
        finally:
            hook.remove()

    def _save(self, run: Run, improved: Sequence[Weights] = ()) -> None:
        """A checkpoint of this moment, unless there is one; of ``improved`` weights the best."""
        if run.position == self.saved:
            return
        if not all_finite([*run.parameters, run.sums]):
            raise self._diverged(run, run.step, first_weight(run.model) or "in its loss")
        state = run.state_dict(self.clock.seconds, self.workers.gather(run.carried))
        if self.workers.main:
            run.best = self.checkpoints.save(
                run.weights(),
                run.average_weights(),
                state,
                step=run.step,
                epoch=run.epoch,
                best=run.best,
                improved=improved,
            )
        self.saved = run.position
        self.clock.saved()

    def _conclude(self, run: Run, corpus: Corpus, reason: str) -> None:
        """Measure the best weights on the test text, and write the summary."""
        newest = self.checkpoints.newest(self.progress.note)
        assert newest is not None
        lines = self.record.metrics
        bests = {}
        for weights, best in run.course.bests.items():
            saved = self.checkpoints.best(newest, weights)
            measured = self._measured_again(run, corpus, saved, weights)
            bests[weights] = lines[best.epoch - 1] | {"weights": weights} | measured
        self.record.write(
            "summary.json",
            {
                "ended": reason,
                "epochs": run.epoch,
                "steps": run.step,
                "tokens": run.tokens,
                "seconds": round(self.clock.seconds, 3),
                "parameters": sum(p.numel() for p in run.parameters),
                "best": bests[run.course.best_weights],
                "raw": bests.get("raw"),
                "averaged": bests.get("averaged"),
                "last": lines[-1],
                "config": self.config.hash(),
            },
        )

    def _measured_again(
        self, run: Run, corpus: Corpus, best: Checkpoint, weights: Weights
    ) -> dict[str, Any]:
        """What was not measured of the best weights when their epoch ended."""
        saved = best.weights if weights == "raw" else best.average
        assert saved is not None
        load_weights(run.weights(), saved)
        measured = {"test": self._measured(run, corpus.test), "checkpoint": best.manifest.number}
        clean = self._clean(corpus)
        if weights == "averaged" and clean is not None:  # the line has that of the raw weights
            measured["train_clean"] = self._measured(run, clean)
        return measured
