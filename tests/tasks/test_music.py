"""Music: whole pieces, padding that is never scored, and the real data sets' facts."""

from __future__ import annotations

import math
import os
from pathlib import Path

import numpy as np
import pytest
import torch

from noisin.data import music
from noisin.data.music import NOTES, Pieces
from noisin.errors import InvalidData, InvalidValue, Unavailable
from noisin.tasks import Music

LENGTHS = (5, 3, 9, 1, 4)


def pieces() -> Pieces:
    random = np.random.RandomState(0)

    def some(*lengths: int) -> list[music.Piece]:
        return [(random.random_sample((n, NOTES)) < 0.1).astype(np.uint8) for n in lengths]

    return Pieces("toy", some(*LENGTHS), some(2, 6), some(7), "sha")


def test_every_frame_is_scored_once_and_padding_never() -> None:
    task = Music(pieces(), batch_size=2, eval_batch_size=3)
    for split, lengths in (("train", LENGTHS), ("train_clean", LENGTHS), ("valid", (2, 6))):
        batches = list(task.batches(split))
        assert sum(batch.count for batch in batches) == sum(lengths)
        for batch in batches:
            assert not batch.carries
            assert batch.scored is not None
            assert batch.target[~batch.scored].sum() == 0, "padding is silence"
            assert (batch.scored.long().diff(dim=0) <= 0).all(), "and comes last"


def test_a_frame_is_predicted_from_the_one_before() -> None:
    task = Music(pieces(), eval_batch_size=1)
    for batch, piece in zip(task.batches("valid"), task.pieces.valid, strict=True):
        frames = torch.from_numpy(piece).float()
        assert torch.equal(batch.target[:, 0], frames)
        assert torch.equal(batch.x[1:, 0], frames[:-1])
        assert batch.x[0].sum() == 0, "the first from silence"


def test_an_epoch_is_every_piece_once_in_an_order_of_its_own() -> None:
    task = Music(pieces(), batch_size=2, seed=7)

    def order(epoch: int, start: int = 0) -> list[int]:
        return [
            n
            for batch in task.batches("train", epoch=epoch, start=start)
            for n in batch.scored.sum(0).tolist()
        ]

    assert sorted(order(0)) == sorted(LENGTHS)
    assert order(0) == order(0)
    assert len({tuple(order(epoch)) for epoch in range(6)}) > 2
    assert order(3, start=2) == order(3)[2:], "an epoch continues where a batch has stopped"
    stops = [batch.stop for batch in task.batches("train")]
    assert stops == [2, 4, 5]
    assert stops[-1] == task.extent


def test_the_bias_is_that_of_the_notes_frequencies() -> None:
    task = Music(pieces())
    frames = np.concatenate(task.pieces.train)
    bias = task.observation.bias
    assert bias is not None
    p = (frames.sum(0) + 0.5) / (len(frames) + 1)
    assert bias == pytest.approx(np.log(p / (1 - p)).tolist())
    assert all(map(math.isfinite, bias))


def test_what_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOISIN_DATA", raising=False)
    with pytest.raises(Unavailable, match=r"JSB_Chorales.mat was not found \(NOISIN_DATA is not"):
        music.load("jsb")
    with pytest.raises(Unavailable, match=r"polyphonic-music/JSB_Chorales.mat or .* --data.folder"):
        music.load("jsb", tmp_path)
    (tmp_path / "JSB_Chorales.mat").write_bytes(b"not it")
    with pytest.raises(InvalidData, match="is not the jsb data set: its sha256 is"):
        music.load("jsb", tmp_path)
    with pytest.raises(InvalidValue, match="expected jsb or musedata"):
        music.load("bach")


@pytest.mark.skipif("NOISIN_DATA" not in os.environ, reason="NOISIN_DATA is not set")
@pytest.mark.parametrize(
    ("name", "counts", "frames"),
    [
        ("jsb", (229, 76, 77), (13_807, 4_602, 4_725)),
        ("musedata", (524, 135, 124), (245_202, 82_755, 64_339)),
        ("nottingham", (694, 173, 170), (176_561, 45_513, 44_463)),
        ("piano-midi", (87, 12, 25), (75_911, 8_540, 19_036)),
    ],
)
def test_the_data_sets(name: str, counts: tuple[int, ...], frames: tuple[int, ...]) -> None:
    found = music.load(name)
    splits = (found.train, found.valid, found.test)
    assert tuple(map(len, splits)) == counts
    assert tuple(sum(map(len, split)) for split in splits) == frames
    assert {piece.shape[1] for split in splits for piece in split} == {NOTES}


def markov_nats(train: list[music.Piece], test: list[music.Piece]) -> float:
    """The per-note two-state Markov chain, fitted by counting; every frame is scored."""
    silence = np.zeros((1, NOTES), np.uint8)
    count = np.full((2, 2, NOTES), 0.5)
    for piece in train:
        before = np.concatenate([silence, piece[:-1]])
        for a in (0, 1):
            for b in (0, 1):
                count[a, b] += ((before == a) & (piece == b)).sum(0)
    log_p = np.log(count / count.sum(1, keepdims=True))
    total = 0.0
    for piece in test:
        before = np.concatenate([silence, piece[:-1]])
        total -= log_p[before, piece, np.arange(NOTES)].sum()
    return float(total / sum(map(len, test)))


@pytest.mark.skipif("NOISIN_DATA" not in os.environ, reason="NOISIN_DATA is not set")
@pytest.mark.parametrize(
    ("name", "nats"),
    [("jsb", 10.49), ("musedata", 8.56), ("nottingham", 5.15), ("piano-midi", 8.27)],
)
def test_the_anchor_that_a_trained_model_must_beat(name: str, nats: float) -> None:
    found = music.load(name)
    assert markov_nats(found.train, found.test) == pytest.approx(nats, abs=0.02)
