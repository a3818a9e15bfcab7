"""MIDI files, by a reader that follows the standard."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from noisin.data.midi import LOWEST, to_midi
from noisin.data.music import NOTES
from noisin.errors import InvalidValue


def variable(data: bytes, place: int) -> tuple[int, int]:
    number = 0
    while True:
        number = number << 7 | data[place] & 0x7F
        place += 1
        if not data[place - 1] & 0x80:
            return number, place


def parse(data: bytes, frames_per_quarter: int) -> tuple[np.ndarray, float]:
    """The piano roll and the quarter notes per minute of a file of format 0."""
    head, size, kind, tracks, division = struct.unpack(">4sIHHH", data[:14])
    assert (head, size, kind, tracks) == (b"MThd", 6, 0, 1)
    name, length = struct.unpack(">4sI", data[14:22])
    assert name == b"MTrk"
    assert len(data) == 22 + length
    place, time, bpm, sounding = 22, 0, 0.0, dict[int, int]()
    notes: list[tuple[int, int, int]] = []
    while True:
        delta, place = variable(data, place)
        time += delta
        status = data[place]
        if status == 0xFF:
            what, (size, start) = data[place + 1], variable(data, place + 2)
            content, place = data[start : start + size], start + size
            if what == 0x51:
                bpm = 60e6 / int.from_bytes(content, "big")
            if what == 0x2F:
                break
            continue
        note, velocity = data[place + 1 : place + 3]
        place += 3
        if status == 0x90:
            assert velocity > 0
            assert note not in sounding
            sounding[note] = time
        else:
            assert status == 0x80
            notes.append((note, sounding.pop(note), time))
    assert not sounding, "every note ends"
    assert place == len(data)
    ticks = division // frames_per_quarter
    roll = np.zeros((time // ticks, NOTES), np.uint8)
    for note, start, stop in notes:
        assert start % ticks == stop % ticks == 0
        roll[start // ticks : stop // ticks, note - LOWEST] = 1
    return roll, bpm


@pytest.mark.parametrize("frames_per_quarter", [1, 2, 4])
@pytest.mark.parametrize("density", [0.0, 0.05, 0.6])
def test_a_file_is_the_piece(density: float, frames_per_quarter: int) -> None:
    random = np.random.RandomState(0)
    piece = (random.random_sample((70, NOTES)) < density).astype(np.uint8)
    roll, bpm = parse(to_midi(piece, frames_per_quarter, bpm=90), frames_per_quarter)
    assert np.array_equal(roll, piece)
    assert bpm == pytest.approx(90, rel=1e-5)


def test_a_held_note_is_one_note() -> None:
    piece = np.zeros((3, NOTES), np.uint8)
    piece[:, 39] = 1  # middle C
    data = to_midi(piece)
    assert data.count(bytes([0x90, 60])) == 1
    assert data.count(bytes([0x80, 60])) == 1


def test_what_is_no_piece() -> None:
    with pytest.raises(InvalidValue, match=r"\(frames, 88\), got \(3, 5\)"):
        to_midi(np.zeros((3, 5), np.uint8))
