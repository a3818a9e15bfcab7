"""Checks of values that every call makes."""

from __future__ import annotations

import pytest
import torch

from noisin._util import checks


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_expanded_is_checked(value: float) -> None:
    """One entry of an expanded dimension is looked at, not none."""
    found = torch.tensor([1.0, value]).expand(3, 2)
    assert not checks.all_finite(found)
    assert checks.all_finite(found[:, :1])
