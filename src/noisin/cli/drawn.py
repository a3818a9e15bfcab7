"""What ``noisin generate`` draws from a model that does not predict words: music and forecasts."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text

from noisin._util.files import write_atomically
from noisin.cli.consoles import new_table, show_table, tell
from noisin.cli.meter import Meter
from noisin.errors import InvalidValue
from noisin.experiments.pictures.drawn import forecast_bands, piano_roll
from noisin.experiments.pictures.learning_curves import can_draw, save
from noisin.training.record import RunRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from noisin.data.series import SeriesTable
    from noisin.tasks import Series
    from noisin.training.forecasts import Forecasts
    from noisin.training.load import Restored

FRAMES, STEPS, PATHS = 64, 24, 100  # by default
PAST = 48  # steps before a forecast, in the picture


@dataclass(frozen=True)
class Drawing:
    """What to draw from the model of a run, and where to write it.

    Attributes:
        record: the record of the run.
        restored: its model.
        out: the folder.
        length: frames or steps; None is the default.
        samples: paths of a forecast; None is the default.
        noise: whether the noise of training is on.
        seed: of the draws.
        folder: where the data is, if it was moved.
    """

    record: RunRecord
    restored: Restored
    out: Path
    length: int | None
    samples: int | None
    noise: bool
    seed: int
    folder: Path | None

    def music(self) -> None:
        """A piece of music as a MIDI file and a piano roll."""
        import torch

        from noisin.data.midi import FRAMES_PER_QUARTER, to_midi
        from noisin.data.music import NOTES
        from noisin.models.paths import draw

        if self.samples is not None:
            raise InvalidValue("--samples is for forecasts of a series; music is one piece.")
        generator = torch.Generator().manual_seed(self.seed)
        with self._drawing(self.noise):
            frames = draw(
                self.restored.model,
                torch.zeros(1, NOTES),
                FRAMES if self.length is None else self.length,
                lambda drawn: drawn,
                generator=generator,
            )
        piece = frames[:, 0].byte().numpy()
        name = self.record.config.data.name
        path = self.out / f"music-{self.seed}.mid"
        write_atomically(path, to_midi(piece, FRAMES_PER_QUARTER.get(name, 2)))
        title = f"{name}, drawn with seed {self.seed}"
        drawn = self._draw(lambda: piano_roll(piece, title), path)
        tell(f"{len(piece)} frames with {int(piece.sum())} notes are in {path}{drawn}.")

    def forecasts(self, task: Series) -> None:
        """Forecasts of the test data, their scores, and a picture of one in the middle.

        With noise, those without it are scored too. Sequences that are too short are left out.
        """
        from noisin.training.forecasts import LEVELS, joined, origins_of

        length = self.length or min(task.data.seasons, default=STEPS)
        K = self.samples or PATHS
        tables = [table for table in task.data.test if origins_of(task, table, length)]
        if not tables:  # the longest is refused with a message
            tables = [max(task.data.test, key=lambda table: len(origins_of(task, table, 1)))]
        parts = self._forecasts(task, tables, length, K, self.noise)
        found = joined(parts)
        scores = {"": found.by_target(task.data.targets)}
        if self.noise:
            without = joined(self._forecasts(task, tables, length, K, noise=False))
            scores = {
                ", noise on": scores[""],
                ", noise off": without.by_target(task.data.targets),
            }
        told = {
            "run": str(self.record.folder),
            "split": "test",
            "epoch": self.restored.epoch,
            "weights": self.restored.weights,
            "noise": self.noise,
            "seed": self.seed,
            "length": length,
            "samples": K,
            "sequences": len(tables),
            "forecasts": len(found.origins),
            **dict(zip(("targets", "without_noise"), scores.values(), strict=False)),
        }
        path = self.out / f"forecast-{self.seed}.json"
        write_atomically(path, (json.dumps(told, indent=2) + "\n").encode())
        table, shown = tables[len(tables) // 2], parts[len(tables) // 2]
        middle = len(shown.origins) // 2
        origin = shown.origins[middle]
        drawn = self._draw(
            lambda: forecast_bands(
                task.data.targets,
                table.target[max(0, origin - PAST) : origin],
                shown.observed[middle],
                shown.samples[:, middle],
                {season: values[middle] for season, values in shown.naive.items()},
                LEVELS,
            ),
            path,
        )
        several, short = len(task.data.test) > 1, len(task.data.test) - len(tables)
        of = f"{len(tables)} sequences of test" if several else "test"
        left_out = f" (too short: {short})" if short else ""
        tell(
            f"{len(found.origins)} forecasts of {length} steps of {of}{left_out}, one after "
            f"another, {K} paths each{', with noise on' if self.noise else ''}:\n"
        )
        _print(scores, list(found.naive))
        tell(f"\nThe scores are in {path}{drawn}.")

    def _forecasts(
        self, task: Series, tables: Sequence[SeriesTable], length: int, K: int, noise: bool
    ) -> list[Forecasts]:
        """K paths of each forecast of each table."""
        from noisin.training.forecasts import forecast, origins_of

        sizes = {"length": length, "K": K, "seed": self.seed}
        counts = [len(origins_of(task, table, length)) for table in tables]
        found: list[Forecasts] = []
        with self._drawing(noise), Meter("forecasts", sum(counts), "forecasts") as meter:
            for table in tables:
                before = sum(counts[: len(found)])
                show = partial(_show_after, meter, before)
                found.append(forecast(self.restored.model, task, table, **sizes, progress=show))
        return found

    @contextmanager
    def _drawing(self, noise: bool) -> Iterator[None]:
        """The model without dropout, with noise or without."""
        import torch

        from noisin.recurrent.injection import as_training, noise_on

        model, config = self.restored.model, self.restored.config
        if noise and (config.noise is None or config.train.objective == "penalty"):
            raise InvalidValue(
                f"{self.record.folder}: was trained without noise, so --noise has no effect. "
                f"Leave it out."
            )
        torch.manual_seed(self.seed)  # of noise and latent variables
        with as_training(model, on=False), noise_on(model) if noise else nullcontext():
            yield

    def _draw(self, figure: Callable[[], Figure], beside: Path) -> str:
        """Write a picture beside a file; return the end of a sentence about it."""
        if not can_draw():
            return "; to draw a picture, run pip install 'noisin[plot]' and the same command again"
        svg, _ = save(figure(), beside.with_suffix(".svg"))
        return f", the picture in {svg} (and .png)"


def _show_after(meter: Meter, before: int, done: int) -> None:
    meter.show(before + done)


def _print(scores: Mapping[str, dict[str, Any]], seasons: Sequence[int]) -> None:
    """A table: the forecasts of each target beside the naive ones, by what names their kind."""
    from noisin.training.forecasts import LEVELS

    bands = [f"in {100 * level:g} %" for level in LEVELS]
    naive = [f"naive {season}" for season in seasons]
    table = new_table("target", "CRPS", "MAE", *naive, *bands)
    for name in next(iter(scores.values())):
        for kind, by_target in scores.items():
            score = by_target[name]
            errors = [score["crps"], score["mae"], *score["naive"].values()]
            shares = [f"{100 * share:.1f} %" for share in score["coverage"].values()]
            table.add_row(Text(name + kind), *(f"{error:.4g}" for error in errors), *shares)
    show_table(table)
