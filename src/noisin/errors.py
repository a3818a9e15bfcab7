"""The exceptions of noisin. A message states what was given, what was expected and what to do.

Each class is also the built-in exception that a caller would expect, so ``except ValueError`` works
as usual, and ``except NoisinError`` catches all errors of noisin. Nothing here needs torch.
"""

from __future__ import annotations

from noisin._util import wording


class NoisinError(Exception):
    """Base of all errors that noisin raises on purpose.

    In ``str(error)``, control characters are escaped and long lines are shortened.
    """

    def __str__(self) -> str:
        return wording.message(super().__str__())


class InvalidValue(NoisinError, ValueError):
    """An argument has the right type, but an invalid value, shape or combination."""


class InvalidType(NoisinError, TypeError):
    """An argument has an invalid type."""


class InvalidTensor(InvalidValue, RuntimeError):
    """A tensor has an invalid shape or device. Torch's own RNNs raise RuntimeError for that."""


class InvalidDtype(InvalidType, RuntimeError):
    """A tensor has an invalid dtype. Torch's own RNNs raise RuntimeError for that."""


class Unsupported(NoisinError, RuntimeError):
    """A combination that noisin refuses because the result would be wrong."""


class MissingPackage(Unsupported, ImportError):
    """A package is not installed that this part of noisin needs and the rest does not."""


class InvalidData(NoisinError, ValueError):
    """A file exists, but its content cannot be used."""


class Unavailable(NoisinError, OSError):
    """A file, folder or address cannot be reached, read or written."""


class LostNoise(NoisinError, AssertionError):
    """A check of a model failed: its noise does not reach its output."""


class GrowingNoise(UserWarning):
    """A warning: noise multiplies along the state, and its second moment grows without bound."""
