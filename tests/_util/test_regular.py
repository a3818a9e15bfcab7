"""Regular files are opened, and nothing else, without waiting."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path
from typing import get_args

import pytest

from noisin._util.regular import Mode, NotRegular, open_regular, read_regular

MODES = get_args(Mode)


def test_the_modes_are_those_of_open(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for content, mode in ((b"old", "wb"), (b"new", "wb"), (b" end", "ab"), (b".", "a+b")):
        with open_regular(ours, mode) as mine, theirs.open(mode) as other:
            mine.write(content)
            other.write(content)
    assert read_regular(ours) == theirs.read_bytes() == b"new end."
    assert ours.stat().st_mode == theirs.stat().st_mode
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "nowhere")
    (tmp_path / "link").symlink_to(ours)
    assert read_regular(tmp_path / "link") == b"new end."


@pytest.mark.parametrize("mode", MODES)
def test_a_fifo_a_socket_a_device_and_a_folder(
    mode: Mode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)  # the address of a socket is short
    os.mkfifo("pipe")
    Path("device").symlink_to("/dev/null")
    Path("folder").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind("socket")
        for name, kind in (("pipe", "a FIFO"), ("socket", "a socket"), ("device", "a device")):
            with pytest.raises(NotRegular, match=f"Expected a regular file, got {kind}: '{name}'"):
                open_regular(name, mode)
    with pytest.raises(IsADirectoryError):
        open_regular("folder", mode)


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(9):
        with pytest.raises(NotRegular):
            open_regular(tmp_path / "pipe")
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.touch()
    os.truncate(path, 2**40)  # it takes no room
    with pytest.raises(OSError, match="at most 100 are expected") as refused:
        read_regular(path, most=100)
    assert refused.value.errno == errno.EFBIG
