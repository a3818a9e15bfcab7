"""Addresses of databases and of folders, and the secrets in them. Nothing here needs Optuna."""

from __future__ import annotations

import os
import re
from urllib.parse import parse_qsl, urlsplit

from noisin.errors import InvalidValue

VARIABLE = "NOISIN_STORAGE"
_SECRET = re.compile(r"password|passwd|secret|token|key$", re.IGNORECASE)


def hidden(address: str) -> str:
    """An address without its secrets.

    >>> hidden("postgresql://ann:pa:ss@host/db?sslpassword=x&sslmode=require")
    'postgresql://ann:***@host/db?sslpassword=***&sslmode=require'
    >>> hidden("sqlite:////tmp/study.db")
    'sqlite:////tmp/study.db'
    """
    text = re.sub(r"(?<=//)([^/@:]*):[^/]*(?=@)", r"\1:***", address)
    return re.sub(r"([?&][^=&]*)=([^&]*)", lambda m: _without_value(m[1], m[2]), text)


def _without_value(name: str, value: str) -> str:
    return f"{name}=***" if _SECRET.search(name) else f"{name}={value}"


def has_secret(address: str) -> bool:
    """Whether an address contains a password or the like.

    >>> [has_secret(f"postgresql://{rest}") for rest in ("ann:x@host/db", "ann@host/db")]
    [True, False]
    >>> has_secret("postgresql://host/db?password=x")
    True
    """
    try:
        parts = urlsplit(address)
        named = [name for name, value in parse_qsl(parts.query) if value and _SECRET.search(name)]
        return bool(parts.password or named)
    except ValueError:
        return hidden(address) != address


def require_no_secret(name: str, address: str | None, instead: str) -> None:
    """Refuse an address with a password as an argument: every user of the machine can read it."""
    if address is not None and has_secret(address):
        raise InvalidValue(
            f"{name}: {hidden(address)} contains a password, and every user of this machine can "
            f"read the arguments of a command. {instead}"
        )


def storage_of(given: str | None) -> str | None:
    """The address of the database: the argument, or else ``NOISIN_STORAGE``, if it is set."""
    return given or os.environ.get(VARIABLE) or None
