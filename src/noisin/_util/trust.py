"""Which files are safe to load code from: the rules of ssh's ``StrictModes``.

A user who can write to a folder can replace a file that was just checked, so checking the file
alone is not enough. Code is loaded only from a folder that nobody but the user and root can change,
link by link from the root of the file system, and through the descriptor that was checked. Systems
without user ids (Windows) are not checked.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import sys
from pathlib import Path

from noisin._util import places
from noisin.errors import Unavailable

_LINKS = 40  # symbolic links on the way, as many as Linux follows
_OPEN = os.O_RDONLY | sum(
    getattr(os, f"O_{name}", 0) for name in ("CLOEXEC", "NOFOLLOW", "NONBLOCK")
)


class Untrusted(Unavailable):
    """Another user owns, or can replace, a file or folder that code would be loaded from."""


def check_folder(folder: Path) -> Path:
    """Resolve symbolic links of a folder, if only the user and root can change its contents.

    Every folder and link from the root of the file system to it must belong to the user or root.
    Nobody else may write to one of these folders, except for

    - a folder with the sticky bit, such as ``/tmp``: there, only owners can replace their files;
    - the user's private group, which has the user's name and no other member. Debian and Red Hat
      give each user one, so that a home may be writable by that group.

    Raises:
        Untrusted: another user could replace something on the way.
        OSError: there is no such folder.
    """
    absolute = folder.absolute()
    place, ahead = Path(absolute.anchor), list(absolute.parts[:0:-1])  # the next part is the last
    _require_own(place, place.lstat())
    links = 0
    while ahead:
        name = ahead.pop()
        if name == "..":
            place = place.parent
            continue
        found = (place / name).lstat()
        _require_own(place / name, found)
        if stat.S_ISLNK(found.st_mode):
            links += 1
            if links > _LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(folder))
            target = place / os.readlink(place / name)  # an absolute target replaces the place
            place, ahead = Path(target.anchor), [*ahead, *target.parts[:0:-1]]
        elif not stat.S_ISDIR(found.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(place / name))
        else:
            place /= name
    return place


def open_file(path: Path) -> int:
    """A descriptor of a regular file that only the user and root can write, open for reading.

    What is read or loaded through it is what was checked, even if the path is replaced afterwards.

    Raises:
        Untrusted: another user owns the file or can write to it.
        OSError: it cannot be opened, or is a symbolic link.
    """
    descriptor = os.open(path, _OPEN)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise Untrusted(f"{path} is not a regular file.")
        _require_own(path, found)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def cache_folder(name: str) -> Path:
    """A folder in the user's cache that nobody else can write to; it is created if necessary."""
    folder = check_folder(places.made(places.cache())) / name
    folder.mkdir(mode=0o700, exist_ok=True)
    if is_own(folder.lstat()):
        folder.chmod(0o700)
    return check_folder(folder)


def is_own(found: os.stat_result) -> bool:
    """Whether the user owns it."""
    return not hasattr(os, "geteuid") or found.st_uid == os.geteuid()


def python(module: str) -> list[str]:
    """The command that runs a module of this package in a new interpreter.

    ``python -m`` imports from the current folder first, which other users may write to; ``-P``
    prevents that, unless the package itself is imported from there.
    """
    with contextlib.suppress(OSError):
        if Path.cwd() == Path(__file__).parents[2]:
            return [sys.executable, "-m", module]
    return [sys.executable, "-P", "-m", module]


def _require_own(path: Path, found: os.stat_result) -> None:
    if not (is_own(found) or found.st_uid == 0):
        raise Untrusted(f"{path} belongs to another user (user id {found.st_uid}).")
    sticky = stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX
    if stat.S_ISLNK(found.st_mode) or sticky or not hasattr(os, "geteuid"):
        return
    if found.st_mode & stat.S_IWOTH:
        raise Untrusted(f"{path} can be written by every user.")
    if found.st_mode & stat.S_IWGRP and not _is_private_group(found.st_gid):
        raise Untrusted(f"{path} can be written by other users (group id {found.st_gid}).")


def _is_private_group(group_id: int) -> bool:
    import grp
    import pwd

    try:
        user, group = pwd.getpwuid(os.geteuid()), grp.getgrgid(group_id)
    except KeyError:
        return False
    alone = set(group.gr_mem) <= {user.pw_name}
    return alone and user.pw_gid == group_id and user.pw_name == group.gr_name
