"""Compiling the C kernel: the cache, its key, and everything that can fail about it."""

from __future__ import annotations

import logging
import pwd
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from noisin._util import processor
from noisin.recurrent.kernels import build, compiled
from tests.compiler import cheap, compiler_that, has_compiler, needs_compiler
from tests.pairwise import stress_only


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of its own, and a compiler that is in no hurry to optimize."""
    monkeypatch.setenv("NOISIN_CACHE", str(tmp_path / "cache"))
    if has_compiler():
        (compiler,) = build._compiler()
        monkeypatch.setenv("CC", cheap(tmp_path / "cheap", compiler))
    return tmp_path / "cache" / "kernels"


@needs_compiler
def test_where_there_is_a_compiler_there_is_a_kernel() -> None:
    assert compiled.library() is not None


@pytest.mark.long
@needs_compiler
def test_compiled_once_privately_and_found_again(
    cache: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "noisin.kernels")
    path = build.compiled()
    assert "Compiling the C kernel, once on this machine" in caplog.text
    caplog.clear()
    assert path is not None
    assert path.parent == cache
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert [p.name for p in cache.iterdir()] == [path.name]  # nothing half-made is left behind
    before = path.stat().st_mtime_ns
    monkeypatch.setattr(build, "_run", _only_versions(build._run))
    assert build.compiled() == path
    assert path.stat().st_mtime_ns == before
    assert caplog.text == ""


def _only_versions(run):  # type: ignore[no-untyped-def]
    def checked(command, what, environment=None):  # type: ignore[no-untyped-def]
        assert "--version" in command, "compiled again"
        return run(command, what, environment)

    return checked


@needs_compiler
def test_the_key_depends_on_all_that_the_code_does(monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = build._compiler()
    keys = {build._key(compiler)}
    monkeypatch.setattr(processor, "kind", lambda: "another processor")
    keys.add(build._key(compiler))
    monkeypatch.setattr(build, "FLAGS", (*build.FLAGS, "-DX"))
    keys.add(build._key(compiler))
    monkeypatch.setattr(build, "SOURCES", ("cells.h",))
    keys.add(build._key(compiler))
    assert len(keys) == 4


FAILURES = {
    "fails": "echo no such flag >&2; exit 1",
    "makes garbage": 'for output; do :; done; [ "$output" = --version ] || echo x > "$output"',
    "makes nothing": "exit 0",
}


@pytest.mark.long
@pytest.mark.parametrize("failure", FAILURES)
def test_a_compiler_that_fails_leaves_the_eager_kernel(
    failure: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setenv("CC", compiler_that(tmp_path, FAILURES[failure]))
    with caplog.at_level(logging.DEBUG, "noisin.kernels"):
        assert build.compiled() is None
    levels = [record.levelname for record in caplog.records]
    made = failure == "makes garbage"  # a library, but not one that can be loaded
    assert [level for level in levels if level != "INFO"] == ["WARNING" if made else "DEBUG"]
    assert "eager kernel runs" in caplog.text
    assert not list(cache.glob("*.so"))


# What is wrong with the product of so many rows, at the edge of a chunk, and nowhere else.
WRONG = {"crashes": "__builtin_trap();", "is off": "out[rows - 1][1][0] += 1;"}


@pytest.mark.long
@needs_compiler
@pytest.mark.parametrize("wrong", WRONG)
def test_a_kernel_that_crashes_or_is_wrong_at_an_edge_is_not_trusted(
    wrong: str, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """The trial runs in a process of its own, so that a crash harms nobody."""
    here = tmp_path / "source"
    shutil.copytree(build.HERE, here)
    tiles = here / "tiles.h"
    whole = tiles.read_text(encoding="utf-8")
    product = "      EACH_HEIGHT(TILE)\n#undef TILE\n    }\n  }\n"
    broken = whole.replace(product, f"{product}  if (rows == CHUNK - 1) {{ {WRONG[wrong]} }}\n")
    assert broken != whole
    tiles.write_text(broken, encoding="utf-8")
    monkeypatch.setattr(build, "HERE", here)
    monkeypatch.setattr(build, "SECONDS", 600)  # on a busy machine: it is to fail the trial
    with caplog.at_level(logging.DEBUG, "noisin.kernels"):
        assert build.compiled() is None
    assert "the trial of the C kernel ended with" in caplog.text
    levels = [record.levelname for record in caplog.records]
    assert levels == ["INFO", "WARNING"], "that it compiles, and what came of it"
    assert not list(cache.glob("*.so"))
    assert len(list(cache.glob("*.wrong"))) == (wrong == "is off")
    if wrong == "is off":  # every process would have to compile it again
        monkeypatch.setattr(build, "_run", _only_versions(build._run))
        assert build.compiled() is None
        assert "remembers it" in caplog.text


@pytest.mark.long
def test_without_a_compiler_or_a_home(tmp_path: Path) -> None:
    """In a fresh process with nothing on the path, a noisy LSTM trains by the eager kernel."""
    code = (
        "import torch, noisin; from noisin import noise, kernels\n"
        "rnn = noisin.LSTM(2, 3, noise=noise.Gaussian(0.5))\n"
        "rnn(torch.randn(4, 1, 2))[0].sum().backward()\n"
        "print(kernels.compiled.library())"
    )
    environment = {"PATH": str(tmp_path), "NOISIN_CACHE": "/dev/null/nowhere", "NOISIN_KERNEL": "c"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    assert done.stdout == "None\n", done.stderr


@needs_compiler
def test_a_cache_that_cannot_be_written_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOISIN_CACHE", "/dev/null/nowhere")
    assert build.compiled() is None


@needs_compiler
@stress_only
def test_two_processes_at_once(cache: Path) -> None:
    code = "from noisin.recurrent.kernels import build; print(build.compiled())"
    both = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    paths = {p.communicate()[0] for p in both}
    assert len(paths) == 1
    assert Path(paths.pop().strip()).exists()


def test_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container whose user is only a number."""

    def nobody(_: int) -> None:
        raise KeyError

    monkeypatch.setattr(pwd, "getpwuid", nobody)
    for name in ("HOME", "NOISIN_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    assert build.compiled() is None
