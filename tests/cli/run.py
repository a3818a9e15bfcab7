"""The command line as the tests call it: in a process of its own, in a fork, or in this one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from multiprocessing.context import ForkProcess

import pytest

from noisin import cli


def noisin(*arguments: str, code: str = "") -> subprocess.CompletedProcess[str]:
    """In a new process, which runs ``code`` first."""
    run = f"import sys; {code}\nfrom noisin.__main__ import main; main()"
    return subprocess.run(
        [sys.executable, "-c", run, *arguments], capture_output=True, text=True, check=False
    )


def forked(*arguments: str, stdout: int = 1, stderr: int = 2) -> ForkProcess:
    """In a fork of this process, which has torch loaded, with these descriptors as its streams."""

    def run() -> None:
        for number, descriptor in ((1, stdout), (2, stderr)):
            os.dup2(descriptor, number)
        sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1) for number in (1, 2))
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        cli.main(list(arguments))

    process = ForkProcess(target=run)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of fork in newer Pythons
        process.start()
    return process


def in_process(*arguments: str) -> int:
    """Here; return the exit code."""
    with pytest.raises(SystemExit) as exit:
        cli.main(list(arguments))
    return int(exit.value.code or 0)
