"""Print the flags of a repeated search, if its plan wants one: python results/evidence/again.py ARM

ARM is the folder of an arm's tuning. By section 3 of results/PLAN.md a search whose result is an
end of what was tried, of the stds or of the learning rates, is repeated once around it. The larger
of the two stds that were trained to the end is not one if still larger ones were tried; noisin tune
says of it that the best may lie beyond, and the plan does not repeat the search.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

STEPS = 10**0.4  # two steps of the grid of stds


def searches(arm: Path) -> list[dict[str, Any]]:
    """What was found by all searches of an arm."""
    return [json.loads(path.read_text()) for path in sorted(arm.glob("tune-*/tune.json"))]


def flags(found: list[dict[str, Any]]) -> list[str]:
    """Those of a repeated search; none if there was one, or if the result is not an end."""
    # A repeated search measures no start; with another learning rate it has a folder of its own.
    if len(found) != 1 or found[0]["start"] is None:
        return []
    (search,) = found
    std, lr = search["chosen"]["std"], search["chosen"]["lr"]
    stds, lrs = ({one[name] for one in search["tried"]} for name in ("std", "lr"))
    result = []
    if std in (min(stds), max(stds)):
        result += ["--around", f"{std * STEPS if std == max(stds) else std / STEPS:.2g}"]
    if len(lrs) > 1 and lr in (min(lrs), max(lrs)):
        result += ["--train.lr", f"{lr:g}"]
    return result


def main() -> None:
    """Read the arguments; a wrong one is refused with exit code 2."""
    parser = argparse.ArgumentParser(description="Print the flags of a repeated search, if any.")
    parser.add_argument("arm", metavar="ARM", type=Path)
    arm = parser.parse_args().arm
    try:
        found = searches(arm)
        again = flags(found)
    except (OSError, ValueError, KeyError, TypeError) as error:
        parser.error(f"{arm}: a tune.json is damaged ({error}). Run noisin tune again.")
    if not found:
        parser.error(f"{arm} has no tuning. Run results/evidence/tune.sh first.")
    print(*again)


if __name__ == "__main__":
    main()
