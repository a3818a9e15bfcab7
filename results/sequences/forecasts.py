"""Print the table of the forecasts of each series: python results/sequences/forecasts.py [FOLDER]

FOLDER, results/sequences by default, has the sweeps MODEL-final with the forecast-SEED.json of each
run. The CRPS of a target is divided by that of its seasonal-naive forecast of 24 steps before; then
all are means over targets, and mean ± sample standard deviation over seeds.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from typing import Any

from noisin.errors import InvalidData
from noisin.experiments import formats
from noisin.experiments.seeds import Mean
from noisin.tasks.unit import Unit

HERE = Path(__file__).parent
HEADS = ("data", "arm", "noise", "CRPS / naive", "in 50 %", "in 80 %", "in 95 %")
ARMS = ("none", "dropout", "noise")
CRPS = Unit("nats", "step")  # for its digits


def read(path: Path) -> dict[str, Any]:
    """What noisin generate wrote, of which this needs the scores of every target."""
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        for targets in (content["targets"], content.get("without_noise", content["targets"])):
            scores(targets)
        return content | {"noise": bool(content["noise"])}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidData(
            f"{path} is damaged ({error}). Delete it and run noisin generate again."
        ) from None


def scores(targets: Mapping[str, Any]) -> tuple[float, ...]:
    """Relative CRPS, and how much the bands of 50, 80 and 95 % contain, in percent."""
    found = targets.values()
    coverage = (
        100 * mean(target["coverage"][band] for target in found) for band in ("0.5", "0.8", "0.95")
    )
    return mean(target["crps"] / target["naive"]["24"] for target in found), *coverage


def row(data: str, arm: str, noise: str, runs: list[tuple[float, ...]]) -> tuple[str, ...]:
    """The line of an arm."""
    crps, *bands = (Mean.of(values) for values in zip(*runs, strict=True))
    return (data, arm, noise, crps.shown(CRPS), *map(str, bands))


def table(folder: Path) -> str:
    """The table, in Markdown; empty without forecasts."""
    rows = []
    for sweep in sorted(folder.glob("*-final")):
        for arm in ARMS:
            files = sorted(sweep.glob(f"{arm}-seed-*/forecast-*.json"))
            found = [read(file) for file in files]
            if not found:
                continue
            data = sweep.name.split("-")[0]
            off = [scores(one.get("without_noise", one["targets"])) for one in found]
            rows.append(row(data, arm, "off", off))
            if found[0]["noise"]:
                rows.append(row(data, arm, "on", [scores(one["targets"]) for one in found]))
    sheet = formats.Sheet("Forecasts", HEADS, tuple(rows), left=(0, 1, 2))
    return formats.markdown(sheet) if rows else ""


def main() -> None:
    """Read the arguments; a wrong one is refused with exit code 2."""
    parser = argparse.ArgumentParser(description="Print the table of the forecasts.")
    parser.add_argument("folder", metavar="FOLDER", nargs="?", type=Path, default=HERE)
    folder = parser.parse_args().folder
    try:
        found = table(folder)
    except InvalidData as error:
        parser.error(str(error))
    if not found:
        parser.error(f"{folder} has no forecast-*.json of a MODEL-final. Run noisin generate.")
    print(found)


if __name__ == "__main__":
    main()
