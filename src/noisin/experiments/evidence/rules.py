"""The rules of decision of the plan: what the arms of a question must show for a claim to hold.

Where runs diverged, a comparison or an effect that a rule needs may not exist. The question is then
not decided, unless the others decide it whatever that one would have been.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from noisin.errors import InvalidValue
from noisin.experiments.evidence.arms import Arm, ArmComparison, compare
from noisin.experiments.evidence.effects import Effect, least_squares, lowest
from noisin.experiments.evidence.shapes import moments
from noisin.experiments.paired import holm
from noisin.training.config import RunConfig

Decision = Literal["holds", "holds in part", "does not hold here", "not decided", "open"]
Arms = Mapping[str, Arm]
LEVEL = 0.05

WEAK, STRONG = "weak", "strong"  # Gaussian: fed back, on all layers; not fed back, on the last
DROPOUTS = ("dropout", "recurrent", "locked", "eight-masks", "zoneout", "weight-drop")
RIVALS = ("none", *DROPOUTS, STRONG, "bernoulli", "both", "additive")

LAWS = (
    *("gaussian", "bernoulli", "gamma", "gumbel", "laplace", "logistic", "beta", "chi-square"),
    *("two-point", "student-t"),
)
STDS_OF_LAWS = (0.4, 0.8)

BIASED = ("mean-0.8", "mean-1.25")
UNLIKE_WEAK = (*BIASED, "rescaled-0.8", "rescaled-1.25", "sequence", "gates")

SAME_STD = "penalty-same-std"
LIKE_STRONG = ("penalty", "output", "samples-4", "samples-16")

STDS = (0.16, 0.25, 0.4, 0.63, 1.0)
WIDTHS = ((64, 1.0), (128, 1.0), (256, 1.0), (512, 1.0))  # units, and how much of the text
TEXTS = ((128, 0.25), (128, 0.5), (128, 1.0))
SIZES = (*WIDTHS, *TEXTS[:-1])


@dataclass(frozen=True)
class Answer:
    """What the runs of a question show.

    Attributes:
        decision: by the rule of the plan; ``open`` until all runs are there.
        arms: the arms of the question.
        comparisons: of pairs of them.
        effects: of numbers on the score, or on the best std, by name.
        lacking: how many runs each arm still needs.
    """

    decision: Decision
    arms: Arms
    comparisons: Sequence[ArmComparison] = ()
    effects: Mapping[str, Effect] = field(default_factory=dict)
    lacking: Mapping[str, int] = field(default_factory=dict)


def beats_dropout(arms: Arms) -> Answer:
    """Weak noise is better than the dropout that is best on valid; in part, than Zaremba's."""
    found = compare(arms, [(rival, WEAK) for rival in RIVALS])
    worse = _arms_with(found, "higher")
    best = min(DROPOUTS, key=lambda name: arms[name].valid)
    if best in worse:
        return Answer("holds", arms, found)
    if not _are_compared(found, {best, "dropout"}):
        return Answer("not decided", arms, found)
    return Answer("holds in part" if "dropout" in worse else "does not hold here", arms, found)


def only_variance_matters(arms: Arms) -> Answer:
    """Skewness and kurtosis have no effect, and every law is equal to Gaussian noise."""
    pairs = [(law_arm(law, std), law_arm(LAWS[0], std)) for std in STDS_OF_LAWS for law in LAWS[1:]]
    found = compare(arms, pairs)
    equal = _all_equal(found, {arm for arm, _ in pairs})
    effects = _effects_of_shape(arms.values())
    if not effects:
        return Answer("not decided" if equal == "holds" else equal, arms, found)
    if min(holm([effects["skewness"].p, effects["kurtosis"].p])) < LEVEL:
        return Answer("does not hold here", arms, found, effects)
    return Answer(equal, arms, found, effects)


def unbiasedness_matters(arms: Arms) -> Answer:
    """Noise whose mean is too low, and noise whose mean is too high, are worse."""
    found = compare(arms, [(other, WEAK) for other in UNLIKE_WEAK])
    if not _are_compared(found, {*BIASED}):
        return Answer("not decided", arms, found)
    worse = _arms_with(found, "higher") & {*BIASED}
    decisions: tuple[Decision, ...] = ("does not hold here", "holds in part", "holds")
    return Answer(decisions[len(worse)], arms, found)


