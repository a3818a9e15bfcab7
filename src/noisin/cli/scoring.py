"""The work of ``noisin evaluate``: its data, its predictor, its search, and its words."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from noisin._util import arguments
from noisin._util.settings import nest
from noisin.cli.consoles import new_table, show_table
from noisin.cli.meter import Meter
from noisin.cli.progress import labelled
from noisin.errors import InvalidData, InvalidValue, Unavailable
from noisin.experiments.seeds import number
from noisin.training import tuning
from noisin.training.record import RunRecord
from noisin.training.tuning import Trial, best

if TYPE_CHECKING:
    from torch import Tensor

    from noisin.data import Batch
    from noisin.tasks import Score, Task, Unit
    from noisin.tasks.base import Split
    from noisin.training.load import Restored
    from noisin.training.predictors import Statistics

ALL = 10**15  # tokens, more than any text has
COLUMNS = 100  # of the training data, for the statistics of the gradients
WINDOW, THETA, LAMBDA = 500, 0.6, 0.1  # the default cache
SMALLEST = {"temperature": 1.0, "cache.window": 1, "cache.theta": 0.0, "cache.lambda": 0.0}


@dataclass(frozen=True)
class Session:
    """A trained model and its data.

    Attributes:
        record: the record of its run.
        restored: the model.
        folder: where the data is, if it was moved.
        batch_size: columns of the text to score.
        method: ``exact``, or a method that mixes samples.
        seed: of the samples.
        given: the settings of the predictor by dotted name, None where they were not given.
        note: called with messages for the user.
        unknown: the share of the input words to replace by the unknown word.
        calibration: whether to measure how often the likeliest word is right.
    """

    record: RunRecord
    restored: Restored
    folder: Path | None
    batch_size: int
    method: str
    seed: int
    given: Mapping[str, Any]
    note: Callable[[str], None]
    unknown: float = 0.0
    calibration: bool = False

    @cached_property
    def task(self) -> Task:
        """The task of the run, with its data in columns; raises for other data."""
        return task_of(self.record, self.folder, self.batch_size)

    @property
    def unit(self) -> Unit:
        """The unit of the scores."""
        return self.task.unit

    @cached_property
    def statistics(self) -> Statistics | None:
        """Of the gradients on the training data, if dynamic evaluation needs them."""
        dynamic = "dynamic.segment" in self.given
        if not dynamic or self.given["dynamic.normalisation"] == "sgd":
            return None
        from noisin.training.predictors.saved import saved_statistics

        sizes = self._tokens
        columns = COLUMNS if sizes is None else max(1, min(COLUMNS, sizes["train"] // 10))
        task = task_of(self.record, self.folder, self.batch_size, columns)
        rows = sum(len(batch.x) for batch in task.batches("train"))
        done = 0
        with Meter("gradients on the training data", rows, "rows") as meter:

            def show(batch: Batch) -> None:
                nonlocal done
                done += len(batch.x)
                meter.show(done)

            return saved_statistics(
                self.record.folder,
                self.restored.model,
                lambda: task.batches("train"),
                self.given["dynamic.segment"],
                about=[self.record.identity["data"], columns],
                note=self.note,
                progress=show,
            )

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The settings of the predictor: those given, and defaults."""
        from noisin.training.predictors.assemble import usual_rates

        found = {name: value for name, value in self.given.items() if value is not None}
        usual = {"temperature": 1.0, **({"power": 1.0} if "power" in self.given else {})}
        found = {**usual, **found}
        if "cache.window" in self.given:
            cache = {"window": self.longest("test", WINDOW), "theta": THETA, "lambda": LAMBDA}
            found = {**{f"cache.{name}": value for name, value in cache.items()}, **found}
        if "dynamic.segment" in self.given:
            kind, segment = found["dynamic.normalisation"], found["dynamic.segment"]
            rates = usual_rates(kind, self.statistics, segment)
            names = ("lr", "decay", "epsilon")
            found = {**{f"dynamic.{name}": getattr(rates, name) for name in names}, **found}
        return found

    @property
    def _tokens(self) -> dict[str, int] | None:
        """The length of each split, as the record has it."""
        sizes = self.record.environment.get("data", {}).get("tokens")
        if not isinstance(sizes, list) or len(sizes) != 3:
            return None
        return dict(zip(("train", "valid", "test"), map(int, sizes), strict=True))

    def longest(self, split: str, most: int) -> int:
        """The rows of a column of a split, or ``most`` if it has more or they are not known."""
        sizes = self._tokens
        rows = most if sizes is None else sizes[split] // self.batch_size - 1
        return max(1, min(rows, most))

    def check(self, split: str) -> None:
        """Raise for settings that are not valid, before anything that takes long."""
        from noisin.training.predictors import Rates
        from noisin.training.predictors.assemble import assemble, within

        given = {name: value for name, value in self.given.items() if value is not None}
        usual = {name: value for name, value in SMALLEST.items() if name in self.given}
        own = {name: value for name, value in given.items() if not name.startswith("dynamic.")}
        assemble(self.restored.model, self.method, {**usual, **own})
        if dynamic := within("dynamic", given):
            arguments.whole("Dynamic: segment", dynamic.pop("segment"))
            Rates(**dynamic)
        window = self.given.get("cache.window")
        if window is not None and window > (rows := self.longest(split, ALL)):
            one = self.batch_size == 1
            columns = split if one else f"each of the {self.batch_size} columns of {split}"
            raise InvalidValue(
                f"--cache.window {window} is larger than the text: {columns} has {rows:,} words. "
                f"Use a window of at most that{'' if one else ', or a smaller --batch-size'}."
            )

    def score(self, split: Split, settings: Mapping[str, Any]) -> tuple[Score, dict[str, Any]]:
        """The score of a split, and what else was measured.

        That is the other conventions by which the score of sequences is reported, which a stream
        such as a text does not have, and the calibration if it is wanted.
        """
        from noisin.training.predictors import Confidence
        from noisin.training.predictors.conventions import Conventions

        name: Split = "train_clean" if split == "train" else split
        total = sum(batch.count for batch in self.task.batches(name))
        found = Conventions()
        predictor = self._predictor(settings)
        if self.calibration:
            predictor = Confidence(predictor)
        batches = self._with_unknown(self.task.batches(name))
        score = self._scored(split, batches, total, predictor, found.add)
        if "dynamic.lr" in settings and not math.isfinite(self.unit.value(score.nats)):
            self.note(
                f"Dynamic evaluation diverged: with --dynamic.lr {settings['dynamic.lr']:g} the "
                f"{self.unit.name} is not finite. Use a smaller one, or --tune."
            )
        others = {"conventions": found.to_json()}
        if self.calibration:
            others["calibration"] = predictor.to_json()
        return score, {name: value for name, value in others.items() if value is not None}

    def tuned(self, budget: int, tokens: int) -> tuple[Sequence[Trial], int]:
        """The settings that were tried on a part of valid, in order, and its targets."""
        from noisin.training.predictors.parts import part_of

        start = self.settings
        longest = min(self.longest("valid", ALL), max(1, tokens // self.batch_size))
        fixed = [name for name, value in self.given.items() if value is not None]
        grids = tuning.grids(start, longest, fixed)
        if not hasattr(self.restored.model.head, "tempered"):
            grids.pop("temperature", None)
        if self.restored.vocab is None:  # a power mean of the probabilities of all words
            grids.pop("power", None)
        if not grids:
            raise InvalidValue(
                "--tune: all settings are given, so there is nothing to tune. Leave some out."
            )
        part = partial(part_of, partial(self.task.batches, "valid"), tokens)
        total = sum(batch.count for batch in part())
        tried = 0

        def measure(settings: Mapping[str, Any]) -> float:
            nonlocal tried
            tried += 1
            predictor = self._predictor(settings)
            return self._scored(f"trial {tried}/{budget}", part(), total, predictor).nats

        return tuning.search(measure, start, grids, budget), total

    def _predictor(self, settings: Mapping[str, Any]) -> Any:
        from noisin.training.predictors.assemble import assemble

        return assemble(self.restored.model, self.method, settings, self.statistics)

    def _with_unknown(self, batches: Iterable[Batch]) -> Iterable[Batch]:
        """The same with some of the input words unknown. The targets are as they were."""
        if not self.unknown:
            return batches
        import torch

        from noisin.data.vocab import UNK

        assert self.restored.vocab is not None
        word = self.restored.vocab.id(UNK)
        stream = torch.Generator().manual_seed(self.seed)
        masks = ((torch.rand(b.x.shape, generator=stream) < self.unknown, b) for b in batches)
        return (replace(b, x=b.x.masked_fill(mask, word)) for mask, b in masks)

    def _scored(
        self,
        title: str,
        batches: Iterable[Batch],
        total: int,
        predictor: Any,
        each: Callable[[Batch, Tensor], None] = lambda *_: None,
    ) -> Score:
        import torch

        from noisin.training.predictors import evaluate
        from noisin.training.runtime.device import use_threads

        torch.manual_seed(self.seed)
        # As many as were worth it in training: for a small model, more are slower on busy cores.
        threads = min(torch.get_num_threads(), self.record.threads)
        with use_threads(threads), Meter(title, total, self.unit.targets) as meter:

            def show(score: Score) -> None:
                meter.show(score.count, labelled(self.unit.value(score.nats), self.unit))

            return evaluate(predictor, batches, progress=show, each=each)


def task_of(
    record: RunRecord, folder: Path | None, batch_size: int, columns: int | None = None
) -> Task:
    """The task of a run, with its data in ``batch_size`` columns; raises for other data.

    ``columns`` are those of the training data, if it is read in order.
    """
    from noisin import data
    from noisin.data import hourly, music
    from noisin.tasks.base import facts_of
    from noisin.training.build import build_task

    config = record.config
    place: dict[str, Any] = {}
    if folder is not None:
        public = config.data.name in (*data.NAMES, *music.FILES, *hourly.FILES)
        place = {"folder": str(folder)} if public else {"name": str(folder), "folder": None}
    limits: dict[str, Any] = {"eval_batch_size": batch_size, "clean_tokens": ALL}
    if columns is not None:
        limits |= {"batch_size": columns, "variable_length": False}
    here = {
        "data": config.data.model_copy(update=place),
        "train": config.train.model_copy(update=limits),
    }
    try:
        task = build_task(config.model_copy(update=here))
    except Unavailable as error:
        if folder is not None:
            raise
        raise Unavailable(f"{error} If the data of the run was moved, use --data PATH.") from error
    sha256 = facts_of(task)["data"]["sha256"]
    if record.environment.get("data", {}).get("sha256") != sha256:
        raise InvalidData(
            f"{folder or config.data.name}: is not the data that {record.folder} was trained on: "
            f"the sha256 is {sha256}. Pass the path of the right data with --data."
        )
    return task


def sentence(found: Mapping[str, Any], unit: Unit) -> str:
    """An evaluation in words, with everything that was used."""
    stderr, error = found["stderr"], ""
    if stderr is not None and math.isfinite(stderr):
        error = f" ± {unit.error(found['nats'], stderr):.2g}"
    lines = [
        f"{found['split']} {unit.name} {found[unit.name]:.2f}{error}  "
        f"({', '.join(_used(found))}; {found['weights']} weights after epoch {found['epoch']}; "
        f"batch {found['batch_size']}, {found['count']:,} {unit.per}s)"
    ]
    if others := found.get("conventions"):
        after = others["after_first"]
        lines += [
            f"without the first {unit.per} of each of {others['sequences']:,} sequences "
            f"{unit.value(after['nats']):.2f}  ({after['count']:,} {unit.per}s)",
            f"mean of the sequences {unit.value(others['mean']):.2f}",
        ]
    if measured := found.get("calibration"):
        lines.append(
            f"the likeliest {unit.per} is right in {measured['accuracy']:.1%}, and said to be in "
            f"{measured['confidence']:.1%}; calibration error {measured['error']:.2%} "
            f"({measured['bins']} bins of equal count)"
        )
    if stderr is not None and not error:
        why = "one sample has none" if found["K"] == 1 else "a few of the samples dominate"
        lines.append(f"The standard error is not known: {why}. Use more --samples.")
    return "\n".join(lines)


def _used(found: Mapping[str, Any]) -> Iterator[str]:
    yield found["method"]
    if "K" in found:
        yield f"{found['K']} samples"
    if "masks" in found:
        yield f"masks of a {found['masks']}, power {found['power']:g}"
    if found["temperature"] != 1:
        yield f"temperature {found['temperature']:g}"
    if found.get("unknown"):
        yield f"{found['unknown']:.0%} of the input words unknown"
    for name in ("cache", "dynamic"):
        if name in found:
            yield f"{name} ({' '.join(chain(*map(_pair, found[name].items())))})"
    if "tuned" in found:
        trials = len(found["tuned"]["trials"])
        targets = f"{found['tuned']['tokens']:,} {found['per']}s"
        yield f"best of {trials} on {targets} of valid"


def _pair(item: tuple[str, Any]) -> tuple[str, str]:
    name, value = item
    return name, f"{value:g}" if isinstance(value, float) else str(value)


def print_trials(trials: Sequence[Trial], unit: Unit) -> None:
    """A table of what was tried on valid; the best is marked."""
    values = {name: {trial.settings[name] for trial in trials} for name in trials[0].settings}
    shown = [name for name, known in values.items() if len(known) > 1] or ["temperature"]
    table = new_table(*shown, f"valid {unit}", left=())
    for trial in trials:
        nats = number(unit.value(trial.nats), unit) + (" *" if trial == best(trials) else "")
        table.add_row(*(_pair((name, trial.settings[name]))[1] for name in shown), nats)
    show_table(table)


def described(trials: Sequence[Trial], tokens: int) -> dict[str, Any]:
    """A search as a record contains it."""
    tried = [{**nest(trial.settings), "nats": trial.nats} for trial in trials]
    return {"split": "valid", "tokens": tokens, "trials": tried}
