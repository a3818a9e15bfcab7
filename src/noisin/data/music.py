"""Polyphonic music: pieces as binary piano rolls, 88 notes a frame. Nothing here needs torch.

The four data sets of Boulanger-Lewandowski et al. (2012), as the ``.mat`` files of Bai et al.
(2018). They are not downloaded but read from a folder.
"""

from __future__ import annotations

import hashlib
import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noisin._util.regular import read_regular
from noisin.data.corpus import SPLITS
from noisin.errors import InvalidData, InvalidValue, Unavailable

NOTES = 88
FOLDER = "polyphonic-music"
FILES = {  # the name of the file, and its sha256
    "jsb": (
        "JSB_Chorales.mat",
        "ac0e608527cc411c7e21ef7d38be47f0de7fb6b13b3ae168b8eccf1c2a9b18d4",
    ),
    "musedata": (
        "MuseData.mat",
        "e8d9eb422ec3833c25f43a9f854d4ee0b9118a20b45f2c183395cdc30ffa14ff",
    ),
    "nottingham": (
        "Nottingham.mat",
        "d154f7ca2e90799dc1dc011d8fc048f2fc6ef3f7c69d974b9cf27a471634fbea",
    ),
    "piano-midi": (
        "Piano_midi.mat",
        "990a8a71d5764a7eaa3e78d9e5023d1470380fe2db3a1448265a97a24c8b1c34",
    ),
}

Piece = NDArray[np.uint8]  # (frames, 88): 1 if a note sounds


@dataclass(frozen=True)
class Pieces:
    """A data set: the pieces of each split, and the hash of its file."""

    name: str
    train: list[Piece]
    valid: list[Piece]
    test: list[Piece]
    sha256: str


def load(name: str, folder: str | os.PathLike[str] | None = None) -> Pieces:
    """A data set by name, from ``folder`` or from the folder that ``NOISIN_DATA`` names."""
    if name not in FILES:
        raise InvalidValue(f"music: expected {' or '.join(FILES)}, got {name!r:.60}.")
    file, expected = FILES[name]
    path = _find(file, folder or os.environ.get("NOISIN_DATA"))
    try:
        content = read_regular(path)
    except OSError as error:
        raise Unavailable(f"{path}: cannot be read: {error.strerror}.") from None
    sha256 = hashlib.sha256(content).hexdigest()
    if sha256 != expected:
        raise InvalidData(
            f"{path}: is not the {name} data set: its sha256 is {sha256}, expected {expected}."
        )
    train, valid, test = _pieces(content)
    return Pieces(name, train, valid, test, sha256)


def _find(file: str, folder: str | os.PathLike[str] | None) -> Path:
    places = [] if folder is None else [Path(folder) / FOLDER / file, Path(folder) / file]
    for path in places:
        if path.is_file():
            return path
    searched = " or ".join(map(str, places)) or "NOISIN_DATA is not set"
    raise Unavailable(
        f"music: {file} was not found ({searched}). Set NOISIN_DATA to the folder that contains "
        f"{FOLDER}/{file}, or name it with --data.folder."
    )


def _pieces(content: bytes) -> list[list[Piece]]:
    try:
        from scipy.io import loadmat
    except ImportError:
        raise Unavailable(
            "music: reading .mat files needs scipy. Install it: pip install 'noisin[music]'."
        ) from None
    found: dict[str, Any] = loadmat(io.BytesIO(content))
    return [[np.asarray(p, np.uint8) for p in found[f"{split}data"][0]] for split in SPLITS]
