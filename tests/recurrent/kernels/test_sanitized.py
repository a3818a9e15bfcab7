"""The C kernel under sanitizers: every batch size, all cells, against plain loops in C.

A driver (``sanitized/driver.c``) and the kernel are built with the address and the
undefined-behaviour sanitizer, for each instruction set that the processor has. Here all pairs of
settings occur; ``NOISIN_PRODUCTS=all`` runs all combinations, as ``make stress`` does.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

from noisin._util import processor
from noisin.recurrent.kernels import build
from tests.pairwise import PRODUCTS

HERE = Path(__file__).parent / "sanitized"
LARGEST = 300 if PRODUCTS else 200  # more than two chunks of 96 rows
RANGE = 50 if PRODUCTS else LARGEST
SETS = {"baseline": (), "avx2": ("avx2", "fma"), "avx512": ("avx512f", "avx512dq", "fma")}
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
OPTIONS = (*SANITIZERS, *(["-fopenmp"] if sys.platform == "linux" else []))
# Nothing inlined, which compiles in a second; sums in several pieces, however small; and nothing on
# the stack that a thread with a small one has no room for.
FLAGS = (
    "-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Wframe-larger-than=8192", "-Werror",
    "-Wno-psabi", "-DNEAR=21", "-DINLINE=static __attribute__((noinline, unused))",
)  # fmt: skip
# Threads sleep while they wait, because there may be more of them than cores; freed memory need
# not be kept for long, because nothing is freed in mid-call.
SETTINGS = {
    "OMP_WAIT_POLICY": "passive",
    "ASAN_OPTIONS": "detect_leaks=0:quarantine_size_mb=4",
}


@cache
def compiler() -> str:
    """A compiler whose sanitizers work, or a skip."""
    try:
        (found,) = build._compiler()
    except build._Failed as error:
        pytest.skip(str(error))
    command = [found, "-x", "c", "-", *SANITIZERS, "-o", "/dev/null"]
    done = subprocess.run(command, input=b"int main(void) { return 0; }", capture_output=True)
    if done.returncode != 0:
        pytest.skip(f"{found} has no sanitizers: {done.stderr.decode(errors='replace')[:200]}")
    return found


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where what several programs are made of is compiled once: it takes seconds, and runs less."""
    return tmp_path_factory.mktemp("objects")


def compiled(source: Path, instructions: str, folder: Path) -> str:
    """The object file of a source, which is compiled unless the folder has it."""
    features = SETS[instructions]
    if not {*features} <= {*processor.kind().split()}:
        pytest.skip(f"the processor has no {' and '.join(features)}")
    target = folder / f"{source.stem}-{instructions}.o"
    options = [*(f"-m{feature}" for feature in features), *OPTIONS, "-o", str(target)]
    if not target.exists():
        subprocess.run([compiler(), *FLAGS, "-c", str(source), *options], check=True)
    return str(target)


def driver(
    folder: Path,
    instructions: str,
    objects: Path,
    kernel: Path | None = None,
    source: str = "driver.c",
) -> Path:
    """A driver and a kernel, ours or another, for an instruction set, or a skip."""
    ours = compiled(HERE / source, instructions, objects)
    whole = (build.HERE, objects) if kernel is None else (kernel, folder)
    tested = compiled(whole[0] / "kernel.c", instructions, whole[1])
    target = folder / "driver"
    subprocess.run([compiler(), ours, tested, *OPTIONS, "-lm", "-o", str(target)], check=True)
    return target


def run(program: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *map(str, arguments)],
        capture_output=True, text=True, env=os.environ | SETTINGS, check=False,
    )  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("first", range(1, LARGEST + 1, RANGE))
@pytest.mark.parametrize("instructions", SETS)
def test_no_shape_leaves_its_memory_or_is_wrong(
    instructions: str, first: int, tmp_path: Path, objects: Path
) -> None:
    how = "product" if PRODUCTS else "pairwise"
    done = run(driver(tmp_path, instructions, objects), how, first, first + RANGE - 1)
    assert done.returncode == 0, done.stderr[:3000]
    assert int(done.stdout.split()[0]) >= 2 * RANGE, done.stdout


@pytest.mark.long
@pytest.mark.parametrize("instructions", SETS)
def test_no_product_leaves_its_memory_or_is_wrong(
    instructions: str, tmp_path: Path, objects: Path
) -> None:
    program = driver(tmp_path, instructions, objects, source="products.c")
    done = run(program, "all" if PRODUCTS else "some")
    assert done.returncode == 0, done.stderr[:3000]
    assert int(done.stdout.split()[0]) >= 500, done.stdout


