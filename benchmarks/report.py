"""What was measured, where and with what: as JSON to keep, as tables to read."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Iterable, Sequence
from datetime import date
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch

import noisin
from benchmarks.bars import Verdict
from benchmarks.growth import exponent
from benchmarks.rivals import kernels_present
from benchmarks.timing import Comparison, Spread
from noisin.recurrent.kernels import compiled

FLAGS = ("avx2", "fma", "avx512f", "avx512_bf16", "amx_tile", "asimd", "sve")


def environment() -> dict[str, Any]:
    """Date, processor, threads and versions."""
    return {
        "date": date.today().isoformat(),
        "processor": processor(),
        "flags": flags(),
        "threads": torch.get_num_threads(),
        "kernels": kernels_present(),
        "library": compiled.origin(),
        "versions": {
            "noisin": noisin.__version__,
            "torch": torch.__version__,
            "numpy": np.__version__,
            "python": platform.python_version(),
            "system": f"{platform.system()} {platform.release()}",
        },
    }


def cpuinfo(field: str) -> str | None:
    """A field of the first processor in /proc/cpuinfo."""
    path = Path("/proc/cpuinfo")
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    found = re.search(rf"^{field}\s*:\s*(.*)$", text, re.MULTILINE)
    return found[1] if found else None


def processor() -> str:
    """The model name of the processor, and its family, which distinguishes generations."""
    name = cpuinfo("model name") or platform.processor() or platform.machine()
    family, model = cpuinfo("cpu family"), cpuinfo("model")
    return name if family is None else f"{name} (family {family}, model {model})"


def flags() -> list[str]:
    """Those of its instruction sets that matter here."""
    present = (cpuinfo("flags") or cpuinfo("Features") or "").split()
    return [flag for flag in FLAGS if flag in present]


def as_json(comparisons: Iterable[Comparison], verdicts: Iterable[Verdict]) -> dict[str, Any]:
    """Every round of every rival, and the verdicts."""
    return environment() | {
        "comparisons": [
            {
                "case": c.case,
                "unit": c.unit,
                "noise": round(c.noise, 3),
                "rounds": {k: [float(f"{t:.5g}") for t in v] for k, v in c.rounds.items()},
            }
            for c in comparisons
        ],
        "bars": [
            {
                "bar": str(v.bar),
                "limit": v.bar.limit,
                "measured": [round(q, 4) for q in v.ratio],
                "met": v.met,
            }
            for v in verdicts
        ],
    }


def from_json(record: dict[str, Any]) -> list[Comparison]:
    """The comparisons of a record."""
    return [Comparison(**comparison) for comparison in record["comparisons"]]


def save(record: dict[str, Any], text: str, folder: Path) -> Path:
    """Write the record and the tables, named by date and processor; the path of the record."""
    slug = re.sub(r"[^a-z0-9]+", "-", record["processor"].lower()).strip("-")
    path = folder / f"{record['date']}-{slug}.json"
    folder.mkdir(parents=True, exist_ok=True)
    rounds = re.compile(r"\[\s+([^\[\]{}\"]*?)\s+\]")  # a list of numbers is one line
    text_of = rounds.sub(
        lambda found: f"[{' '.join(found[1].split())}]",
        json.dumps(record, indent=1, ensure_ascii=False),
    )
    path.write_text(text_of + "\n", encoding="utf-8")
    path.with_suffix(".md").write_text(text, encoding="utf-8")
    return path


def markdown(comparisons: Sequence[Comparison], verdicts: Sequence[Verdict]) -> str:
    """All tables."""
    about = environment()
    versions = ", ".join(f"{name} {version}" for name, version in about["versions"].items())
    parts = [
        f"# {about['processor']}, {about['date']}",
        f"{about['threads']} threads; {' '.join(about['flags']) or 'no flags known'}; "
        f"C kernel: {about['library'] or 'none'}; {versions}. "
        "Ratios are medians over interleaved rounds, with quartiles in brackets.",
    ]
    curves = [c for c in comparisons if c.unit == "s/token"]
    others = [c for c in comparisons if c.unit != "s/token"]
    for rivals, group in groupby(others, key=lambda c: tuple(c.rounds)):
        parts.append(ratio_table(rivals, list(group)))
    if curves:
        parts.append(growth_table(curves))
    if verdicts:
        parts.append(bar_table(verdicts))
    return "\n\n".join(parts) + "\n"


def ratio_table(rivals: tuple[str, ...], group: list[Comparison]) -> str:
    """Each rival over the first, one comparison a row; a single one is turned, one rival a row."""
    over = rivals[0]
    cells = {
        c.case: [quantity(c, over), *(told(c.ratio(r, over)) for r in rivals[1:])] for c in group
    }
    if len(group) > 1:
        return table(["", over, *(f"{r} / {over}" for r in rivals[1:])], cells)
    (case,) = cells
    rows = {r: [text] for r, text in zip(rivals, cells[case], strict=True)}
    return table([case, f"over {over}"], rows)


def growth_table(curves: list[Comparison]) -> str:
    """The fitted exponents, and the cost per token at both ends."""
    rows = {}
    for curve in curves:
        first, *_, last = curve.rounds
        ends = [f"{1e6 * curve.spread(size).median:.1f} µs at {size}" for size in (first, last)]
        rows[curve.case] = [told(exponent(curve)), *ends]
    return table(["time per token", "exponent", "from", "to"], rows)


def bar_table(verdicts: Sequence[Verdict]) -> str:
    """Every bar, what was measured, and by how much it is missed."""
    rows = {str(v.bar): [f"≤ {v.bar.limit:.2f}", told(v.ratio), str(v)] for v in verdicts}
    return table(["", "bar", "measured", ""], rows)


def quantity(comparison: Comparison, rival: str) -> str:
    """The median in a unit that fits."""
    median = comparison.spread(rival).median
    return f"{median / 1e6:.0f} MB" if comparison.unit == "B" else f"{1e3 * median:.2f} ms"


def told(ratio: Spread) -> str:
    """A median and its quartiles."""
    return f"{ratio.median:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]"


def table(head: Sequence[str], rows: dict[str, list[str]]) -> str:
    """A Markdown table, its columns in line for those who read it as it is.

    >>> print(table(["", "ms"], {"torch": ["2.5"]}))
    |       | ms  |
    |-------|-----|
    | torch | 2.5 |
    """
    lines = [list(head), *([name, *cells] for name, cells in rows.items())]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = [" | ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)) for line in lines]
    rule = "|".join("-" * (w + 2) for w in widths)
    return "\n".join([f"| {text[0]} |", f"|{rule}|", *(f"| {line} |" for line in text[1:])])
