"""Tags: what to know about a run or a point before comparing it, in a few words each."""

from __future__ import annotations

from collections import Counter
from typing import Literal, NamedTuple

from noisin.experiments.group import PointGroup
from noisin.experiments.records import Run

NOT_COMPLETE, DIVERGED, STILL_FALLING = "not complete", "diverged", "still falling"
REPEATED, NOT_SCORED = "repeated", "test not scored"
OPEN = (NOT_COMPLETE, DIVERGED, "pruned", "failed")
Kind = Literal["good", "care", "bad", "plain"]
KINDS: dict[str, Kind] = {DIVERGED: "bad", "failed": "bad", STILL_FALLING: "care"}


MEANINGS = {
    NOT_COMPLETE: "stopped or still running. Its scores are those so far, and count only if no "
    "seed is complete.",
    STILL_FALLING: "the best epoch is the last one: more epochs could have been better.",
    DIVERGED: "the loss became non-finite.",
    "pruned": "a sweep ended it, because others were better after as many epochs.",
    "failed": "a sweep could not continue it; the same command tries again.",
    NOT_SCORED: "the averaged weights are better on valid, and noisin 0.1 did not score them on "
    "test.",
    REPEATED: "another run of the same settings and seed was trained as long and counts instead.",
}


class Tag(NamedTuple):
    """A few words, and how important they are."""

    words: str
    kind: Kind


def state(run: Run) -> str:
    """Complete, or how it ended otherwise, or not complete: stopped or still running."""
    return "complete" if run.complete else (run.end or NOT_COMPLETE)


def of_run(run: Run, point: PointGroup) -> list[Tag]:
    """The tags of a run."""
    words = [] if run.complete else [state(run)]
    if run.complete and run.unfinished:
        words.append(STILL_FALLING)
    if run.not_scored:
        words.append(NOT_SCORED)
    if run in point.others:
        words.append(REPEATED)
    return [_tag(some) for some in words]


def of_point(point: PointGroup) -> list[Tag]:
    """The tags of a point, with the number of its runs unless it is all of them."""
    counts = Counter(state(run) for run in point.runs)
    counts[STILL_FALLING] = sum(run.complete and run.unfinished for run in point.runs)
    counts[NOT_SCORED] = sum(run.not_scored for run in point.runs)
    counts[REPEATED] = len(point.others)
    tags = []
    for words in (*OPEN, STILL_FALLING, NOT_SCORED, REPEATED):
        n = counts[words]
        if n:
            tags.append(_tag(words, "" if n == len(point.runs) else f"{n} "))
    return tags


def _tag(words: str, before: str = "") -> Tag:
    return Tag(before + words, KINDS.get(words, "plain"))
