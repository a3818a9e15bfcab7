"""The built-in text: its size, its splits, and that it is the same each time."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from pydoc_data.topics import topics

import numpy as np
import pytest

from noisin import data
from noisin.data import manual

DOCS = Path(__file__).parents[2] / "docs" / "data.md"
# The topics of CPython 3.11.7, of which docs/data.md speaks.
KNOWN = "6061bdb5e47e53fb60fbb31038afe373b0674dc91e89004a8b91fcdcc4971890"


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> data.Corpus:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NOISIN_CACHE", str(tmp_path_factory.mktemp("cache")))
        return data.load("manual")


def perplexity(ids: np.ndarray, counts: np.ndarray) -> float:
    return float(np.exp(-np.log(counts[ids] / counts.sum()).mean()))


def test_sizes(corpus: data.Corpus) -> None:
    """For any Python; the figures of 3.11.7 are below."""
    sizes = np.array([len(corpus.train), len(corpus.valid), len(corpus.test)])
    assert 70_000 < sizes.sum() < 140_000
    np.testing.assert_allclose(sizes / sizes.sum(), list(manual.SHARES.values()), atol=0.01)
    assert 1_300 < len(corpus.vocab) < 2_300
    assert corpus.source == f"pydoc_data.topics of CPython {sys.version.split()[0]}"


def test_what_the_docs_say(corpus: data.Corpus) -> None:
    digest = hashlib.sha256(repr(sorted(topics.items())).encode()).hexdigest()
    if digest != KNOWN:
        pytest.skip(f"docs/data.md speaks of the topics of CPython 3.11.7, not of {corpus.source}")
    facts = data.describe(corpus)
    assert facts.tokens == {"train": 77_579, "valid": 9_022, "test": 7_999}
    assert facts.words == 1_658
    page = DOCS.read_text()
    stated = [*facts.tokens.values(), facts.words]
    for figure in [f"{n:,}" for n in stated] + [
        f"{100 * share:.1f} %" for share in (*facts.overlap.values(), *facts.unknown.values())
    ]:
        assert figure in page, figure
    assert facts.sha256 in page


def test_few_12_grams_stand_in_train_too(corpus: data.Corpus) -> None:
    """For any Python, a few in a hundred."""
    train = grams(corpus.train)
    for split in (corpus.valid, corpus.test):
        found = [gram in train for gram in grams(split).elements()]
        share = sum(found) / len(found)
        assert share < 0.06
        assert data.overlap(corpus.train, split) == pytest.approx(share, abs=1e-12)


def grams(ids: np.ndarray) -> Counter[tuple[int, ...]]:
    listed = ids.tolist()
    return Counter(zip(*(listed[i:] for i in range(12)), strict=False))


def test_the_splits_are_alike(corpus: data.Corpus) -> None:
    """A unigram model of train finds valid and test about as hard as it finds train."""
    counts = np.bincount(corpus.train, minlength=len(corpus.vocab)).astype(float)
    train, valid, test = (
        perplexity(ids, counts) for ids in (corpus.train, corpus.valid, corpus.test)
    )
    assert valid == pytest.approx(train, rel=0.15)
    assert test == pytest.approx(valid, rel=0.15)


def test_the_vocabulary_is_that_of_train(corpus: data.Corpus) -> None:
    """A word is rare by its count in train alone: nothing of valid and test is used."""
    counts = np.bincount(corpus.train, minlength=len(corpus.vocab))
    unk, eos = corpus.vocab.id("<unk>"), corpus.vocab.id("<eos>")
    others = np.delete(counts, [unk, eos])
    assert others.min() >= manual.RARE
    assert counts[unk] > 0


def test_no_paragraph_twice() -> None:
    assert len(list(manual.paragraphs({"a": "x y\n\nz", "b": "z\n\nx\n y\n\nw"}))) == 3
    everything = [" ".join(p) for p in manual.paragraphs(topics)]
    assert len(everything) == len(set(everything))


def test_every_paragraph_is_dealt_once_and_blocks_stay_together() -> None:
    listed = list(manual.paragraphs(topics))
    dealt = manual.deal(manual.blocks(listed))
    assert sorted(p for part in dealt.values() for p in part) == sorted(listed)
    place = {paragraph: i for i, paragraph in enumerate(listed)}
    for part in dealt.values():
        places = [place[paragraph] for paragraph in part]
        for start in range(0, len(places), manual.PARAGRAPHS):
            block = places[start : start + manual.PARAGRAPHS]
            assert block[0] % manual.PARAGRAPHS == 0
            assert block == list(range(block[0], block[0] + len(block)))


def test_lines_and_paragraphs_are_kept() -> None:
    topic = "The cat\nsat.\n\nThe cat\nsat, The\n\n\n   cat sat.\n"
    assert manual.render({"a": topic})["train"] == (
        "The cat\nsat <unk>\n\nThe cat\nsat <unk> The\n\ncat sat <unk>\n\n"
    )


def test_the_same_in_any_process(corpus: data.Corpus, tmp_path: Path) -> None:
    """Neither the order of hashing nor a cache plays a part."""
    code = "from noisin import data; c = data.load(); print(c.sha256, c.vocab.sha256)"
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "NOISIN_CACHE": str(tmp_path / seed)}
        command = [sys.executable, "-c", code]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        assert run.stdout.split() == [corpus.sha256, corpus.vocab.sha256]
