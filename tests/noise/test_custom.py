"""A trial draw of a user's noise: what goes wrong in it is one message."""

from __future__ import annotations

from typing import Any

import pytest

from noisin.errors import InvalidValue
from noisin.noise.custom import probe


class Failing:
    variance = 1.0

    def sample(self, shape: Any, *, like: Any, generator: Any = None) -> Any:
        return 1 / 0


def test_a_draw_that_fails() -> None:
    law: Any = Failing()
    with pytest.raises(InvalidValue, match=r"Failing.sample: drawing \(2, 3, 4\) failed: ZeroDiv"):
        probe(law)
