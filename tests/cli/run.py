"""The command line as the tests call it: in a process of its own, or in this one."""

from __future__ import annotations

import subprocess
import sys

import pytest

from noisin import cli


def noisin(*arguments: str, code: str = "") -> subprocess.CompletedProcess[str]:
    """In a new process, which runs ``code`` first."""
    run = f"import sys; {code}\nfrom noisin.__main__ import main; main()"
    return subprocess.run(
        [sys.executable, "-c", run, *arguments], capture_output=True, text=True, check=False
    )


def in_process(*arguments: str) -> int:
    """Here; return the exit code."""
    with pytest.raises(SystemExit) as exit:
        cli.main(list(arguments))
    return int(exit.value.code or 0)
