"""Write the next sweep of a model and print its path: python results/sequences/next.py MODEL [OUT]

MODEL is `jsb-gru`, for example; OUT, runs by default, the folder of its sweeps. By the plan
(results/PLAN.md, Sequences) the tuning comes first, then, once, a grid whose best strength is one
of its ends is extended there, then every arm is run at its best strength with three seeds. Nothing
is printed when all of them are done.
"""

from __future__ import annotations

import argparse
import tomllib
from pathlib import Path

from noisin.experiments.collection import collect
from noisin.experiments.records import Run

HERE = Path(__file__).parent
# The strengths beyond the ends of a grid, by its size.
BEYOND = {
    ("dropout", 4): (0.06, 0.67),
    ("noise", 4): (0.25, 1.4),
    ("dropout", 3): (0.03, 0.6),
    ("noise", 3): (0.17, 1.2),
}
TITLES = {
    "extended": "The grids whose best strength was at their end, extended there.",
    "final": "Every arm at the strength that was best for it on valid with seed 1110.",
}


def finished(out: Path, sweep: str) -> list[Run]:
    """The complete runs of a sweep."""
    folder = out / sweep
    return [run for run in collect(folder) if run.complete] if folder.is_dir() else []


def scores(out: Path, sweep: str) -> dict[str, float]:
    """The best score on valid of every point of a sweep of one seed."""
    return {run.folder.name.split("-seed-")[0]: run.best["valid"] for run in finished(out, sweep)}


def lines(arm: str, strength: float) -> list[str]:
    """The settings of an arm at a strength."""
    if arm == "noise":
        return ['noise.family = "gaussian"', f"noise.std = {strength}"]
    return [f"model.dropout.{place} = {strength}" for place in ("between", "output")]


def write(model: str, stage: str, points: dict[str, list[str]]) -> Path:
    """The sweep of a stage: the settings of the tuning with other points, and with other seeds."""
    _, _, settings = (HERE / f"{model}-tuning.toml").read_text().partition("\n\n")
    settings = settings.partition("[[points]]")[0]
    if stage == "final":
        settings = settings.replace("[1110]", "[1111, 1112, 1113]")
    blocks = ["\n".join(["[[points]]", f'name = "{name}"', *at]) for name, at in points.items()]
    path = HERE / f"{model}-{stage}.toml"
    path.write_text(f"# {TITLES[stage]}\n\n{settings}" + "\n\n".join(blocks) + "\n")
    return path


def next_sweep(model: str, out: Path) -> Path | None:
    """The sweep to run next, or None after the last."""
    tuning = HERE / f"{model}-tuning.toml"
    names = [point["name"] for point in tomllib.loads(tuning.read_text())["points"]]
    valid = scores(out, tuning.stem)
    if len(valid) < len(names):
        return tuning
    grids = {
        arm: sorted(float(name.rpartition("-")[2]) for name in names if name.startswith(arm))
        for arm in ("dropout", "noise")
    }
    beyond = {}
    for arm, grid in grids.items():
        best = min(grid, key=lambda strength: valid[f"{arm}-{strength}"])
        below, above = BEYOND[arm, len(grid)]
        if best in (grid[0], grid[-1]):
            strength = below if best == grid[0] else above
            beyond[f"{arm}-{strength}"] = lines(arm, strength)
            grid.append(strength)
    extended = scores(out, f"{model}-extended")
    if len(extended) < len(beyond):
        return write(model, "extended", beyond)
    valid |= extended
    points: dict[str, list[str]] = {"none": []}
    for arm, grid in grids.items():
        points[arm] = lines(arm, min(grid, key=lambda strength: valid[f"{arm}-{strength}"]))
    path = write(model, "final", points)
    return path if len(finished(out, path.stem)) < 3 * len(points) else None


def main() -> None:
    """Read the arguments; a wrong one is refused with exit code 2."""
    models = sorted(path.stem.removesuffix("-tuning") for path in HERE.glob("*-tuning.toml"))
    parser = argparse.ArgumentParser(description="Write the next sweep of a model, print its path.")
    parser.add_argument("model", metavar="MODEL", choices=models, help=", ".join(models))
    parser.add_argument("out", metavar="OUT", nargs="?", type=Path, default=Path("runs"))
    given = parser.parse_args()
    if given.out.exists() and not given.out.is_dir():
        parser.error(f"{given.out} is not a folder. Name the --out of noisin sweep.")
    path = next_sweep(given.model, given.out)
    if path is not None:
        print(path)


if __name__ == "__main__":
    main()
