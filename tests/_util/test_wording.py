"""What messages quote is printable and short, whatever it is."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

import noisin
from noisin import errors
from noisin._util import checks, wording

STEERING = [
    *("\x1b[31m", "\x1b]0;title\x07", "\r", "\b" * 9, "\x7f", "\x9b31m", "\x85", "\x00", "\t"),
    *("\u202e", "\u2066", "\u2028", "\ufeff", "\ud800", "\udcff"),
]


@given(st.text() | st.sampled_from(STEERING).map(lambda c: c * 500))
def test_a_message_is_printable_and_bounded(text: str) -> None:
    said = wording.message(text)
    assert said.replace("\n", "").replace("\u200c", "").replace("\u200d", "").isprintable()
    assert all(len(line) <= wording.LINE for line in said.split("\n"))
    assert said.count("\n") < wording.LINES
    assert wording.message(said) == said
    said.encode()


@pytest.mark.parametrize("text", STEERING)
def test_what_steers_a_terminal_is_escaped(text: str) -> None:
    for said in (wording.printable(text), str(errors.InvalidValue(text)), wording.shown(text)):
        assert said.isprintable()


@pytest.mark.parametrize("text", ["plain", "naïve 漢字 😀", "می\u200cخواهم", "a\nb", "± → ≠"])
def test_text_of_any_script_stays_as_it_is(text: str) -> None:
    assert wording.message(text) == text


def test_long_values_keep_their_ends() -> None:
    said = wording.message("given " + "x" * 5000 + ": expected y.")
    assert len(said) == wording.LINE
    assert said.startswith("given x")
    assert said.endswith("x: expected y.")
    assert "… (5,019 characters) …" in said
    many = wording.message("\n".join("abc" for _ in range(1000)))
    assert many.endswith("… (941 more lines)")


@pytest.mark.parametrize("kind", [*errors.NoisinError.__subclasses__(), errors.NoisinError])
def test_every_error_is_worded_so(kind: type[errors.NoisinError]) -> None:
    if kind.__module__ != "noisin.errors":
        pytest.skip(f"{kind.__name__} takes other arguments")
    error = kind("\x1b[2J" + "x" * 5000)
    assert str(error).startswith(r"\x1b[2J")
    assert len(str(error)) == wording.LINE
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


class Hostile:
    def __repr__(self) -> str:
        return "\x1b[31m" * 1000 + "\nnoisin: all is well"


@pytest.mark.parametrize("value", ["x" * 5000, "x y " * 1250, Hostile(), list(range(5000))])
def test_values_that_an_api_error_quotes(value: object) -> None:
    quoting = type("Quoting", (), {"__repr__": lambda _: repr(value)})()
    calls: list[Callable[[], object]] = [
        lambda: checks.one_of("mode", value, ("a", "b")),
        lambda: checks.require_cell("unroll", quoting),
        lambda: noisin.noise.Gaussian(quoting),
        lambda: noisin.LSTM(2, 3, noise=noisin.noise.Gaussian(1.0), mode=quoting),
    ]
    for call in calls:
        with pytest.raises(errors.NoisinError) as caught:
            call()
        assert len(str(caught.value)) < 1000
        if call in calls[:2]:  # what is quoted is shortened, and the rest of the message is whole
            assert "\n" not in str(caught.value)
            assert len(str(caught.value)) < wording.VALUE + 130
        assert all(line.isprintable() for line in str(caught.value).split("\n"))
