"""Question F: what else noise buys. It reads the evaluations of the final runs of question A.

There is no claim to decide, so there is no verdict: for each measure the mean of an arm without
regularization, of the best dropout and of weak noise, and the paired differences of the latter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from noisin.experiments.evidence.arms import Arm, arms_of
from noisin.experiments.evidence.rules import DROPOUTS, WEAK
from noisin.experiments.formats import Sheet
from noisin.experiments.intervals import Interval
from noisin.experiments.records import Run
from noisin.experiments.seeds import Mean
from noisin.tasks.unit import PERPLEXITY
from noisin.training.evaluations import kind_of
from noisin.training.scores import in_unit

NOTHING = "-"
UNKNOWN = (0.05, 0.1, 0.2)
SAMPLES, BATCH_SIZE = 16, 10  # of an ensemble, and the default of noisin evaluate
Evaluation = Mapping[str, Any]
Measure = Callable[[Evaluation], float | None]


def _calibration(line: Evaluation) -> float | None:
    measured = line.get("calibration")
    return 100 * measured["error"] if measured and _is(line, "static") else None


def _temperature(line: Evaluation) -> float | None:
    found = "tuned" in line and (_is(line, "temperature") or _is(line, "static"))
    return line["temperature"] if found else None


def _static(line: Evaluation) -> float | None:
    return _perplexity(line) if _is(line, "static") else None


def _unknown(share: float) -> Measure:
    kind = kind_of({"method": "exact", "unknown": share})
    return lambda line: _perplexity(line) if _is(line, kind) and _is_at_one(line) else None


def _ensemble(line: Evaluation) -> float | None:
    found = _is(line, "arithmetic") and _is_at_one(line) and line.get("K") == SAMPLES
    return _perplexity(line) if found else None


def _is(line: Evaluation, kind: str) -> bool:
    """Whether an evaluation is of a kind; scores of other batch sizes are not comparable."""
    return kind_of(line) == kind and line.get("batch_size", BATCH_SIZE) == BATCH_SIZE


def _is_at_one(line: Evaluation) -> bool:
    """Whether the temperature is 1, which the kind does not say of an ensemble."""
    return bool(line.get("temperature", 1) == 1)


def _perplexity(line: Evaluation) -> float | None:
    return in_unit(line, PERPLEXITY)


MEASURES: Mapping[str, Measure] = {
    "calibration error, %": _calibration,
    "best temperature on valid": _temperature,
    "test": _static,
    **{f"test, {100 * share:g} % of the inputs unknown": _unknown(share) for share in UNKNOWN},
    "test, ensemble of noise": _ensemble,
}


def extras(runs: Sequence[Run]) -> Sheet | None:
    """The table of question F, as far as there are evaluations; None without any."""
    arms = arms_of(runs, "claim-a")
    dropouts = [arm for name, arm in arms.items() if name in DROPOUTS and arm.runs]
    if not dropouts or not {"none", WEAK} <= arms.keys():
        return None
    best = min(dropouts, key=lambda arm: arm.valid)
    shown = (arms["none"], best, arms[WEAK])
    rows = []
    for words, measure in MEASURES.items():
        values = [_measured(arm, measure) for arm in shown]
        if any(values):
            rows.append((words, *map(_mean, values), *(_change(values[2], v) for v in values[:2])))
    heads = ("", "none", best.name, WEAK, f"{WEAK} - none (95 %)", f"{WEAK} - {best.name} (95 %)")
    return Sheet("F. What else does it buy?", heads, tuple(rows)) if rows else None


def _measured(arm: Arm, measure: Measure) -> dict[int, float]:
    """The newest value of each seed, on test and of the best weights."""
    lines = [
        (seed, line) for seed, run in arm.runs.items() for line in run.evaluations_of_best("test")
    ]
    return {seed: value for seed, line in lines if (value := measure(line)) is not None}


def _mean(values: Mapping[int, float]) -> str:
    if not values:
        return NOTHING
    found = Mean.of([*values.values()])
    return f"{found.mean:.2f}" + ("" if found.std is None else f" ± {found.std:.2f}")


def _change(values: Mapping[int, float], others: Mapping[int, float]) -> str:
    seeds = sorted(values.keys() & others.keys())
    if len(seeds) < 2:
        return NOTHING
    found = Interval.of([values[seed] - others[seed] for seed in seeds])
    return f"{found.mean:+.2f} ({found.low:+.2f} to {found.high:+.2f})"
