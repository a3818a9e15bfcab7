"""Memory that was freed goes back to the system."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from noisin.training import trainer
from noisin.training.runtime import memory
from tests.training import toy

HOLES = """
import torch
from noisin.training.runtime.memory import give_back

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 2**20

torch.zeros(2**23)  # of 32 MB: smaller blocks then come from the heap
blocks = [torch.ones(2**17) for _ in range(400)]
del blocks[::2]  # no hole of 0.5 MB is at the end of the heap
before = resident()
give_back()
print(before - resident())
"""


@pytest.mark.skipif(memory._trim() is None, reason="the C library is not glibc")
def test_the_holes_between_what_is_in_use() -> None:
    done = subprocess.run([sys.executable, "-c", HOLES], capture_output=True, text=True, check=True)
    assert float(done.stdout) > 80  # of 100 MB


def test_with_another_c_library_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_trim", lambda: None)
    memory.give_back()


def test_after_every_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[None] = []
    monkeypatch.setattr(trainer, "give_back", lambda: calls.append(None))
    toy.fit(tmp_path / "run", train={"epochs": 3})
    assert len(calls) == 3
