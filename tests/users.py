"""Two users other than the one who runs the tests, who must be root to act as them."""

from __future__ import annotations

import grp as grp  # loaded now: another user may not be able to read the interpreter's files
import os
import pwd as pwd
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

USER, OTHER = 54321, 54322
needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="needs root, to make files of another user and to act as one"
)


@contextmanager
def acting_as(user: int) -> Iterator[None]:
    """With the rights of that user, and of a group of the same number."""
    before, group, groups = os.geteuid(), os.getegid(), os.getgroups()
    os.seteuid(0)
    os.setgroups([])
    os.setegid(user)
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(group)
        os.setgroups(groups)
        os.seteuid(before)
