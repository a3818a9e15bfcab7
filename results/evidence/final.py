"""Write the final sweeps of section 3 of results/PLAN.md: python results/evidence/final.py [OUT]

OUT, runs/evidence by default, is the folder of the tuning: that of tune.sh, and of `noisin sweep`
of none.toml and gates.toml with --out OUT. A question is left out until all its arms are tuned.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

from noisin._util import toml
from noisin.errors import InvalidValue
from noisin.experiments.collection import collect
from noisin.experiments.evidence import points
from noisin.experiments.evidence.arms import arms_of
from noisin.experiments.evidence.questions import QUESTIONS

HERE = Path(__file__).parent
OUT = Path(sys.argv[1] if len(sys.argv) > 1 else "runs/evidence")

tuned = {
    path.parts[-3]: tomllib.loads(path.read_text()) for path in OUT.glob("*/tune-*/tuned.toml")
}
for sweep in ("none", "gates"):  # learning rates alone
    runs = arms_of(collect(OUT), sweep).values() if OUT.is_dir() else ()
    if len(runs) == len(points.LRS) and all(arm.runs for arm in runs):
        best = min(runs, key=lambda arm: arm.valid)
        (run,) = best.runs.values()
        tuned[sweep] = run.config.model_dump(mode="json", exclude_defaults=True)
if "weak" in tuned:
    gates = points.gates(tuned["weak"]["noise"]["std"])
    (HERE / "gates.toml").write_text(toml.dumps(gates) + "\n")
for question in QUESTIONS:
    try:
        (HERE / f"{question.sweep}.toml").write_text(points.sweep(question, tuned))
    except InvalidValue as error:
        print(error)
