"""Addresses of databases and of folders, and the secrets in them. Nothing here needs Optuna."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from urllib.parse import unquote

from noisin.errors import InvalidValue

VARIABLE = "NOISIN_STORAGE"
_SECRET = re.compile(
    r"pass(word|wd|phrase|$)|pwd|secret|token|key|credential|signature|(^|[-_.])sig$", re.IGNORECASE
)
_CHAIN = r"(?:[A-Za-z][\w.+-]*::)*"  # of fsspec, as in simplecache::s3://bucket
_SCHEME = re.compile(rf"{_CHAIN}(?:[A-Za-z][\w.+-]*:(?=/))?/*")
_LOCAL = re.compile(rf"{_CHAIN}(?:sqlite(?:\+\w+)?|file|local|memory):", re.IGNORECASE)
_HOST = re.compile(r"(?:\[[^\]]*\]|[^:/?#\[])*:")
_PORTS = re.compile(r"\d*(?:,[^:/?#]*:\d*)*(?=[/?#]|$)")  # of several hosts too
_CHAINED = re.compile(r":[A-Za-z][\w.+-]*:/")
_NAME = re.compile(r"[?&#;]([^=?&#;\s]*)=|(?:^|(?<=\s))([\w.%-]+)\s*=\s*")
_QUERY_VALUE = re.compile(r"[^&]*")
_DSN_VALUE = re.compile(r"'(?:\\.|[^'\\])*'?|.*?(?=\s+[\w.%-]+\s*=|$)", re.DOTALL)
_SHORTEST = 3  # characters of a part of a password that is looked for in messages


def hidden(address: str) -> str:
    """An address without its secrets.

    A password is all that stands between the first ``:`` after the scheme and the last ``@``, since
    one that is not percent-encoded, or an address that is misspelt, must not be printed either.
    Without an ``@``, what stands in place of the port and is not a number may be a password.

    >>> hidden("postgresql://ann:pa:s/s@host/db?sslpassword=x&sslmode=require")
    'postgresql://ann:***@host/db?sslpassword=***&sslmode=require'
    >>> hidden("postgresql://ann:pass%40host/db"), hidden("host=h password=pass dbname=db")
    ('postgresql://ann:***%40host/db', 'host=h password=*** dbname=db')
    >>> hidden("sqlite:////tmp/study.db"), hidden("postgresql://host:5432/db")
    ('sqlite:////tmp/study.db', 'postgresql://host:5432/db')
    """
    text, end = "", 0
    for first, last in _spans(address):
        text, end = f"{text}{address[end:first]}***", last
    return text + address[end:]


def _spans(address: str) -> list[tuple[int, int]]:
    """Where the secrets of an address are: first and last, in order, apart from each other."""
    found = [*_password(address), *_named(address)]
    apart: list[tuple[int, int]] = []
    for first, last in sorted(span for span in found if span[0] < span[1]):
        if apart and first <= apart[-1][1]:
            apart[-1] = apart[-1][0], max(last, apart[-1][1])
        else:
            apart.append((first, last))
    return apart


def _password(address: str) -> Iterator[tuple[int, int]]:
    """Where the password is, if there is one: ``user:password@host``."""
    scheme = _SCHEME.match(address)
    after = scheme.end() if scheme else 0
    start, end = address.find(":", after) + 1, _end_of_user(address)
    if 0 < start < end:
        last = re.split("[?&]", address[start:end])[-1]
        if "=" in last and _SECRET.search(last.split("=")[0]):  # ?password=a@b
            end = (address + "&").index("&", end)
        yield start, end
    elif end < 0 and not _LOCAL.match(address) and (host := _HOST.match(address, after)):
        start = host.end()
        if not _PORTS.match(address, start) and not _CHAINED.match(address, start):
            yield start, len(address)


def _end_of_user(address: str) -> int:
    """The place of the last ``@``, or of one that was percent-encoded by mistake; -1 without."""
    end = address.rfind("@")
    if end < 0:
        return re.split("[?#]", address)[0].rfind("%40")
    mistaken = re.compile("[^/?#]*(?=%40)").match(address, end)
    return mistaken.end() if mistaken else end


def _named(address: str) -> Iterator[tuple[int, int]]:
    """Where the secrets with a name are: ``?token=x``, ``#token=x`` or ``host=h password=x``."""
    for name in _NAME.finditer(address):
        if _SECRET.search(unquote(name[1] or name[2] or "")):
            value = (_QUERY_VALUE if name[2] is None else _DSN_VALUE).match(address, name.end())
            yield name.end(), value.end() if value else len(address)


def without_secrets(message: object, address: str) -> str:
    """A message about an address, such as that of a driver, without the secrets of the address.

    >>> without_secrets("cannot find 'word@host'", "postgresql://ann:pass@word@host/db")
    "cannot find '***@host'"
    """
    text = str(message).replace(address, hidden(address))
    secrets = [address[first:last] for first, last in _spans(address)]
    written = [form for secret in secrets for form in (secret, unquote(secret))]
    parts = {part for form in written for part in [form, *re.split(r"[@/?#:&'\s]", form)]}
    for part in sorted(parts, key=len, reverse=True):
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
            f"{name}: {hidden(address)} contains a password or a key, and every user of this "
            f"machine can read the arguments of a command. {instead}"
        )


def require_place_without_secret(name: str, place: str) -> None:
    """Refuse a URL with a password. The path of a folder, such as ``12:30@node1``, has none."""
    if ":/" in place:
        instead = "Use the environment variables or files of the service."
        require_no_secret(name, place, instead)


def storage_of(given: str | None) -> str | None:
    """The address of the database: the argument, or else ``NOISIN_STORAGE``, if it is set."""
    return given or os.environ.get(VARIABLE) or None
