"""Forecasts of a series by samples, their scores, and the seasonal-naive forecasts beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from noisin._util import arguments, states
from noisin.analysis.forecasts import Array, coverage, crps, seasonal_naive
from noisin.data import Batch
from noisin.data.series import SeriesTable
from noisin.errors import InvalidValue
from noisin.models import SequenceModel
from noisin.models.latent import LatentModel
from noisin.models.paths import draw
from noisin.recurrent.injection import injected_modules
from noisin.tasks.series import Series

LEVELS = (0.5, 0.8, 0.95)
COLUMNS = 10_000  # paths that are drawn side by side
ROWS = 100_000  # steps of all copies that are read at a time


@dataclass(frozen=True)
class Forecasts:
    """K paths of H steps from each of M origins, at the scale of the data.

    Attributes:
        origins: the row of the table in which each forecast begins.
        samples: ``(K, M, H, O)``.
        observed: what came, ``(M, H, O)``.
        scored: which of it is scored, ``(M, H)``.
        naive: the seasonal-naive forecasts by season, ``(M, H, O)``.
    """

    origins: list[int]
    samples: Array
    observed: Array
    scored: NDArray[np.bool_]
    naive: Mapping[int, Array]

    def by_target(self, names: Sequence[str]) -> dict[str, Any]:
        """The scores of all targets, by their names."""
        return {name: self.scores(target) for target, name in enumerate(names)}

    def scores(self, target: int) -> dict[str, Any]:
        """The scores of one of the O targets, over all scored steps of all forecasts.

        CRPS and the mean absolute error (MAE, of the median) are in the unit of the data. The CRPS
        of a naive forecast, which is a point, is its MAE.
        """
        x, y = self.samples[..., target][:, self.scored], self.observed[..., target][self.scored]
        return {
            "crps": float(crps(x, y).mean()),
            "mae": float(np.abs(np.median(x, 0) - y).mean()),
            "coverage": {f"{level:g}": coverage(x, y, level) for level in LEVELS},
            "naive": {
                str(season): float(np.abs(forecast[..., target][self.scored] - y).mean())
                for season, forecast in self.naive.items()
            },
        }


def forecast(
    model: SequenceModel | LatentModel,
    task: Series,
    table: SeriesTable,
    *,
    length: int,
    K: int = 100,
    seed: int = 1111,
    progress: Callable[[int], None] = lambda _: None,
) -> Forecasts:
    """Forecasts of ``length`` steps, one after another, through the scored rows of a table.

    Each begins with the state after everything before it was read, and K paths are drawn from
    there. The covariates of its steps are known; the targets are not. Where reading is random, by
    noise or by latent variables, which are drawn from their posterior, each path has read the past
    on its own: the forecast is that of an ensemble.

    Args:
        model: the model, in the mode in which to draw.
        task: the series that the model was trained on.
        table: such as ``task.data.test[0]``.
        length: steps of a forecast.
        K: the number of paths.
        seed: of the draws. Noise, and the latent variables of the past, are drawn from the model's
            own stream.
        progress: called with the number of forecasts that are done.
    """
    arguments.whole("forecast: length", length)
    arguments.whole("forecast: K", K)
    arguments.whole("forecast: seed", seed, 0)
    seasons = task.data.seasons
    origins = origins_of(task, table, length)
    if not origins:
        raise InvalidValue(
            f"forecast: {table.name} has {len(table)} steps, too few for a forecast of {length} "
            f"after the first {_first(task, table)}. {_advice(task, table)}"
        )
    samples = np.empty((K, len(origins), length, len(task.data.targets)))
    generator = torch.Generator().manual_seed(seed)
    random = isinstance(model, LatentModel) or any(m._noise_acts() for m in injected_modules(model))
    before = _states_before(model, task, table, origins, K if random else 1)
    together = max(1, COLUMNS // K)
    for start in range(0, len(origins), together):
        own = slice(start, start + together)
        state = states.join(list(islice(before, together)), 1)
        state = state if random else states.repeat(state, K)
        paths = _Paths(task, table, np.tile(origins[own], K))
        draw(model, paths.inputs(), length, paths.step, state=state, generator=generator)
        drawn = np.stack(paths.values, 1)  # (K · origins, H, O), the origins of a path together
        samples[:, own] = drawn.reshape(K, -1, *drawn.shape[1:])
        progress(min(start + together, len(origins)))
    window = [slice(origin, origin + length) for origin in origins]
    return Forecasts(
        origins,
        samples,
        np.stack([table.target[own] for own in window]),
        np.stack([table.scored[own] for own in window]),
        {
            season: np.stack([seasonal_naive(table.target[:o], season, length) for o in origins])
            for season in seasons
        },
    )


def origins_of(task: Series, table: SeriesTable, length: int) -> list[int]:
    """The rows in which forecasts of a table begin: none, if it is too short."""
    return list(range(_first(task, table), len(table) - length + 1, length))


def _first(task: Series, table: SeriesTable) -> int:
    """The first row that is scored, and has a season before it."""
    return max([int(np.argmax(table.scored)), 1, *task.data.seasons])


def _advice(task: Series, table: SeriesTable) -> str:
    """What to do where a table is too short for a forecast."""
    if origins_of(task, table, 1):
        return "Use a smaller length."
    if len(table) > (season := max(task.data.seasons, default=0)):
        return "No length is small enough: use a longer series."
    return (
        f"No length is small enough, because a season of {season} steps comes before a forecast. "
        f"Train with a smaller data.columns.season, or with more rows in or before the split "
        f"(data.columns.context)."
    )


def joined(parts: Sequence[Forecasts]) -> Forecasts:
    """The forecasts of several tables as one, to score them together."""
    return Forecasts(
        [origin for part in parts for origin in part.origins],
        np.concatenate([part.samples for part in parts], 1),
        np.concatenate([part.observed for part in parts]),
        np.concatenate([part.scored for part in parts]),
        {
            season: np.concatenate([part.naive[season] for part in parts])
            for season in parts[0].naive
        },
    )


def _states_before(
    model: SequenceModel | LatentModel,
    task: Series,
    table: SeriesTable,
    origins: Sequence[int],
    copies: int,
) -> Iterator[Any]:
    """The state before each origin, after so many copies of everything before it were read."""
    steps, state = task.steps(table), None
    together = max(1, ROWS // copies)
    for origin, stop in pairwise([0, *origins]):
        for start in range(origin, stop, together):
            own = steps.part(start, min(start + together, stop))
            x, target = (torch.from_numpy(values).unsqueeze(1) for values in own[:2])
            with torch.no_grad():
                _, state = model.log_prob(Batch(x, target).repeat(copies), state)
        yield state


class _Paths:
    """What several paths have read so far: the levels of the last two steps, ``(N, O)``.

    ``rows`` is the row of the table at which each path stands, ``(N,)``.
    """

    def __init__(self, task: Series, table: SeriesTable, rows: NDArray[np.int64]) -> None:
        self.task, self.covariates, self.rows = task, table.covariates, rows
        levels = np.concatenate([np.zeros((2, table.target.shape[1])), task.read(table.target)])
        self.before, self.level = levels[rows], levels[rows + 1]  # zeros precede the first row
        self.values: list[Array] = []  # at the scale of the data

    def inputs(self) -> Tensor:
        """The inputs of the step at which the paths stand; after the last row, those of it."""
        known = self.covariates[np.minimum(self.rows, len(self.covariates) - 1)]
        return torch.from_numpy(self.task.inputs(self.level, self.before, known))

    def step(self, drawn: Tensor) -> Tensor:
        """Take what was drawn, and return the next inputs."""
        level, values = self.task.after(drawn.double().numpy(), self.level)
        self.level, self.before, self.rows = level, self.level, self.rows + 1
        self.values.append(values)
        return self.inputs()
