"""Addresses of databases and of folders, and the secrets in them. Nothing here needs Optuna."""

from __future__ import annotations

import os
import re

from noisin.errors import InvalidValue

VARIABLE = "NOISIN_STORAGE"
_SECRET = re.compile(r"password|passwd|secret|token|key$", re.IGNORECASE)
_SCHEME = re.compile(r"(?:[A-Za-z][\w.+-]*:(?=/))?/*")
_SHORTEST = 3  # characters of a part of a password that is looked for in messages


def hidden(address: str) -> str:
    """An address without its secrets.

    A password is all that stands between the first ``:`` after the scheme and the last ``@``, since
    one that is not percent-encoded, or an address that is misspelt, must not be printed either.

    >>> hidden("postgresql://ann:pa:s/s@host/db?sslpassword=x&sslmode=require")
    'postgresql://ann:***@host/db?sslpassword=***&sslmode=require'
    >>> hidden("sqlite:////tmp/study.db")
    'sqlite:////tmp/study.db'
    """
    before, secret, after = _split(address)
    text = f"{before}***{after}" if secret else address
    return re.sub(r"([?&][^=&]*)=([^&]+)", lambda m: _without_value(m[1], m[2]), text)


def _split(address: str) -> tuple[str, str, str]:
    """An address in three parts, of which the second is the password, if it has one."""
    scheme = _SCHEME.match(address)
    start = address.find(":", scheme.end() if scheme else 0) + 1
    end = address.rfind("@")
    if not 0 < start < end:
        return address, "", ""
    last = re.split("[?&]", address[start:end])[-1]
    if "=" in last and _SECRET.search(last.split("=")[0]):  # ?password=a@b
        end = (address + "&").index("&", end)
    return address[:start], address[start:end], address[end:]


def _without_value(name: str, value: str) -> str:
    return f"{name}=***" if _SECRET.search(name) else f"{name}={value}"


def without_secrets(message: object, address: str) -> str:
    """A message about an address, such as that of a driver, without the secrets of the address.

    >>> without_secrets("cannot find 'word@host'", "postgresql://ann:pass@word@host/db")
    "cannot find '***@host'"
    """
    text = str(message).replace(address, hidden(address))
    for part in re.split("[@/?#:]", _split(address)[1]):
        text = text.replace(part, "***") if len(part) >= _SHORTEST else text
    return text


def has_secret(address: str) -> bool:
    """Whether an address contains a password or the like.

    >>> [has_secret(f"postgresql://{rest}") for rest in ("ann:x@host/db", "ann@host/db")]
    [True, False]
    >>> has_secret("postgresql://host/db?password=x")
    True
    """
    return hidden(address) != address


def require_no_secret(name: str, address: str | None, instead: str) -> None:
    """Refuse an address with a password as an argument: every user of the machine can read it."""
    if address is not None and has_secret(address):
        raise InvalidValue(
            f"{name}: {hidden(address)} contains a password, and every user of this machine can "
            f"read the arguments of a command. {instead}"
        )


def require_place_without_secret(name: str, place: str) -> None:
    """Refuse a URL with a password. The path of a folder, such as ``12:30@node1``, has none."""
    if ":/" in place:
        instead = "Use the environment variables or files of the service."
        require_no_secret(name, place, instead)


def storage_of(given: str | None) -> str | None:
    """The address of the database: the argument, or else ``NOISIN_STORAGE``, if it is set."""
    return given or os.environ.get(VARIABLE) or None
