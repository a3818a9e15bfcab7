"""Addresses: no part of a password is printed, however it is written."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

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
    for address in (
        *("postgresql://ann@host:5432/db", "postgresql://a:1,b:2/db", "postgresql://[::1]:5432/db"),
        *("postgresql+psycopg://host/db?sslmode=require", "host=h user=u dbname=d"),
        *("sqlite:////a/b.db", "sqlite:////a:b/c.db", "file:///a:b/c", "memory://a:b/c"),
        *("s3://bucket/runs", "s3://bucket/token=bpe/design=1", "simplecache::s3://bucket/a:b"),
        *("zip://a.zip::s3://bucket/a", "sftp://host:22/runs", "abfs://c@a.dfs.core.windows.net/x"),
    ):
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


# Everything before and after the secret; Z is a part of it that must not be shown.
AFTER_USER = ["/", "?", "#", ":", "@", "%40", "%", "&", "=", "key=", " ", "ZQ", "Z", "7"]
FORMS = {
    "postgresql://ann:{}@host/db": AFTER_USER,
    "postgresql+psycopg://ann:{}@host:5432/db?sslmode=require": AFTER_USER,
    "s3://ann:{}@bucket/runs": AFTER_USER,
    "postgresql://ann:{}%40host/db": ["/", ":", "%40", "%", "&", "=", "Z", "7"],
    "postgresql://ann:Z{}": ["/", "?", "#", ":", "%", "&", "=", "key=", " ", "Z", "7"],
    "ann:Z{}": ["/", "?", "#", ":", "%", "&", "=", "Z", "7"],
    **{
        f"abfs://c@a.dfs.core.windows.net/x?sv=1{name}={{}}": ["/", "?", "#", "%", "@", "=", "Z"]
        for name in ("&sig", "&X-Amz-Signature", "&X-Amz-Credential", "&pwd", "&key", "#token")
    },
    "s3://bucket/x#token={}": ["/", "?", "#", ":", "%", "@", "=", "Z"],
    "postgresql://host/db?pass%77ord={}&a=b": ["/", "?", "#", ":", "%", "@", "=", " ", "Z"],
    "host=h user=u password={} dbname=d": ["/", "?", "#", ":", "%", "@", "=", "&", "Z"],
    "host=h password = '{}' dbname=d": ["/", "?", ":", "@", " ", "x=", "\\'", "Z"],
    "host=h dbname=d password='{}": ["/", "?", ":", "@", " ", "x=", "Z"],
}
WRITTEN = st.sampled_from(sorted(FORMS)).flatmap(
    lambda form: st.lists(st.sampled_from(FORMS[form]), max_size=8).map(
        lambda parts: (form, "Z" + "".join(parts))
    )
)


@given(WRITTEN)
@example(("postgresql://u:{}%40h/db", "ZZZZ"))
@example(("postgresql://u:{}", "ZZZZ"))
def test_no_secret_is_shown_wherever_it_is_written(written: tuple[str, str]) -> None:
    form, secret = written
    address = form.format(secret)
    assert has_secret(address)
    assert "Z" not in hidden(address), hidden(address)
    assert hidden(address).startswith(form.split("{}")[0].rstrip("Z'"))
    assert "Z" not in without_secrets(f"cannot parse {address!s}: {address}", address)


@pytest.mark.parametrize("form", sorted(FORMS))
def test_a_message_that_quotes_the_secret_alone(form: str) -> None:
    address = form.replace("Z{}", "{}").format("SEC%20RET")
    for quoted in ("SEC%20RET", "SEC RET"):
        assert "SEC" not in without_secrets(f"invalid literal for int(): '{quoted}'", address)


@pytest.mark.parametrize(
    "address",
    [
        "host=127.0.0.1 user=u password=SECRET dbname=d",
        "postgresql://u:SECRET%40h/db",
        "postgresql+psycopg://u:SECRET",
        "postgresql+psycopg://127.0.0.1:1/d?password=SEC\nRET",
    ],
)
def test_an_error_of_the_database_does_not_quote_a_misspelt_secret(address: str) -> None:
    with pytest.raises(Unavailable, match="cannot be used") as error:
        open_database(address)
    assert "SEC" not in str(error.value)
    assert "RET" not in str(error.value)