MUTANTS = {
    "a tile taller than the rows that are left": (
        "tiles.h",
        "return even(left, TALL);",
        "return left == TALL - 1 ? TALL : even(left, TALL);",
        "tiles.h:",  # one sanitizer or the other, at this place
    ),
    "sums of one row fewer than a chunk": (
        "cells.h",
        "(back && l->masked < 2 ? 1 : recurrent(l->cell)) * CHUNK * BLOCK",
        "((back && l->masked < 2 ? 1 : recurrent(l->cell)) * CHUNK - 1) * BLOCK",
        "heap-buffer-overflow|expected",  # masked rows come after the sums
    ),
    "masked rows of one row fewer than a chunk": (
        "cells.h",
        "least(CHUNK, l->N) * outputs(l);",
        "(least(CHUNK, l->N) - 1) * outputs(l);",
        "heap-buffer-overflow",
    ),
    "a mask that backward forgets": (
        "cells.h",
        "if (mask) d *= LOAD(factor);",
        "",
        "expected",
    ),
    "gates that all read through the first mask": (
        "cells.h",
        "a[l->masked > 1 ? s : 0]",
        "a[0]",
        "expected",
    ),
    "a held mask that backward takes for one of each step": (
        "cells.h",
        "(l->held ? 0 : start)",
        "start",
        "heap-buffer-overflow|expected",
    ),
    "room for the sums of one gate, where each has a mask": (
        "cells.h",
        "back && l->masked < 2 ? 1",
        "back ? 1",
        "heap-buffer-overflow",
    ),
    "a kept value that backward forgets": (
        "cells.h",
        "if (k.keep_h && cell != GRU_READ) {",
        "if (0) {",
        "expected",
    ),
    "a memory squashed after some of it was kept": (
        "steps.h",
        "h = NAME(kept)(n, k.keep_h, z_before, o * NAME(tanh)(c));",
        "h = NAME(kept)(n, k.keep_h, z_before, o * NAME(tanh)(next));",
        "expected",
    ),
    "h of one row fewer than there are": (
        "projection.h",
        "l->P && !back ? l->N * l->H : 0",
        "l->P && !back ? (l->N - 1) * l->H : 0",
        "overflow|expected",  # other room follows it
    ),
    "a projection to as many units as it comes from": (
        "projection.h",
        "const long rows = back ? l->P : l->H, columns = back ? l->H : l->P;",
        "const long rows = l->P, columns = back ? l->H : l->P;",
        "overflow|expected",  # other room follows it
    ),
    "a projection whose gradient forgets that of z": (
        "cells.h",
        "      NAME(emit_projected_back)(l, start, rows, &p, eps, d_z, d_state);\n",
        "      (void)NAME(emit_projected_back);\n",
        "expected",
    ),
    "a GRU that forgets the product of its only step": (
        "cells.h",
        "if (cell >= GRU_READ) product[2] = LOAD(gate + 3 * H);",
        "(void)cell;",
        "expected",
    ),
    "a term of the sum left out": (
        "tiles.h",
        "(least(NEAR, K - k), rows, from,",
        "(least(NEAR, K - k - 1), rows, from,",
        "expected",
    ),
}


def some(mutants: Iterable[str]) -> list[str]:
    """Every third one, because each is compiled: out of bounds, forgotten, and wrong."""
    return [*mutants] if PRODUCTS else [*mutants][::3]


MUTANTS_OF_PRODUCTS = {
    "room for one column of B too few": ("pieces(g->N, BLOCK) * BLOCK;", "g->N;"),
    "the first piece added to what was there": ("!adds || n <= 0 ?", "n <= 0 ?"),
    "masked parts that overwrite one another": ("if (masked && adds)", "if (0)"),
    "a copied row of A too few": ("CHUNK * NAME(depth)(g);", "(CHUNK - 1) * NAME(depth)(g);"),
    "no room for rows of A that are masked": ("&& g->masked != OF_A ? 0", "? 0"),
    "a held mask taken for one of each row": ("row % g->mask_rows *", "row *"),
    "a panel masked from its first row": ("(g, mask, from + k)", "(g, mask, k)"),
    "a piece masked from its first column": ("m + r) + from;", "m + r);"),
}


@pytest.mark.long
@pytest.mark.parametrize("mutant", some(MUTANTS_OF_PRODUCTS))
def test_a_product_that_is_broken_is_reported(mutant: str, tmp_path: Path, objects: Path) -> None:
    whole, broken = MUTANTS_OF_PRODUCTS[mutant]
    kernel = tmp_path / "kernel"
    shutil.copytree(build.HERE, kernel, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    text = (kernel / "gemm.h").read_text(encoding="utf-8")
    assert text.count(whole) == 1
    (kernel / "gemm.h").write_text(text.replace(whole, broken), encoding="utf-8")
    program = driver(tmp_path, "baseline", objects, kernel, "products.c")
    assert run(program, "some").returncode == 1


@pytest.mark.long
@pytest.mark.parametrize("mutant", some(MUTANTS))
def test_a_kernel_that_is_broken_is_reported(mutant: str, tmp_path: Path, objects: Path) -> None:
    name, whole, broken, reported = MUTANTS[mutant]
    kernel = tmp_path / "kernel"
    shutil.copytree(build.HERE, kernel, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    text = (kernel / name).read_text(encoding="utf-8")
    assert text.count(whole) == 1
    (kernel / name).write_text(text.replace(whole, broken), encoding="utf-8")
    done = run(driver(tmp_path, "baseline", objects, kernel), "pairwise", 90, 119)
    assert done.returncode == 1
    assert re.search(reported, done.stderr)
