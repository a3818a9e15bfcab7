"""Files of arrays as columns by name: csv, npy, npz and, with pyarrow, parquet."""

from __future__ import annotations

import csv
import hashlib
import io
import zipfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisin._util.regular import read_regular
from noisin.data.text import readable
from noisin.errors import InvalidData, NoisinError, Unavailable

Column = NDArray[Any]  # of numbers, or of text that may be numbers
# What damaged files raise; a RuntimeError is that of an encrypted or unknown kind of zip.
DAMAGES = (
    *(ValueError, TypeError, OSError, EOFError, KeyError, RuntimeError, MemoryError),
    *(csv.Error, zipfile.BadZipFile, zlib.error),
)


@dataclass(frozen=True)
class Frame:
    """Columns of equal length by name, as a file has them.

    Attributes:
        name: what messages call it.
        columns: the columns.
    """

    name: str
    columns: Mapping[str, Column]

    def __len__(self) -> int:
        return len(next(iter(self.columns.values()), ()))

    def labels(self, column: str) -> list[str]:
        """A column as text, such as the names of sequences."""
        values = self._get(column)
        found = ["" if _missing(value) else str(value) for value in values]
        if "" in found:
            raise InvalidData(
                f"{self.name}: column {column!r} is empty in row {found.index('') + 1}, expected "
                f"the name of a sequence or of a split. Fill it in, or leave the row out."
            )
        return found

    def numbers(self, columns: Sequence[str]) -> NDArray[np.float64]:
        """Some columns as finite numbers, ``(rows, columns)``."""
        found = [self._numbers(column) for column in columns]
        return np.stack(found, 1) if found else np.zeros((len(self), 0))

    def _numbers(self, column: str) -> NDArray[np.float64]:
        values = self._get(column)
        if values.dtype.kind in "cmM":
            raise InvalidData(
                f"{self.name}: column {column!r} has the type {values.dtype}, expected real "
                f"numbers. Convert it."
            )
        try:
            if values.dtype.kind == "O" or (values.dtype.kind == "U" and "_" in "".join(values)):
                raise ValueError  # numpy and Python read 1_0 as 10, so each value is looked at
            with np.errstate(over="ignore"):  # what becomes infinite is refused below
                numbers = values.astype(np.float64)
        except (ValueError, TypeError):
            numbers = np.array([_number(value) for value in values])
        if not np.isfinite(numbers).all():
            row = int(np.argmin(np.isfinite(numbers)))
            raise InvalidData(
                f"{self.name}: column {column!r} has {str(values[row])!r:.40} in row {row + 1}, "
                f"expected a finite number. Fill it in, or leave the row out."
            )
        return numbers

    def _get(self, column: str) -> Column:
        if column not in self.columns:
            near = get_close_matches(column, self.columns, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            raise InvalidData(
                f"{self.name}: has no column {column!r:.60}. Its columns are "
                f"{', '.join(self.columns)}.{hint}"
            )
        return self.columns[column]


def _missing(value: object) -> bool:
    """Whether there is no value, as formats say it: None, NaN or nothing between two commas."""
    return value is None or value != value or not str(value).strip()


def _number(value: object) -> float:
    if isinstance(value, str) and "_" in value:
        return np.nan
    try:
        return float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return np.nan


def read(path: Path) -> tuple[list[Frame], str]:
    """The frames of a file, and the sha256 of its content. An npz file may have several."""
    with readable(str(path)):
        content = read_regular(path)
    try:
        frames = READERS[path.suffix.lower()](str(path), content)
    except NoisinError:
        raise
    except DAMAGES as error:
        kind = path.suffix[1:].lower()
        raise InvalidData(f"{path}: cannot be read as {kind}: {str(error).rstrip('.')}.") from None
    for frame in frames:
        if not len(frame):
            raise InvalidData(f"{frame.name}: has no rows.")
    return frames, hashlib.sha256(content).hexdigest()


def _read_csv(name: str, content: bytes) -> list[Frame]:
    head, *rows = [*csv.reader(io.StringIO(content.decode("utf-8-sig")))] or [[]]
    rows = [row for row in rows if row]
    if len(set(head)) != len(head):
        twice = next(column for column in head if head.count(column) > 1)
        raise InvalidData(f"{name}: has two columns {twice!r:.60}. Rename one of them.")
    for number, row in enumerate(rows, 1):
        if len(row) != len(head):
            raise InvalidData(
                f"{name}: row {number} has {len(row)} values, and the first line names "
                f"{len(head)} columns."
            )
    return [Frame(name, dict(zip(head, map(np.array, zip(*rows, strict=True)), strict=bool(rows))))]


def _read_npy(name: str, content: bytes) -> list[Frame]:
    return [_of_array(name, np.lib.format.read_array(io.BytesIO(content), allow_pickle=False))]


def _read_npz(name: str, content: bytes) -> list[Frame]:
    """Vectors of one length are the columns of a table; other arrays are a table each."""
    with np.lib.npyio.NpzFile(io.BytesIO(content), allow_pickle=False) as file:
        arrays = {key: file[key] for key in file.files}
    if others := [key for key, array in arrays.items() if not isinstance(array, np.ndarray)]:
        raise InvalidData(f"{name}: {others[0]!r:.60} is not an array.")
    shapes = {array.shape for array in arrays.values()}
    if len(shapes) == 1 and all(array.ndim == 1 for array in arrays.values()):
        return [Frame(name, arrays)]
    return [_of_array(f"{name} ({key})", array) for key, array in arrays.items()]


def _of_array(name: str, array: NDArray[Any]) -> Frame:
    """A matrix has one row per step, and its columns are called 0, 1, ..."""
    if array.dtype.names:
        return Frame(name, {column: array[column] for column in array.dtype.names})
    if array.ndim not in (1, 2):
        raise InvalidData(
            f"{name}: expected a matrix (steps, columns), got an array of shape {array.shape}."
        )
    columns = array.reshape(len(array), -1).T
    return Frame(name, {str(i): column for i, column in enumerate(columns)})


def _read_parquet(name: str, content: bytes) -> list[Frame]:
    try:
        from pyarrow import BufferReader, parquet
    except ImportError:
        raise Unavailable(
            f"{name}: parquet files need pyarrow: pip install 'noisin[parquet]'."
        ) from None
    table = parquet.read_table(BufferReader(content)).to_pydict()
    return [Frame(name, {column: np.array(values) for column, values in table.items()})]


READERS: Mapping[str, Callable[[str, bytes], list[Frame]]] = {
    ".csv": _read_csv,
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".parquet": _read_parquet,
}
