"""Your own arrays: formats, sequences, splits, and one message for what is wrong."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any
from zipfile import ZipFile

import numpy as np
import pytest

from noisin.data import arrays
from noisin.data.arrays import Frame
from noisin.data.columns import Columns, load
from noisin.data.series import SeriesSet
from noisin.errors import InvalidData, InvalidValue, NoisinError, Unavailable
from noisin.tasks import Series

X = np.stack([np.arange(20.0), 100 + np.arange(20.0) % 3], 1)
COLUMNS = Columns(("y",), "gaussian", covariates=("p",))
CSV = "y,p\n" + "".join(f"{a:g},{b:g}\n" for a, b in X)


def lengths(data: SeriesSet) -> list[list[int]]:
    return [[len(t) for t in tables] for tables in (data.train, data.valid, data.test)]


def write(path: Path, kind: str) -> Path:
    path = path.with_suffix(f".{kind}")
    if kind == "csv":
        path.write_text(CSV)
    elif kind == "npy":
        np.save(path, X)
    else:
        np.savez(path, y=X[:, 0], p=X[:, 1])
    return path


@pytest.mark.parametrize("kind", ["csv", "npy", "npz"])
def test_formats(kind: str, tmp_path: Path) -> None:
    path = write(tmp_path / "data", kind)
    names = ("0", "1") if kind == "npy" else ("y", "p")
    spec = Columns(names[:1], "poisson", covariates=names[1:], context=3, season=2)
    data = load(str(path), None, spec)
    assert lengths(data) == [[16], [5], [5]], "16, 2 and 2 rows, and 3 before them"
    assert data.train[0].target[:, 0].tolist() == X[:16, 0].tolist()
    assert data.test[0].target[:, 0].tolist() == X[15:, 0].tolist()
    assert data.test[0].scored.tolist() == [False] * 3 + [True] * 2
    assert data.test[0].covariates[:, 0].tolist() == X[15:, 1].tolist()
    assert (data.seasons, data.likelihood) == ((2,), "poisson")
    moved = path.rename(path.with_name(f"moved.{kind}"))
    assert load(str(moved), None, spec).sha256 == data.sha256, "wherever the file is"


def test_messages_name_the_row_of_the_file(tmp_path: Path) -> None:
    """Of a sequence whose rows are scattered, after its rows were split."""
    path = tmp_path / "shops.csv"
    values = ["1", "2", "3", "4", "5", "6", "7", "1e60", "8"]
    rows = "".join(f"{shop},{y}\n" for shop, y in zip("abacbcacb", values, strict=True))
    path.write_text("shop,y\n" + rows)
    data = load(str(path), None, Columns(("y",), "gaussian", sequence="shop"))
    with pytest.raises(InvalidData, match=r"shops.csv: shop c: column 'y' has 1e\+60 in row 8, "):
        Series(data)
    alone = load(str(path), None, Columns(("y",), "gaussian", test=0.3, valid=0.3))
    with pytest.raises(InvalidData, match=r"shops.csv: column 'y' has 1e\+60 in row 8, "):
        Series(alone)


@pytest.mark.parametrize("value", [10**400, "1_0", "1e400"], ids=["huge", "_", "inf"])
def test_numbers_of_columns_of_objects(value: object) -> None:
    frame = Frame("mine", {"y": np.array([3, value, None], dtype=object)})
    with pytest.raises(InvalidData, match="column 'y' has '1.* in row 2, expected a finite"):
        frame.numbers(["y"])


def test_structured_and_several_arrays(tmp_path: Path) -> None:
    rows = np.array([tuple(row) for row in X], dtype=[("y", float), ("p", float)])
    np.save(tmp_path / "rows.npy", rows)
    assert lengths(load(str(tmp_path / "rows.npy"), None, COLUMNS)) == [[16], [2], [2]]
    np.savez(tmp_path / "pieces.npz", a=X[:5], b=X[:7], c=X[:3], d=X[:4])
    data = load(str(tmp_path / "pieces.npz"), None, Columns(("0",), "gaussian"))
    assert lengths(data) == [[5, 7], [3], [4]]
    assert data.train[1].name.endswith("pieces.npz (b)")


def test_parquet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "data.parquet"
    path.write_bytes(b"PAR1")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(Unavailable, match=r"parquet files need pyarrow: pip install"):
        load(str(path), None, COLUMNS)

    class Table:
        def to_pydict(self) -> dict[str, list[float]]:
            return {"y": X[:, 0].tolist(), "p": X[:, 1].tolist()}

    arrow: Any = ModuleType("pyarrow")
    arrow.BufferReader = bytes
    arrow.parquet = ModuleType("pyarrow.parquet")
    arrow.parquet.read_table = lambda content: Table() if content == b"PAR1" else None
    monkeypatch.setitem(sys.modules, "pyarrow", arrow)
    assert load(str(path), None, COLUMNS).train[0].target[:3, 0].tolist() == [0.0, 1.0, 2.0]


def test_a_column_names_the_sequences(tmp_path: Path) -> None:
    path = tmp_path / "shops.csv"
    shops = "abacbcacb"  # a: rows 0 2 6, b: 1 4 8, c: 3 5 7
    path.write_text("shop,y\n" + "".join(f"{shop},{i}\n" for i, shop in enumerate(shops)))
    data = load(str(path), None, Columns(("y",), "gaussian", sequence="shop"))
    found = [t.target[:, 0].tolist() for t in (*data.train, *data.valid, *data.test)]
    assert found == [[0, 2, 6], [1, 4, 8], [3, 5, 7]]


def test_a_column_names_the_splits(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    splits = ["train"] * 4 + ["valid"] * 2 + ["test"] * 3
    path.write_text("y,part\n" + "".join(f"{i},{s}\n" for i, s in enumerate(splits)))
    data = load(str(path), None, Columns(("y",), "gaussian", split="part"))
    assert lengths(data) == [[4], [2], [3]]
    assert data.test[0].target[:, 0].tolist() == [6, 7, 8]
    path.write_text(path.read_text().replace("valid", "dev"))
    with pytest.raises(InvalidData, match="'dev' in row 5, expected train, valid or test"):
        load(str(path), None, Columns(("y",), "gaussian", split="part"))


def test_rows_before_a_labelled_split_are_read(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    splits = ["train"] * 4 + ["valid"] * 2 + ["test"] * 3
    path.write_text("y,part\n" + "".join(f"{i},{s}\n" for i, s in enumerate(splits)))
    data = load(str(path), None, Columns(("y",), "gaussian", split="part", context=3))
    assert lengths(data) == [[4], [5], [6]]
    assert data.test[0].target[:, 0].tolist() == [3, 4, 5, 6, 7, 8]
    assert data.test[0].scored.tolist() == [False] * 3 + [True] * 3


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (Columns(("y", "y"), "gaussian"), "the target 'y' is named twice"),
        (Columns(("y",), "poisson", changes=True), "changes are of real values .* got .* poisson"),
        (Columns(("y",), "gaussian", sequence="p", context=2), "the splits are sequences of their"),
        (Columns(("y",), "gaussian", test=0.05), "its share 0.05 of 20 rows for test is one row"),
    ],
)
def test_settings_that_contradict_each_other(spec: Columns, message: str, tmp_path: Path) -> None:
    with pytest.raises(NoisinError, match=message):
        load(str(write(tmp_path / "data", "csv")), None, spec)


def test_damaged_archives(tmp_path: Path) -> None:
    whole = write(tmp_path / "data", "npz").read_bytes()
    path = tmp_path / "damaged.npz"
    for stop in (10, 100, len(whole) // 2, len(whole) - 10):
        path.write_bytes(whole[:stop])
        with pytest.raises(InvalidData, match=r"damaged.npz: cannot be read as npz"):
            load(str(path), None, COLUMNS)
    np.savez_compressed(path, y=X[:, 0], p=X[:, 1])
    content = bytearray(path.read_bytes())
    content[content.index(b"y.npy") + 40] ^= 1
    path.write_bytes(content)
    with pytest.raises(InvalidData, match=r"damaged.npz: cannot be read as npz"):
        load(str(path), None, COLUMNS)


def test_archives_and_arrays_by_the_name_of_the_other(tmp_path: Path) -> None:
    for kind, other in (("npy", "npz"), ("npz", "npy")):
        path = write(tmp_path / kind, kind).rename(tmp_path / f"other.{other}")
        with pytest.raises(InvalidData, match=f"cannot be read as {other}"):
            load(str(path), None, COLUMNS)
    with ZipFile(tmp_path / "text.npz", "w") as file:
        file.writestr("y", "1 2 3")
    with pytest.raises(InvalidData, match="'y' is not an array"):
        load(str(tmp_path / "text.npz"), None, COLUMNS)


@pytest.mark.parametrize("kind", ["complex128", "datetime64[D]", "timedelta64[s]"])
def test_numbers_that_are_not_real(kind: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", y=np.arange(9).astype(kind), p=np.arange(9))
    with pytest.raises(InvalidData, match=r"column 'y' has the type .*, expected real numbers"):
        load(str(tmp_path / "a.npz"), None, COLUMNS)


def test_rows_without_the_name_of_their_sequence(tmp_path: Path) -> None:
    spec = Columns(("y",), "gaussian", sequence="p")
    np.savez(tmp_path / "a.npz", y=np.arange(4.0), p=np.array([1, 1, np.nan, 2]))
    with pytest.raises(InvalidData, match="column 'p' is empty in row 3"):
        load(str(tmp_path / "a.npz"), None, spec)
    (tmp_path / "a.csv").write_text("y,p\n1,a\n2,\n")
    with pytest.raises(InvalidData, match="column 'p' is empty in row 2"):
        load(str(tmp_path / "a.csv"), None, spec)


def test_files_and_folders_name_the_splits(tmp_path: Path) -> None:
    for name, n in (("train/a", 4), ("train/b", 5), ("validation/c", 2), ("test", 3)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        np.save(tmp_path / f"{name}.npy", X[:n])
    spec = Columns(("0",), "gaussian")
    data = load(str(tmp_path), None, spec)
    assert lengths(data) == [[4, 5], [2], [3]]
    np.save(tmp_path / "other.npy", X)
    with pytest.raises(InvalidData, match=r"other.npy is in none of train, valid and test"):
        load(str(tmp_path), None, spec)
    (tmp_path / "other.npy").unlink()
    (tmp_path / "test.npy").unlink()
    with pytest.raises(InvalidData, match="has no test data"):
        load(str(tmp_path), None, spec)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", "a.csv: has no rows"),
        ("a.csv", b"y,p\n", "a.csv: has no rows"),
        ("a.csv", b"y,y\n1,2\n", "has two columns 'y'"),
        ("a.csv", b"y,p\n1,2\n3\n", "row 2 has 1 values, and the first line names 2 columns"),
        ("a.csv", b"y,p\n1,inf\n", "column 'p' has 'inf' in row 1, expected a finite number"),
        ("a.csv", b"Y,p\n1,2\n", "has no column 'y'. Its columns are Y, p"),
        ("a.csv", b"\xff\xfe\x00", "cannot be read as csv"),
        ("a.npy", b"nonsense", "cannot be read as npy"),
        ("a.npz", b"PK nonsense", "cannot be read as npz"),
        ("a.txt", b"y\n1\n", "expected a file of arrays"),
    ],
)
def test_bad_files(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(NoisinError, match=message):
        load(str(path), None, COLUMNS)


def test_an_array_of_objects_is_not_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([print, 3], dtype=object), allow_pickle=True)
    with pytest.raises(InvalidData, match="cannot be read as npy: Object arrays"):
        arrays.read(tmp_path / "a.npy")


def test_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="there is no such file or folder"):
        load(str(tmp_path / "none"), None, COLUMNS)
    with pytest.raises(Unavailable, match="has no files of arrays"):
        load(str(tmp_path), None, COLUMNS)
    with pytest.raises(InvalidValue, match=r"together with its columns, got 'x.csv'"):
        load("x.csv")
    np.save(tmp_path / "a.npy", np.zeros((2, 3, 4)))
    with pytest.raises(InvalidData, match=r"expected a matrix \(steps, columns\), got an array"):
        load(str(tmp_path / "a.npy"), None, COLUMNS)
