"""Write the final sweeps of section 3 of results/PLAN.md: python results/evidence/final.py [OUT]

OUT, runs/evidence by default, is the folder of the tuning: that of tune.sh, and of `noisin sweep`
of none.toml and gates.toml with --out OUT. A question is left out until all its arms are tuned.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from pathlib import Path
from typing import Any

from noisin._util import toml
from noisin.errors import InvalidData, InvalidValue, NoisinError
from noisin.experiments.collection import collect
from noisin.experiments.evidence import points
from noisin.experiments.evidence.arms import arms_of
from noisin.experiments.evidence.questions import QUESTIONS

HERE = Path(__file__).parent


def tuned_in(out: Path) -> dict[str, dict[str, Any]]:
    """The settings of every arm whose tuning is done."""
    tuned = {}
    for arm in sorted({path.parents[1] for path in out.glob("*/tune-*/tuned.toml")}):
        # Of two searches of an arm, the one with the lower score on valid.
        tuned[arm.name] = read(min(arm.glob("tune-*/tuned.toml"), key=score))
    for sweep in ("none", "gates"):  # learning rates alone
        runs = arms_of(collect(out), sweep).values()
        if len(runs) == len(points.LRS) and all(arm.runs for arm in runs):
            best = min(runs, key=lambda arm: arm.valid)
            (run,) = best.runs.values()
            tuned[sweep] = run.config.model_dump(mode="json", exclude_defaults=True)
    return tuned


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
