"""Code of another user is never loaded, whatever stands in the cache and whenever it gets there."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from noisin.recurrent.kernels import build
from tests.compiler import needs_compiler
from tests.pairwise import PRODUCTS
from tests.users import OTHER, USER, acting_as, needs_root

pytestmark = needs_compiler


@pytest.fixture(scope="module")
def genuine() -> Path:
    """The kernel of this machine, under the name that the cache gives it."""
    path = build.compiled()
    assert path is not None
    return path


@pytest.fixture
def place(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that other users can reach, unlike pytest's own, with the sources of the kernel."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    (folder / "sources").mkdir()
    (folder / "sources").chmod(0o755)
    for name in build.SOURCES:
        shutil.copyfile(build.HERE / name, folder / "sources" / name)
        (folder / "sources" / name).chmod(0o644)
    monkeypatch.setattr(build, "HERE", folder / "sources")  # the project may be in a private one
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def marker(place: Path) -> Path:
    """A file that hostile code writes."""
    return place / "marker" / "hostile code ran"


@pytest.fixture
def hostile(place: Path, marker: Path) -> Path:
    """A library that shows that it was loaded."""
    marker.parent.mkdir(mode=0o777)
    marker.parent.chmod(0o777)
    source, library = place / "hostile.c", place / "hostile.so"
    source.write_text(
        "#include <stdio.h>\n__attribute__((constructor)) static void run(void) "
        f'{{ FILE *f = fopen("{marker}", "w"); if (f) fclose(f); }}\n'
    )
    compile = [*build._compiler(), "-shared", "-fPIC", str(source), "-o", str(library)]
    subprocess.run(compile, check=True)
    return library


def fill(cache: Path, genuine: Path, owner: int | None = None) -> Path:
    """A cache with the genuine kernel in it; returns the kernel."""
    (cache / "kernels").mkdir(parents=True, mode=0o700)
    kernel = cache / "kernels" / genuine.name
    shutil.copy(genuine, kernel)
    kernel.chmod(0o600)
    for path in (cache, cache / "kernels", kernel):
        if owner is not None:
            os.chown(path, owner, owner)
    return kernel


def swap_before_loading(monkeypatch: pytest.MonkeyPatch, swap: Callable[[], None]) -> None:
    """At the last moment, when all checks are over."""
    load = ctypes.CDLL

    def swapped(name: str) -> ctypes.CDLL:
        swap()
        return load(name)

    monkeypatch.setattr(ctypes, "CDLL", swapped)


def test_hostile_code_shows_that_it_runs(hostile: Path, marker: Path) -> None:
    ctypes.CDLL(str(hostile))
    assert marker.exists()


def test_what_was_checked_is_what_is_loaded(
    place: Path, genuine: Path, hostile: Path, marker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = fill(place / "cache", genuine)
    monkeypatch.setenv("NOISIN_CACHE", str(place / "cache"))
    swap_before_loading(monkeypatch, lambda: os.replace(hostile, kernel))
    loaded = build.load()
    assert loaded is not None
    assert loaded.forward_float
    assert not hostile.exists(), "it was swapped"
    assert not marker.exists()


@pytest.mark.parametrize("content", ["hostile", "cut short"] if PRODUCTS else ["hostile"])
def test_a_library_without_the_hash_of_its_name_is_compiled_again(
    content: str,
    place: Path,
    genuine: Path,
    hostile: Path,
    marker: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kernel = fill(place / "cache", genuine)
    monkeypatch.setenv("NOISIN_CACHE", str(place / "cache"))
    whole = genuine.read_bytes()
    kernel.write_bytes(hostile.read_bytes() if content == "hostile" else whole[:-1])
    monkeypatch.setattr(build, "_run", _compile_at_once(build._run, genuine))
    monkeypatch.setattr(build, "_try", lambda library, wrong: None)  # it is genuine
    assert build.load() is not None
    assert not marker.exists()
    assert kernel.read_bytes() == whole


def _compile_at_once(run: Callable[..., str], genuine: Path) -> Callable[..., str]:
    """The work of half a minute by a copy of its result."""

    def quick(command: list[str], what: str, settings: dict[str, str] | None = None) -> str:
        if "-o" in command:
            shutil.copy(genuine, command[-1])
        return run(command, what, settings) if "--version" in command else ""

    return quick


@needs_root
@pytest.mark.parametrize("parent", ["foreign", "shared"])
def test_whoever_can_rename_the_cache_cannot_run_code_as_its_owner(
    parent: str,
    place: Path,
    genuine: Path,
    hostile: Path,
    marker: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A user's cache in a folder of another user, who swaps it between the check and the load."""
    shared = place / "shared"
    shared.mkdir()
    shared.chmod(0o755 if parent == "foreign" else 0o777)
    os.chown(shared, OTHER if parent == "foreign" else USER, 0)
    fill(shared / "cache", genuine, USER)
    monkeypatch.setenv("NOISIN_CACHE", str(shared / "cache"))

    def swap() -> None:
        with acting_as(OTHER):
            (shared / "cache").rename(shared / "aside")
            (shared / "cache" / "kernels").mkdir(parents=True)
            shutil.copy(hostile, shared / "cache" / "kernels" / genuine.name)

    swap_before_loading(monkeypatch, swap)
    with acting_as(USER), pytest.warns(RuntimeWarning, match="Set NOISIN_CACHE") as told:
        assert build.load() is None
    assert str(shared) in str(told[0].message)
    assert not marker.exists()


@needs_root
@pytest.mark.parametrize("foreign", ["cache", "kernels", "kernel"])
def test_what_belongs_to_another_user_is_refused(
    foreign: str, place: Path, genuine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = fill(place / "cache", genuine, USER)
    chosen = {"kernel": kernel, "kernels": kernel.parent, "cache": kernel.parent.parent}[foreign]
    monkeypatch.setenv("NOISIN_CACHE", str(place / "cache"))
    with acting_as(USER):
        assert build.load() is not None
    for path in (place / "cache", kernel.parent):
        path.chmod(0o755)  # whoever it belongs to, its owner can read it
    kernel.chmod(0o644)
    os.chown(chosen, OTHER, OTHER)
    with acting_as(USER), pytest.warns(RuntimeWarning, match="belongs to another user"):
        assert build.load() is None


@needs_root
def test_a_cache_in_a_folder_with_the_sticky_bit(
    place: Path, genuine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as /tmp: used if the user was the first to make it, refused if another was."""
    place.chmod(0o1777)
    monkeypatch.setenv("NOISIN_CACHE", str(place / "cache"))
    fill(place / "cache", genuine, USER)
    with acting_as(USER), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert build.load() is not None
    with acting_as(OTHER):
        (place / "theirs").mkdir(mode=0o777)
        (place / "theirs").chmod(0o777)
    monkeypatch.setenv("NOISIN_CACHE", str(place / "theirs"))
    with acting_as(USER), pytest.warns(RuntimeWarning, match="theirs belongs to another user"):
        assert build.load() is None
