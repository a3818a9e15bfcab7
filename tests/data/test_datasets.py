"""Corpora by name and by path; the public ones count for count."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from noisin.data import NAMES, load
from noisin.data.datasets import DATASETS, find_files
from noisin.errors import InvalidData, InvalidType, InvalidValue, Unavailable
from tests.data.conftest import write_folder

COUNTS = {
    "ptb": ((929_589, 73_760, 82_430), 10_000),
    "wikitext-2": ((2_088_628, 217_646, 245_569), 33_278),
}


@pytest.mark.parametrize("name", COUNTS)
def test_counts(name: str, data: Path) -> None:
    corpus = load(name, data)
    sizes, words = COUNTS[name]
    assert (len(corpus.train), len(corpus.valid), len(corpus.test)) == sizes
    assert len(corpus.vocab) == words
    assert max(split.max() for split in (corpus.train, corpus.valid, corpus.test)) == words - 1
    assert corpus.vocab.id("<unk>") != corpus.vocab.id("<eos>")


def test_ids_against_the_plain_rule(data: Path) -> None:
    corpus = load("ptb", data)
    words: list[str] = []
    for split in ("train", "valid", "test"):
        path = data / "penn-treebank" / f"ptb.{split}.txt"
        lines = path.read_text(encoding="utf-8").removesuffix("\n").split("\n")
        plain = [word for line in lines for word in [*line.split(), "<eos>"]]
        assert corpus.vocab.decode(getattr(corpus, split)) == plain
        words += plain
    assert corpus.vocab.words == tuple(dict.fromkeys(words)), "in order of first occurrence"


def test_the_environment_names_the_folder(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOISIN_DATA", str(data))
    assert load("ptb").source == str(data / "penn-treebank")


@pytest.mark.parametrize("style", ["ptb.{}.txt", "{}.txt"])
@pytest.mark.parametrize("sub", ["", "ptb", "penn-treebank"])
def test_both_styles_of_names(style: str, sub: str, data: Path, tmp_path: Path) -> None:
    (tmp_path / sub).mkdir(exist_ok=True)
    for split in ("train", "valid", "test"):
        original = data / "penn-treebank" / f"ptb.{split}.txt"
        (tmp_path / sub / style.format(split)).symlink_to(original)
    assert load("ptb", tmp_path).sha256 == load("ptb", data).sha256


def test_wrong_hash(data: Path, tmp_path: Path) -> None:
    shutil.copytree(data / "penn-treebank", tmp_path / "ptb")
    path = tmp_path / "ptb" / "ptb.valid.txt"
    path.chmod(0o600)
    path.write_bytes(path.read_bytes() + b" \n")
    message = "ptb.valid.txt: is not the valid text of 'ptb'.*expected c9fe6985.*by path"
    with pytest.raises(InvalidData, match=message):
        load("ptb", tmp_path)
    assert len(load(tmp_path / "ptb").valid) == 73_761


@pytest.mark.parametrize(
    "names",
    [
        ("train.txt", "valid.txt", "test.txt"),
        ("ptb.train.txt", "ptb.valid.txt", "ptb.test.txt"),
        ("wiki.train.tokens", "wiki.valid.tokens", "wiki.test.tokens"),
        ("wiki.train.raw", "wiki.val.raw", "wiki.test.raw"),
        ("my_train.txt", "my_dev.txt", "my_test.txt"),
    ],
)
def test_any_folder(names: tuple[str, ...], tmp_path: Path) -> None:
    for name, text in zip(names, ("a b\nc\n", "b\n", "d d\n"), strict=True):
        (tmp_path / name).write_text(text)
    (tmp_path / "README.txt").write_text("neither")
    (tmp_path / "train.json").write_text("nor")
    corpus = load(tmp_path)
    assert corpus.name == tmp_path.name
    assert corpus.vocab.words == ("a", "b", "<eos>", "c", "d")
    assert [s.tolist() for s in (corpus.train, corpus.valid, corpus.test)] == [
        [0, 1, 2, 3, 2],
        [1, 2],
        [4, 4, 2],
    ]


def test_one_file(tmp_path: Path) -> None:
    path = tmp_path / "book.txt"
    path.write_text("".join(f"line {i}\n" for i in range(10, 60)))
    corpus = load(str(path))
    assert corpus.name == "book"
    assert [len(s) for s in (corpus.train, corpus.valid, corpus.test)] == [123, 15, 12]
    read = [w for s in (corpus.train, corpus.valid, corpus.test) for w in corpus.vocab.decode(s)]
    assert " ".join(read).replace(" <eos>", "\n").replace("\n ", "\n").strip() + "\n" == (
        path.read_text()
    )


def test_a_missing_split(folder: Path) -> None:
    (folder / "valid.txt").unlink()
    with pytest.raises(Unavailable, match="has no valid file. Expected three files"):
        load(folder)


def test_a_split_twice(folder: Path) -> None:
    (folder / "small.train.txt").write_text("a")
    with pytest.raises(InvalidValue, match="two train files, small.train.txt and train.txt"):
        load(folder)


def test_names_that_are_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unavailable, match="no such corpus.*Did you mean 'ptb'"):
        load("ptbb")
    with pytest.raises(Unavailable, match="Expected manual, ptb, wikitext-2, or the path"):
        load("/no/such/place")
    with pytest.raises(Unavailable, match="is not a folder. Expected one with 'ptb'"):
        load("ptb", "/no/such/place")
    with pytest.raises(Unavailable, match="does not contain 'ptb'. Expected train, valid and test"):
        load("ptb", tmp_path)
    monkeypatch.setenv("NOISIN_DATA", "/no/such/place")
    with pytest.raises(Unavailable, match="is not a folder. Expected one with 'ptb'"):
        load("ptb")
    with pytest.raises(Unavailable, match="cannot be read: File name too long"):
        load("x" * 5000)
    with pytest.raises(Unavailable, match="cannot be read: File name too long"):
        load("ptb", "x" * 5000)
    with pytest.raises(InvalidType, match="expected the name or path of a corpus, got 3"):
        load(3)


def test_a_folder_for_what_is_not_looked_for(folder: Path) -> None:
    """Otherwise another text would be loaded than the one that was named."""
    for name in ("manual", "some/where.txt", folder):
        with pytest.raises(InvalidValue, match=r"ptb or wikitext-2 can be loaded.*as the name"):
            load(name, folder)


def test_part_of_a_data_set(folder: Path) -> None:
    (folder / "test.txt").unlink()
    with pytest.raises(Unavailable, match="does not contain 'ptb'"):
        load("ptb", folder)


def test_a_folder_that_holds_another_corpus(folder: Path) -> None:
    with pytest.raises(InvalidData, match="is not the train text of 'wikitext-2'"):
        load("wikitext-2", folder)


def test_the_table_of_data_sets() -> None:
    assert set(NAMES) == {"manual", *COUNTS} == {"manual", *DATASETS}
    for dataset in DATASETS.values():
        assert "{split}" in dataset.url
        assert all(len(sha) == 64 for sha in dataset.sha256.values())


def test_the_pinned_hashes_are_those_of_the_shared_list(data: Path) -> None:
    if not (data / "SHA256SUMS").exists():
        pytest.skip("the data folder has no SHA256SUMS")
    lines = (data / "SHA256SUMS").read_text().splitlines()
    listed = {path: sha for sha, path in map(str.split, lines)}
    for dataset in DATASETS.values():
        for split, path in (dataset.find(data) or {}).items():
            assert listed[str(path.relative_to(data))] == dataset.sha256[split]


def test_other_files_do_not_count(tmp_path: Path) -> None:
    write_folder(tmp_path)
    (tmp_path / "training_notes.txt").write_text("")
    (tmp_path / "latest.txt").write_text("")
    assert {p.name for p in find_files(tmp_path).values()} == {"train.txt", "valid.txt", "test.txt"}
