"""What noisin raises. Every message says what was given, what was expected and what to do.

Each class is also the built-in that a caller would expect, so ``except ValueError`` works as ever,
and ``except NoisinError`` catches all that noisin has to say. This module does not import torch.
"""

from __future__ import annotations

from noisin._util import wording


class NoisinError(Exception):
    """Base of all errors that noisin raises on purpose.

    As text, control characters of what it quotes are escaped and long lines are shortened.
    """

    def __str__(self) -> str:
        return wording.message(super().__str__())


class InvalidValue(NoisinError, ValueError):
    """An argument has the right type and a wrong value, shape or combination."""


class InvalidType(NoisinError, TypeError):
    """An argument is of a type that cannot be used there."""


class Unsupported(NoisinError, RuntimeError):
    """A combination that noisin refuses because the result would be wrong."""


class InvalidData(NoisinError, ValueError):
    """A file is there, and what it holds cannot be used."""


class Unavailable(NoisinError, OSError):
    """A file, folder or address cannot be reached, read or written."""
