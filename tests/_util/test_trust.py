"""Whose files may be loaded: a table of folders, links and files, as ssh's StrictModes has it."""

from __future__ import annotations

import grp
import os
import pwd
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from noisin._util import trust
from tests.users import OTHER, needs_root


def folder(path: Path, mode: int = 0o700, owner: int | None = None) -> Path:
    path.mkdir(parents=True)
    path.chmod(mode)
    if owner is not None:
        os.chown(path, owner, -1)
    return path


def test_a_private_folder_and_a_link_to_it(tmp_path: Path) -> None:
    private = folder(tmp_path / "a" / "private")
    assert trust.check_folder(private) == private
    (tmp_path / "b").mkdir(mode=0o755)
    (tmp_path / "b" / "absolute").symlink_to(private)
    (tmp_path / "b" / "relative").symlink_to("../a/private")
    (tmp_path / "b" / "chain").symlink_to("relative")
    for link in ("absolute", "relative", "chain"):
        assert trust.check_folder(tmp_path / "b" / link) == private
    assert trust.check_folder(private / ".." / "private") == private


def test_a_relative_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder(tmp_path / "private")
    monkeypatch.chdir(tmp_path)
    assert trust.check_folder(Path("private")) == tmp_path / "private"


@pytest.mark.parametrize("depth", [0, 1, 2])
@pytest.mark.parametrize(("mode", "refused"), [(0o757, True), (0o777, True), (0o1777, False)])
def test_a_folder_that_everybody_can_write(
    tmp_path: Path, depth: int, mode: int, refused: bool
) -> None:
    """It counts wherever it is on the way; the sticky bit makes it safe."""
    last = folder(tmp_path / "a" / "b" / "c")
    writable = (last, *last.parents)[depth]
    writable.chmod(mode)
    if refused:
        with pytest.raises(trust.Untrusted, match=f"{writable} can be written by every user"):
            trust.check_folder(last)
    else:
        assert trust.check_folder(last) == last


@pytest.mark.parametrize(
    ("name", "primary", "members", "private"),
    [
        ("me", True, [], True),
        ("me", True, ["me"], True),
        ("me", True, ["me", "you"], False),
        ("me", False, [], False),
        ("users", True, [], False),
    ],
)
def test_a_folder_that_a_group_can_write(
    name: str,
    primary: bool,
    members: list[str],
    private: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The user's own group may, which has the user's name and no other member."""
    home = folder(tmp_path / "home", 0o775)
    gid = home.stat().st_gid
    user = SimpleNamespace(pw_name="me", pw_gid=gid if primary else gid + 1)
    monkeypatch.setattr(pwd, "getpwuid", lambda _: user)
    monkeypatch.setattr(grp, "getgrgid", lambda _: SimpleNamespace(gr_name=name, gr_mem=members))
    if private:
        assert trust.check_folder(home) == home
    else:
        with pytest.raises(trust.Untrusted, match="written by other users"):
            trust.check_folder(home)


def test_a_group_that_has_no_entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(_: int) -> None:
        raise KeyError

    monkeypatch.setattr(grp, "getgrgid", unknown)
    with pytest.raises(trust.Untrusted, match="written by other users"):
        trust.check_folder(folder(tmp_path / "home", 0o775))


@needs_root
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_a_folder_of_another_user(tmp_path: Path, depth: int) -> None:
    last = folder(tmp_path / "a" / "b" / "c")
    theirs = (last, *last.parents)[depth]
    os.chown(theirs, OTHER, -1)
    with pytest.raises(trust.Untrusted, match=f"{theirs} belongs to another user"):
        trust.check_folder(last)


@needs_root
def test_links_and_what_they_lead_to(tmp_path: Path) -> None:
    private = folder(tmp_path / "private")
    theirs = folder(tmp_path / "theirs", owner=OTHER)
    (tmp_path / "link").symlink_to(private)
    os.lchown(tmp_path / "link", OTHER, -1)
    (tmp_path / "mine").symlink_to(theirs)
    for link, wrong in ((tmp_path / "link", tmp_path / "link"), (tmp_path / "mine", theirs)):
        with pytest.raises(trust.Untrusted, match=f"{wrong} belongs to another user"):
            trust.check_folder(link)


def test_a_link_through_a_folder_that_everybody_can_write(tmp_path: Path) -> None:
    private = folder(tmp_path / "private")
    folder(tmp_path / "open", 0o777)
    (tmp_path / "open" / "there").symlink_to(private)
    (tmp_path / "link").symlink_to("open/there")
    with pytest.raises(trust.Untrusted, match="open can be written by every user"):
        trust.check_folder(tmp_path / "link")


def test_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "round").symlink_to("round")
    for path, expected in (
        ("absent", FileNotFoundError),
        ("file", NotADirectoryError),
        ("file/x", NotADirectoryError),
        ("round", OSError),
    ):
        with pytest.raises(expected):
            trust.check_folder(tmp_path / path)


def test_files(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"content")
    file.chmod(0o644)
    descriptor = trust.open_file(file)
    file.unlink()
    assert os.read(descriptor, 99) == b"content", "what was checked, whatever has the name now"
    os.close(descriptor)
    os.mkfifo(file)
    with pytest.raises(trust.Untrusted, match="not a regular file"):
        trust.open_file(file)
    file.unlink()
    file.touch()
    file.chmod(0o666)
    with pytest.raises(trust.Untrusted, match="written by every user"):
        trust.open_file(file)
    (tmp_path / "link").symlink_to(file)
    with pytest.raises(OSError, match="link"):
        trust.open_file(tmp_path / "link")


@needs_root
def test_a_file_of_another_user(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch(0o600)
    os.chown(file, OTHER, -1)
    with pytest.raises(trust.Untrusted, match=f"another user .user id {OTHER}"):
        trust.open_file(file)


def test_nothing_is_imported_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be anybody's; but a package that is itself imported from there is found."""
    (tmp_path / "noisin").mkdir()
    (tmp_path / "noisin" / "__init__.py").write_text("raise SystemExit('hostile')")
    (tmp_path / "pathlib.py").write_text("raise SystemExit('hostile')")
    for folder in (tmp_path, Path(trust.__file__).parents[2]):
        monkeypatch.chdir(folder)
        subprocess.run(trust.python("noisin._util.places"), check=True)
