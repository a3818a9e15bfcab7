"""The processor of this machine."""

from __future__ import annotations

import platform
from pathlib import Path


def kind() -> str:
    """The processor and its instruction sets, as far as the system reports them."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    kept = ("flags", "Features", "model name", "cpu family", "model\t")
    return "\n".join(dict.fromkeys(line for line in text.splitlines() if line.startswith(kept)))
