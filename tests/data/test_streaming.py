"""A corpus larger than memory: ids are built, mapped and cut into windows within a limit."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

MIB = 2**20
SIZE, ROOM = 16 * MIB, 8 * MIB  # of the text, and of the memory to read it in

PROGRAM = f"""
import pathlib, resource, sys
from noisin.data import Windows, load, overlap
import noisin.data.batch

status = pathlib.Path("/proc/self/status").read_text()
used = int(status.split("VmData:")[1].split()[0]) * 1024
resource.setrlimit(resource.RLIMIT_DATA, (used + {ROOM}, used + {ROOM}))
path = pathlib.Path(sys.argv[1])
try:
    path.read_bytes()
except MemoryError:
    print("too large to read at once")
corpus = load(path)
print(len(corpus.train), len(corpus.valid), len(corpus.test), len(corpus.vocab))
windows = Windows(corpus.train, 80, 1000)
print(sum(int(w.target.sum()) for w in windows.epoch(0)), int(corpus.train[-1]))
"""


@pytest.mark.long
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits memory as Linux does")
def test_a_corpus_larger_than_memory(tmp_path: Path) -> None:
    line = "a b c d e f g h i j\n"
    lines = SIZE // len(line)
    path = tmp_path / "large.txt"
    with path.open("w") as file:
        for _ in range(lines // 1000):
            file.write(line * 1000)
    environment = os.environ | {"NOISIN_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    told, sizes, sums = run.stdout.splitlines()
    assert told == "too large to read at once"
    *tokens, words = map(int, sizes.split())
    assert words == 11
    assert sum(tokens) == lines // 1000 * 1000 * 11
    assert tokens[0] * 4 > 2 * ROOM, "and so are the ids"
    total, last = map(int, sums.split())
    assert last == 10, "the line ends where the split does"
    height = tokens[0] // 80
    stream = np.arange(80 * height).reshape(80, height) % 11
    assert total == stream[:, 1:].sum()
