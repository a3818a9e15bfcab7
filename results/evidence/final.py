"""Write the final sweeps of section 3 of results/PLAN.md: python results/evidence/final.py [OUT]

OUT, runs/evidence by default, is the folder of the tuning: that of tune.sh, and of `noisin sweep`
of none.toml and gates.toml with --out OUT. A question is left out until all its arms are tuned.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from noisin._util import toml
from noisin.errors import InvalidData, InvalidValue, NoisinError
from noisin.experiments.collection import collect
from noisin.experiments.evidence import points
from noisin.experiments.evidence.arms import arms_of
from noisin.experiments.evidence.questions import QUESTIONS
from noisin.experiments.evidence.tuned import BY_SWEEPS
from noisin.experiments.records import Run

HERE = Path(__file__).parent


def tuned_in(out: Path) -> dict[str, dict[str, Any]]:
    """The settings of every arm whose tuning is done."""
    tuned = {}
    for arm in sorted({path.parents[1] for path in out.glob("*/tune-*/tuned.toml")}):
        # Of two searches of an arm, the one with the lower score on valid.
        tuned[arm.name] = read(min(arm.glob("tune-*/tuned.toml"), key=score))
    runs = collect(out)
    for sweep in BY_SWEEPS:
        try:
            run = best_rate(runs, sweep)
        except InvalidValue as error:
            print(error)  # the questions without this arm do not depend on it
            continue
        if run is not None:
            tuned[sweep] = run.config.model_dump(mode="json", exclude_defaults=True)
    return tuned


def best_rate(runs: Iterable[Run], sweep: str) -> Run | None:
    """The best run of a sweep over learning rates, or None until all have ended.

    A learning rate that diverged was tried, and is never the best.
    """
    tried = arms_of(runs, sweep).values()
    if len(tried) < len(points.LRS) or not all(arm.runs or arm.diverged for arm in tried):
        return None
    found = [run for arm in sorted(tried, key=lambda arm: arm.valid) for run in arm.runs.values()]
    if not found:
        raise InvalidValue(
            f"evidence: all learning rates of the sweep {sweep} diverged, so none can be chosen. "
            f"Add lower ones to results/evidence/{sweep}.toml and run the sweep again."
        )
    return found[0]


def score(tuned: Path) -> float:
    """That of the best run of a search."""
    path = tuned.with_name("tune.json")
    try:
        return float(json.loads(path.read_text(encoding="utf-8"))["chosen"]["score"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidData(f"{path} is damaged ({error}). Run noisin tune again.") from None


def read(path: Path) -> dict[str, Any]:
    """What noisin tune wrote."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InvalidData(f"{path} is damaged ({error}). Run noisin tune again.") from None


def write(tuned: dict[str, dict[str, Any]]) -> None:
    """The sweeps of all questions whose arms are tuned, and that of the gates."""
    if "weak" in tuned:
        gates = points.gates(tuned["weak"]["noise"]["std"])
        (HERE / "gates.toml").write_text(toml.dumps(gates) + "\n")
    for question in QUESTIONS:
        try:
            (HERE / f"{question.sweep}.toml").write_text(points.sweep(question, tuned))
        except InvalidValue as error:
            print(error)


def main() -> None:
    """Read the arguments; a wrong one is refused with exit code 2."""
    parser = argparse.ArgumentParser(description="Write the final sweeps of the plan.")
    parser.add_argument("out", metavar="OUT", nargs="?", type=Path, default=Path("runs/evidence"))
    try:
        write(tuned_in(parser.parse_args().out))
    except NoisinError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
