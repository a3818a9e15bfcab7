"""Addresses: no part of a password is printed, however it is written."""

from __future__ import annotations

import pytest

from noisin.errors import InvalidValue, Unavailable
from noisin.experiments.sweep.address import (
    has_secret,
    hidden,
    require_place_without_secret,
    without_secrets,
)
from noisin.experiments.sweep.database import open_database

PASSWORDS = ["SECRET", "SEC/RET", "SEC#RET", "SEC?RET", "SEC:RET", "SEC@RET", "SEC?token=RET"]
SCHEMES = ["postgresql+psycopg://", "postgresql+psycopg:/", "postgresql+psycopg//", "s3://", ""]


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("password", PASSWORDS)
def test_no_part_of_a_password_is_shown(password: str, scheme: str) -> None:
    address = f"{scheme}ann:{password}@host/db?sslmode=require"
    shown = hidden(address)
    assert has_secret(address)
    assert "SEC" not in shown
    assert "RET" not in shown
    assert shown.startswith(f"{scheme}ann:***")


def test_what_is_no_password_is_shown() -> None:
    for address in ("postgresql://ann@host:5432/db", "sqlite:////a/b.db", "s3://bucket/runs"):
        assert (hidden(address), has_secret(address)) == (address, False)
    assert hidden("postgresql://host:5432/db?password=SEC@RET&a=b") == "postgresql://host:***&a=b"
    require_place_without_secret("--out", "runs/12:30@node1")
    with pytest.raises(InvalidValue, match=r"--out: s3://key:\*\*\*@bucket contains a password"):
        require_place_without_secret("--out", "s3://key:SEC/RET@bucket")


@pytest.mark.parametrize("password", PASSWORDS)
@pytest.mark.parametrize("slashes", ["/", "//"])
def test_an_error_of_the_database_does_not_quote_a_password(slashes: str, password: str) -> None:
    with pytest.raises(Unavailable, match="cannot be used") as error:
        open_database(f"postgresql+psycopg:{slashes}ann:{password}@127.0.0.1:1/db")
    assert "SEC" not in str(error.value)
    assert "RET" not in str(error.value)


def test_an_error_that_quotes_a_part() -> None:
    said = "failed to resolve host 'RET@host'"
    assert without_secrets(said, "postgresql://ann:SEC@RET@host/db") == (
        "failed to resolve host '***@host'"
    )
