"""The questions of the plan: what the paper claims, and the sweep whose runs decide about it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from noisin.experiments.evidence import rules
from noisin.experiments.evidence.arms import arms_of, missing
from noisin.experiments.evidence.rules import Answer, Arms
from noisin.experiments.records import Run

SEEDS = tuple(range(1121, 1129))
SEEDS_OF_SIZES = (1121, 1122)


@dataclass(frozen=True)
class Question:
    """A question of the plan.

    Attributes:
        letter: of the plan.
        words: the question.
        claim: what the paper says, and where.
        arms: the names of the points of its sweep.
        rule: decides, once all runs are there.
        seeds: of the runs of each arm.
        borrowed: arms of question A that it needs too.
    """

    letter: str
    words: str
    claim: str
    arms: tuple[str, ...]
    rule: Callable[[Arms], Answer]
    seeds: tuple[int, ...] = SEEDS
    borrowed: tuple[str, ...] = ()

    @property
    def sweep(self) -> str:
        """The name of its sweep, and of the folder of its final runs."""
        return f"claim-{self.letter.lower()}"

    def answer(self, runs: Sequence[Run]) -> Answer:
        """What the final runs among some runs show."""
        arms, lent = arms_of(runs, self.sweep), arms_of(runs, QUESTIONS[0].sweep)
        arms |= {name: lent[name] for name in self.borrowed if name in lent}
        lacking = missing(arms, (*self.borrowed, *self.arms), self.seeds)
        return Answer("open", arms, lacking=lacking) if lacking else self.rule(arms)


QUESTIONS = (
    Question(
        "A",
        "Does noise beat dropout?",
        "NOISIN improves over dropout (abstract, section 5).",
        (rules.WEAK, *rules.RIVALS),
        rules.beats_dropout,
    ),
    Question(
        "B",
        "Does only the variance of the noise matter?",
        "The only property that matters with these distributions is the variance (section 5).",
        tuple(rules.law_arm(law, std) for std in rules.STDS_OF_LAWS for law in rules.LAWS),
        rules.only_variance_matters,
    ),
    Question(
        "C",
        "Does unbiasedness matter?",
        "Unbiased noise preserves the underlying RNN on average (title, section 3).",
        rules.UNLIKE_WEAK,
        rules.unbiasedness_matters,
        borrowed=(rules.WEAK,),
    ),
    Question(
        "D",
        "Is the theorem the mechanism?",
        "NOISIN is an explicit regularizer, with the penalty of section 4.",
        (rules.SAME_STD, *rules.LIKE_STRONG),
        rules.theorem_is_the_mechanism,
        borrowed=(rules.STRONG,),
    ),
    Question(
        "E",
        "Does a larger network want more noise?",
        "Larger networks overfit and require regularization (section 5).",
        tuple(rules.size_arm(*size, std) for size in rules.SIZES for std in rules.STDS),
        rules.larger_wants_more,
        SEEDS_OF_SIZES,
    ),
)
