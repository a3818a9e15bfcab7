"""Piano rolls as standard MIDI files. Nothing here needs torch."""

from __future__ import annotations

import struct

import numpy as np

from noisin.data.music import NOTES, Piece
from noisin.errors import InvalidValue

LOWEST = 21  # the MIDI number of the first of the 88 notes, A0
FRAMES_PER_QUARTER = {"jsb": 1}  # the frames of the other data sets are eighth notes
_TICKS, _VELOCITY = 480, 80
_ON, _OFF, _META = 0x90, 0x80, 0xFF


def to_midi(piece: Piece, frames_per_quarter: int = 2, bpm: int = 100) -> bytes:
    """The bytes of a MIDI file, format 0. A note that sounds in successive frames is held.

    Args:
        piece: ``(frames, 88)``, 1 where a note sounds.
        frames_per_quarter: how many frames are a quarter note.
        bpm: quarter notes per minute.
    """
    piece = np.asarray(piece)
    if piece.ndim != 2 or piece.shape[1] != NOTES:
        raise InvalidValue(
            f"to_midi: expected frames of {NOTES} notes, (frames, {NOTES}), got {piece.shape}."
        )
    silence = np.zeros((1, NOTES), np.int8)
    changes = np.diff(np.concatenate([silence, piece != 0, silence]).astype(np.int8), axis=0)
    ticks, last, track = _TICKS // frames_per_quarter, 0, bytearray()
    tempo = round(60e6 / bpm)  # microseconds per quarter note
    track += bytes([0, _META, 0x51, 3]) + tempo.to_bytes(3, "big")
    for frame, change in enumerate(changes):
        # Notes end before others begin, so that a note can be repeated.
        for status, sign in ((_OFF, -1), (_ON, 1)):
            for note in np.flatnonzero(change == sign):
                track += _variable(frame * ticks - last)
                track += bytes([status, LOWEST + int(note), _VELOCITY if status == _ON else 0])
                last = frame * ticks
    track += _variable(len(piece) * ticks - last) + bytes([_META, 0x2F, 0])
    head = struct.pack(">4sIHHH", b"MThd", 6, 0, 1, _TICKS)
    return head + struct.pack(">4sI", b"MTrk", len(track)) + bytes(track)


def _variable(number: int) -> bytes:
    """A number in groups of seven bits, the highest first; all but the last have the top bit.

    >>> _variable(0).hex(), _variable(127).hex(), _variable(480).hex()
    ('00', '7f', '8360')
    """
    groups = [number & 0x7F]
    while number := number >> 7:
        groups.append(number & 0x7F | 0x80)
    return bytes(reversed(groups))
