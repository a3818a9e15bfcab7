"""Parquet files as pyarrow writes them; ``make stress`` installs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noisin.data.columns import Columns, load
from noisin.errors import NoisinError

pyarrow: Any = pytest.importorskip("pyarrow")
parquet: Any = pytest.importorskip("pyarrow.parquet")

COLUMNS = Columns(("sold",), "poisson", covariates=("price", "holiday"))
ROWS = 20


def columns() -> dict[str, Any]:
    rows = np.arange(ROWS)
    return {"sold": rows % 5, "price": 1.5 + rows / 8, "holiday": rows % 7 == 0}


def write(path: Path, content: dict[str, Any], **options: Any) -> str:
    parquet.write_table(pyarrow.table(content), path, **options)
    return str(path)


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd"])
def test_columns_of_several_types(tmp_path: Path, compression: str) -> None:
    """Integers, floats and booleans, in several groups of rows, are those of a csv."""
    options = {"compression": compression, "row_group_size": 6}
    path = write(tmp_path / "sales.parquet", columns(), **options)
    found = load(path, None, COLUMNS)
    text = tmp_path / "sales.csv"
    lines = zip(*(column.tolist() for column in columns().values()), strict=True)
    rows = [f"{sold},{price},{int(holiday)}" for sold, price, holiday in lines]
    text.write_text("\n".join(["sold,price,holiday", *rows]))
    expected = load(str(text), None, COLUMNS)
    for split in ("train", "valid", "test"):
        (one,), (other,) = getattr(found, split), getattr(expected, split)
        np.testing.assert_array_equal(one.target, other.target)
        np.testing.assert_allclose(one.covariates, other.covariates)
        np.testing.assert_array_equal(one.scored, other.scored)


def test_strings_name_sequences(tmp_path: Path) -> None:
    shops = {"shop": list("abcd" * 3), "sold": list(range(12))}
    encoded = pyarrow.array(shops["shop"]).dictionary_encode()  # as pandas writes categories
    for shop in (shops["shop"], encoded):
        path = write(tmp_path / "shops.parquet", shops | {"shop": shop})
        found = load(path, None, Columns(("sold",), "poisson", sequence="shop"))
        assert [table.target[:, 0].tolist() for table in found.train] == [[0, 4, 8], [1, 5, 9]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (columns() | {"sold": [1.0, None, *[2.0] * (ROWS - 2)]}, "'sold' has .* in row 2"),
        (columns() | {"sold": [1.0, float("nan"), *[2.0] * (ROWS - 2)]}, "'sold' has .* in row 2"),
        ({"solds": columns()["sold"]}, "has no column 'sold'.* Did you mean 'solds'"),
    ],
    ids=["null", "nan", "other name"],
)
def test_what_is_refused(tmp_path: Path, content: dict[str, Any], message: str) -> None:
    path = write(tmp_path / "sales.parquet", content)
    with pytest.raises(NoisinError, match=message):
        load(path, None, Columns(("sold",), "poisson"))


def test_a_damaged_file(tmp_path: Path) -> None:
    path = Path(write(tmp_path / "sales.parquet", columns()))
    whole = path.read_bytes()
    for content in (b"", b"PAR1", whole[: len(whole) // 2], b"x" * 100, whole[:-8] + b"x" * 8):
        path.write_bytes(content)
        with pytest.raises(NoisinError, match=r"sales\.parquet"):
            load(str(path), None, COLUMNS)
