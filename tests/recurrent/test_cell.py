"""The list of cells: one row for each name, and classes by their dotted names."""

from __future__ import annotations

import re

import pytest
from torch import nn

import noisin
from noisin.errors import InvalidValue
from noisin.recurrent.cell import CELLS, KERNEL_CELLS, find
from noisin.recurrent.kernels import build
from noisin.recurrent.names import CELL_NAMES


def test_the_list_has_the_names_that_are_known_without_torch() -> None:
    assert tuple(CELLS) == CELL_NAMES
    assert all(spec.name == name for name, spec in CELLS.items())
    assert CELLS["lstm"].load() is noisin.LSTM
    assert CELLS["gru"].load_cell() is nn.GRUCell


def test_the_codes_are_those_of_the_c_kernel() -> None:
    """In its enum, whose order numbers the cells."""
    source = (build.HERE / "cells.h").read_text(encoding="utf-8")
    found = re.search(r"enum cell \{([^}]*)\}", source)
    assert found is not None
    names = [name.strip().lower().replace("_", "-") for name in found[1].split(",")]
    assert {name: names.index(name) for name in names} == {
        name: spec.code for name, spec in KERNEL_CELLS.items()
    }


def test_a_class_by_its_dotted_name() -> None:
    spec = find("torch.nn:LSTMCell")
    assert spec.load()(2, 3).hidden_size == 3
    assert spec.code is None


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("lstn", InvalidValue, "cell must be 'lstm' or .* got 'lstn'"),
        ("no_such.module:Cell", InvalidValue, "'no_such.module:Cell': there is no module no_such"),
        ("torch.nn:NoSuchCell", InvalidValue, "module torch.nn has no NoSuchCell"),
        ("torch.nn:", InvalidValue, "expected package.module:Class"),
        ("math:pi", InvalidValue, "expected a class, and pi is of type float"),
    ],
)
def test_names_that_are_refused(name: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        find(name).load()
