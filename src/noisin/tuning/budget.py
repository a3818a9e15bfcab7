"""How much a search may train: epochs, or a time."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from noisin._util import arguments
from noisin._util.wording import shown
from noisin.errors import InvalidValue
from noisin.tuning.plan import TuningPlan


@dataclass(frozen=True)
class Budget:
    """How much may be trained: a number of epochs, or a time in seconds.

    >>> Budget.read("90m"), Budget.read("26epochs")
    (Budget(epochs=None, seconds=5400.0), Budget(epochs=26, seconds=None))
    """

    epochs: int | None = None
    seconds: float | None = None

    @classmethod
    def read(cls, given: int | str) -> Budget:
        """From a number of epochs, or a text such as ``2h``, ``30m``, ``90s`` and ``26epochs``."""
        if not isinstance(given, str):
            return cls(epochs=arguments.whole("tune: budget", given, advice='Or a time, "2h".'))
        found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?(h|m|s|epochs?)", given)
        amount = float(found[1]) if found else 0.0
        if found is None or amount <= 0:
            raise InvalidValue(
                f"tune: the budget must be a time, such as 2h, 30m or 90s, or a number of epochs, "
                f"such as 40epochs, got {shown(given, 60)}."
            )
        if found[2].startswith("epoch"):
            if not amount.is_integer():
                raise InvalidValue(
                    f"tune: the budget must be whole epochs, got {shown(given, 60)}."
                )
            return cls(epochs=int(amount))
        return cls(seconds=amount * {"h": 3600.0, "m": 60.0, "s": 1.0}[found[2]])

    def in_epochs(self, seconds_per_epoch: float) -> int:
        """The number of epochs, given the time of one."""
        if self.epochs is not None:
            return self.epochs
        assert self.seconds is not None
        return math.floor(min(self.seconds / max(seconds_per_epoch, 1e-9), 1e9))


def require_enough(
    epochs: int, least: TuningPlan, given: str, seconds: float | None = None, before: int = 0
) -> None:
    """Raise unless ``epochs`` pay for the cheapest plan.

    Args:
        epochs: the budget.
        least: the cheapest plan.
        given: the budget as the user gave it.
        seconds: the time of an epoch, if the budget was a time.
        before: the epochs that are needed besides the plan.
    """
    need = least.cost + before
    if epochs >= need:
        return
    means = "" if seconds is None else f", which is {epochs} epochs of {seconds:.3g} s,"
    about = "" if seconds is None else f", about {_time(need * seconds)}"
    raise InvalidValue(
        f"tune: a budget of {given}{means} is too small: the least is {need} epochs{about}, with "
        f"{least.counts[0]} stds and runs of {least.rungs[-1]} epochs. Raise it, or make the runs "
        f"shorter."
    )


def _time(seconds: float) -> str:
    """A time as a budget has it, rounded up.

    >>> _time(59.2), _time(3590), _time(3601)
    ('60s', '60m', '61m')
    """
    if seconds < 120:
        return f"{math.ceil(seconds)}s"
    return f"{math.ceil(seconds / 60)}m" if seconds < 7200 else f"{math.ceil(seconds / 360) / 10}h"