def theorem_is_the_mechanism(arms: Arms) -> Answer:
    """Strong noise, its tuned penalty, dropout of the output, and more samples are equal."""
    found = compare(arms, [(other, STRONG) for other in (SAME_STD, *LIKE_STRONG)])
    return Answer(_all_equal(found, {*LIKE_STRONG}), arms, found)


def larger_wants_more(arms: Arms) -> Answer:
    """The slope of the logarithm of the best std, by that of the width, is above zero."""
    by_width = _slope(arms, WIDTHS, lambda width, _: width)
    by_text = _slope(arms, TEXTS, lambda _, fraction: fraction)
    slopes = {"log std by log width": by_width, "log std by log amount of text": by_text}
    effects = {name: slope for name, slope in slopes.items() if slope is not None}
    if by_width is None:
        return Answer("not decided", arms, effects=effects)
    if by_width.low > 0:
        return Answer("holds", arms, effects=effects)
    decision: Decision = "does not hold here" if by_width.high < 0 else "not decided"
    return Answer(decision, arms, effects=effects)


def law_arm(law: str, std: float) -> str:
    """The name of an arm of the question about laws.

    >>> law_arm("two-point", 0.4)
    'two-point-0.4'
    """
    return f"{law}-{std:g}"


def size_arm(width: int, fraction: float, std: float) -> str:
    """The name of an arm of the question about sizes.

    >>> size_arm(128, 0.5, 0.63)
    'width-128-text-0.5-std-0.63'
    """
    return f"width-{width}-text-{fraction:g}-std-{std:g}"


def _arms_with(found: Iterable[ArmComparison], verdict: str) -> set[str]:
    return {each.arm for each in found if each.verdict == verdict}


def _are_compared(found: Iterable[ArmComparison], arms: Collection[str]) -> bool:
    """Whether some arms are all among those that were compared."""
    return {*arms} <= {each.arm for each in found}


def _all_equal(found: Sequence[ArmComparison], arms: Collection[str]) -> Decision:
    """Whether some arms are all shown to be equal to the one that they are compared with."""
    verdicts = {each.verdict for each in found if each.arm in arms}
    if verdicts & {"lower", "higher"}:
        return "does not hold here"
    shown = verdicts == {"equal"} and _are_compared(found, arms)
    return "holds" if shown else "not decided"


def _effects_of_shape(arms: Iterable[Arm]) -> dict[str, Effect]:
    """Of variance, skewness and kurtosis on log-perplexity on test, with a mean for each seed.

    Empty if the runs that did not diverge do not determine them.
    """
    rows = [
        (seed, score, *_shape(arm.runs[seed].config))
        for arm in arms
        for seed, score in arm.scores("test").items()
    ]
    seeds, scores, *shape = zip(*rows, strict=True) if rows else [()] * 5
    means = [[float(seed == each) for seed in seeds] for each in sorted({*seeds})]
    try:
        found = least_squares(scores, *means, *shape)
    except InvalidValue:
        return {}
    return dict(zip(("variance", "skewness", "kurtosis"), found[-3:], strict=True))


def _shape(config: RunConfig) -> tuple[float, float, float]:
    assert config.noise is not None
    assert config.noise.known_std is not None
    return config.noise.known_std**2, *moments(config.noise)


def _slope(
    arms: Arms, sizes: Iterable[tuple[int, float]], size_of: Callable[[int, float], float]
) -> Effect | None:
    """Of the logarithm of the best std by that of a size, with a point for each seed.

    None if there is a size whose best std is not known.
    """
    x, y = [], []
    for size in sizes:
        best = _best_stds(arms, size)
        if not best:
            return None
        x += [math.log(size_of(*size))] * len(best)
        y += best
    return least_squares(y, [1.0] * len(x), x)[1]


def _best_stds(arms: Arms, size: tuple[int, float]) -> list[float]:
    """The logarithm of the best std on valid, of each seed whose runs determine a parabola."""
    scores = {math.log(std): arms[size_arm(*size, std)].scores("valid") for std in STDS}
    seeds = sorted(set().union(*scores.values()))
    curves = [{std: some[seed] for std, some in scores.items() if seed in some} for seed in seeds]
    return [lowest([*curve], [*curve.values()]) for curve in curves if len(curve) > 2]
