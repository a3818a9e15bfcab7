"""What every test process begins with, and the count behind the false-alarm rate."""

from __future__ import annotations

import gc
import os
import signal

import pytest
import torch

from tests import stats
from tests.processor import avoid_broken_tiles

torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"  # of those that tests start: more threads than cores crawl
avoid_broken_tiles()
os.environ["NOISIN_GEMM"] = "mkl"  # what is fastest depends on the machine, and tests must not
# Under nohup Ctrl-C is ignored, as it should be; the commands that tests start are to hear it.
signal.signal(signal.SIGINT, signal.default_int_handler)
_checks_of_workers: list[int] = []


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(1111)


def pytest_collection_finish() -> None:
    """What is there by now stays to the end. Forked processes would copy it to look for garbage."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object, error: object) -> None:
    _checks_of_workers.append(getattr(node, "workeroutput", {}).get("statistical_checks", 0))


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:  # a worker of pytest-xdist reports to the controller
        output["statistical_checks"] = stats.checks_made
        return
    checks = stats.checks_made + sum(_checks_of_workers)
    if checks > stats.MAX_CHECKS:
        raise pytest.UsageError(
            f"{checks} statistical checks exceed the {stats.MAX_CHECKS} that the declared "
            f"false-alarm rate of {stats.SUITE_FALSE_ALARM_RATE} allows: raise it in stats.py."
        )
