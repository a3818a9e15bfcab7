"""``noisin verify``: checks of the claims of the paper."""

from __future__ import annotations

import json as json_format
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

import noisin
from noisin.cli.arguments import Switch, WholeNumber
from noisin.cli.consoles import Messages, show_table, tell, tell_sentences, width
from noisin.errors import InvalidValue

if TYPE_CHECKING:
    from noisin.analysis.rows import ClaimRow

LARGEST_SEED = 2**32
WIDE = 132  # columns in which a claim and its place fit on a line


def verify(
    *,
    plot: Path | None = None,
    json: Switch = False,
    seed: WholeNumber = 1111,
) -> int:
    """Check the mathematical claims of the paper, one row each, with standard errors.

    Rows that correct the paper are marked with a star.

    Exits with 1 if a row fails. Takes about half a minute.

    Parameters
    ----------
    plot
        Draw the closed form of the regularizer against Monte Carlo for the eight noise families,
        as a .svg, .png or .pdf file. Needs matplotlib: pip install 'noisin[plot]'.
    json
        Print JSON instead of a table.
    seed
        The random seed; a claim that holds does so for every seed.
    """
    if not 0 <= seed < LARGEST_SEED:
        raise InvalidValue(
            f"--seed must be a whole number, 0 or more and below {LARGEST_SEED}, got {seed}."
        )
    if plot is not None:
        _check_picture(plot)
    import torch

    from noisin.analysis import claims
    from noisin.analysis.rows import FALSE_ALARM_RATE

    torch.set_num_threads(1)  # the fastest for such small models
    with Messages().status("checking") as status:
        rows = claims.verify(seed, lambda claim: status.update(Text(f"checking: {claim}")))
        if plot is not None:
            from noisin.analysis.curves import draw_curves, regularizer_curves

            status.update("drawing")
            draw_curves(regularizer_curves(seed), plot)
    passed = all(row.passed for row in rows)
    if json:
        tell(json_format.dumps(_record(rows, seed, FALSE_ALARM_RATE), indent=2))
    else:
        _print_table(rows, seed, FALSE_ALARM_RATE)
        if plot is not None:
            tell(f"The plot is in {plot}.")
    return 0 if passed else 1


def _check_picture(path: Path) -> None:
    from importlib.util import find_spec

    if find_spec("matplotlib") is None:
        raise InvalidValue("--plot needs matplotlib. Install it: pip install 'noisin[plot]'.")
    if path.suffix not in {".svg", ".png", ".pdf"}:
        raise InvalidValue(f"--plot: expected a file ending in .svg, .png or .pdf, got {path}.")
    if not path.parent.is_dir():
        raise InvalidValue(f"--plot: there is no folder {path.parent}. Make it first.")
    if path.is_dir():
        raise InvalidValue(f"--plot: {path} is a folder. Name a file in it.")
    try:
        path.open("ab").close()  # now, rather than when the work is done
    except OSError as error:
        raise InvalidValue(f"--plot: cannot write {path}: {error.strerror}.") from None


def _record(rows: Sequence[ClaimRow], seed: int, rate: float) -> dict[str, Any]:
    return {
        "version": noisin.__version__,
        "seed": seed,
        "false_alarm_rate": rate,
        "passed": all(row.passed for row in rows),
        "rows": [asdict(row) | {"corrects": row.corrects} for row in rows],
    }


def _print_table(rows: Sequence[ClaimRow], seed: int, rate: float) -> None:
    narrow = (width() or WIDE) < WIDE
    heads = ("", "claim", "measured", "expected") + (() if narrow else ("in the paper",))
    table = Table(*heads, box=None, pad_edge=False)
    place = ""
    for row in rows:
        if narrow and row.place != place:  # in place of the last column, which has no room
            place = row.place
            table.add_row("", Text(place, "bold"))
        error = f" ± {row.stderr:.2g}" if row.stderr else ""
        mark = Text("ok", "green") if row.passed else Text("FAILS", "bold red")
        cells = (row.claim, f"{row.measured:.4g}{error}", row.expected, row.place)
        table.add_row(mark + (" *" if row.corrects else ""), *map(Text, cells[: len(heads) - 1]))
    for column in (table.columns[0], *table.columns[2:]):
        column.no_wrap = True
    show_table(table)
    failed = [row.id for row in rows if not row.passed]
    verdict = f"{len(failed)} fail: {', '.join(failed)}" if failed else "all hold"
    corrected = sum(row.corrects for row in rows)
    if corrected:
        tell(f"\n* corrects the paper, which claims more than holds ({corrected} of {len(rows)}).")
    tell_sentences(
        f"\n{len(rows)} claims, seed {seed}: {verdict}. "
        f"A table of true claims shows a false alarm with probability below {rate:g}."
    )
