"""What is tuned: settings in which the strength of the noise, or of dropout, is left open."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from noisin._util.settings import merge, nest
from noisin.errors import InvalidValue
from noisin.experiments import presets
from noisin.training.config import RunConfig
from noisin.training.config.section import InvalidConfig
from noisin.tuning.plan import LRS

What = Literal["noise", "dropout"]
RATES = ("input", "between", "output")
CUT_SHORT = ("tokens", "minutes")  # limits that end a run in the middle of an epoch


@dataclass(frozen=True)
class Tunable:
    """Settings with an open std.

    Attributes:
        name: that of the preset or file.
        settings: all others.
        what: ``"noise"``, or ``"dropout"``, whose rate p has the std ``sqrt(p / (1 - p))``.
    """

    name: str
    settings: Mapping[str, Any]
    what: What = "noise"

    @classmethod
    def of(cls, preset: str, flags: Mapping[str, Any], what: What) -> Tunable:
        """The settings of a preset or a file, with flags over them."""
        chosen = presets.read(preset)
        if chosen.variants:
            runs = ", ".join(chosen.variants)
            raise InvalidValue(
                f"{chosen.name}: has several runs to compare ({runs}), and tune takes one. Name a "
                f"preset of a single run, such as manual."
            )
        found = cls(chosen.name, merge(chosen.settings, flags), what)
        for limit in CUT_SHORT:
            if getattr(found.clean.train, limit) is not None:
                raise InvalidValue(
                    f"{chosen.name}: train.{limit} must be left out: tune compares runs of equal "
                    f"numbers of epochs. Use train.epochs, and --budget for all runs together."
                )
        return found

    @cached_property
    def clean(self) -> RunConfig:
        """The settings without noise, or without dropout: at a std of zero."""
        return self.config(0.0)

    @property
    def epochs(self) -> int:
        """The full length of a run."""
        return self.clean.train.epochs

    @property
    def lr(self) -> float | None:
        """The learning rate to try others beside; None if one of them is not valid."""
        try:
            for factor in LRS:
                self.config(0.0, factor * self.clean.train.lr)
        except (InvalidConfig, InvalidValue):
            return None
        return self.clean.train.lr

    def config(self, std: float, lr: float | None = None, epochs: int | None = None) -> RunConfig:
        """The settings of a run; the learning rate and the epochs as given unless named."""
        given = {"train.lr": lr, "train.epochs": epochs}
        chosen = nest({name: value for name, value in given.items() if value is not None})
        return RunConfig.parse(merge(merge(self.settings, self._strength(std)), chosen))

    def _strength(self, std: float) -> dict[str, Any]:
        if self.what == "noise":
            return {"noise": {"std": std}}
        return {"model": {"dropout": dict.fromkeys(self._rates, dropout_rate(std))}}

    @cached_property
    def _rates(self) -> list[str]:
        """The rates that the settings have, or all three if they have none."""
        given = RunConfig.parse(self.settings).model.dropout
        return [name for name in RATES if getattr(given, name)] or list(RATES)

    @property
    def mark(self) -> str:
        """Identifies the tuning: a hash of the settings and of what is open."""
        return hashlib.sha256(f"{self.what} {self.clean.hash()}".encode()).hexdigest()[:8]


def dropout_rate(std: float) -> float:
    """The rate p of dropout whose std is ``sqrt(p / (1 - p))``, to four digits.

    >>> dropout_rate(1.0), dropout_rate(0.5), dropout_rate(0.0)
    (0.5, 0.2, 0.0)
    """
    return float(f"{std**2 / (1 + std**2):.4g}")
