"""The answers as tables: one of all verdicts, and one of the arms of each question."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from noisin.experiments import overview
from noisin.experiments.evidence.arms import Arm, ArmComparison
from noisin.experiments.evidence.effects import Effect
from noisin.experiments.evidence.extras import extras
from noisin.experiments.evidence.questions import QUESTIONS, Question
from noisin.experiments.evidence.rules import Answer
from noisin.experiments.evidence.tuned import tuned_arm
from noisin.experiments.formats import Sheet
from noisin.experiments.paired import Verdict
from noisin.experiments.records import Run
from noisin.experiments.seeds import Mean
from noisin.tasks.unit import PERPLEXITY

NOTHING = "-"
WORDS: Mapping[Verdict, str] = {
    "lower": "better",
    "higher": "worse",
    "equal": "equal within 1 %",
    "not decided": "not decided",
}


def summary(runs: Sequence[Run]) -> Sheet:
    """All questions with their verdicts."""
    heads = ("", "question", "claim", "verdict", "runs to go", "core-hours", "command")
    rows = []
    for question in QUESTIONS:
        answer = question.answer(runs)
        rows.append(
            (
                *(question.letter, question.words, question.claim, answer.decision),
                str(sum(answer.lacking.get(arm, 0) for arm in question.arms)),
                f"{core_hours(runs, question):.1f}",
                f"noisin sweep results/evidence/{question.sweep}.toml",
            )
        )
    return Sheet("Claims tried on the built-in text", heads, tuple(rows), left=(0, 1, 2, 3, 6))


def details(runs: Sequence[Run]) -> list[Sheet]:
    """Tables for each question that is answered: its arms that were compared or that diverged, and
    the effects of its numbers; and one of what else was measured.
    """
    found = []
    for question in QUESTIONS:
        answer = question.answer(runs)
        if answer.comparisons or _diverged(answer):
            found.append(_arms_sheet(question, answer))
        if answer.effects:
            found.append(_effects_sheet(question, answer.effects))
    other = extras(runs)
    return found if other is None else [*found, other]


def _arms_sheet(question: Question, answer: Answer) -> Sheet:
    heads = ("arm", "seeds", "test", "against", "difference (95 %)", "p (Holm)", "verdict", "notes")
    against = {each.against for each in answer.comparisons} | _diverged(answer)
    alone = sorted(against - {each.arm for each in answer.comparisons})
    arms = [answer.arms[name] for name in alone]
    rows = [(*_scores(arm), *[NOTHING] * 4, _notes(arm)) for arm in arms]
    rows += [_row(answer.arms, each) for each in answer.comparisons]
    title = f"{question.letter}. {question.words}"
    return Sheet(title, heads, tuple(rows), left=(0, 3, 6, 7))


def _diverged(answer: Answer) -> set[str]:
    """The arms of which a run diverged, of a question that is answered."""
    if answer.decision == "open":
        return set()
    return {name for name, arm in answer.arms.items() if arm.diverged}


def _row(arms: Mapping[str, Arm], found: ArmComparison) -> tuple[str, ...]:
    arm = arms[found.arm]
    return (
        *_scores(arm),
        found.against,
        overview.difference(found.paired.difference, PERPLEXITY),
        f"{found.p:.2g}",
        WORDS[found.verdict],
        _notes(arm),
    )


def _scores(arm: Arm) -> tuple[str, str, str]:
    tests = [math.exp(score) for score in arm.scores("test").values()]
    return arm.name, str(len(tests)), str(Mean.of(tests)) if tests else NOTHING


def _notes(arm: Arm) -> str:
    return f"{len(arm.diverged)} diverged" if arm.diverged else ""


def _effects_sheet(question: Question, effects: Mapping[str, Effect]) -> Sheet:
    rows = tuple(
        (name, f"{e.value:+.3g} ({e.low:+.3g} to {e.high:+.3g})", f"{e.p:.2g}")
        for name, e in effects.items()
    )
    return Sheet(f"{question.letter}. Effects", ("of", "effect (95 %)", "p"), rows)


def core_hours(runs: Iterable[Run], question: Question) -> float:
    """Of the final runs of a question, and of the runs that tuned its arms."""
    seconds = 0.0
    for run in runs:
        final = run.folder.parent.name == question.sweep
        if run.metrics and (final or tuned_arm(run) in question.arms):
            seconds += (run.metrics[-1]["seconds"] or 0.0) * run.environment.get("threads", 1)
    return seconds / 3600
