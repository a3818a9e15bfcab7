"""What is tuned: settings in which the strength of the noise, or of something else, is open."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from noisin._util.settings import flat, merge, nest
from noisin.errors import InvalidValue
from noisin.experiments import presets
from noisin.training.config import RunConfig
from noisin.training.config.section import InvalidConfig
from noisin.tuning.plan import LRS

STRENGTHS = ("noise.std", "noise.gamma")
RATES = ("input", "between", "output")
CUT_SHORT = ("tokens", "minutes")  # limits that end a run in the middle of an epoch


@dataclass(frozen=True)
class Tunable:
    """Settings with an open std.

    Attributes:
        name: that of the preset, file or run.
        settings: all others.
        what: what has this std: ``"noise"``; ``"dropout"``, whose rate p has the std ``sqrt(p / (1
            - p))``; or rates by their names, such as ``"model.zoneout.p_h"``. Several, separated by
            commas, are tuned together.
    """

    name: str
    settings: Mapping[str, Any]
    what: str = "noise"

    @classmethod
    def of(cls, preset: str, flags: Mapping[str, Any], what: str) -> Tunable:
        """The settings of a preset, a file or a run, with flags over them."""
        chosen = presets.base(preset)
        if chosen.variants:
            runs = ", ".join(chosen.variants)
            raise InvalidValue(
                f"{chosen.name}: has several runs to compare ({runs}), and tune takes one. Name a "
                f"preset of a single run, such as manual."
            )
        found = cls(chosen.name, merge(chosen.settings, flags), what)
        found._check_rates()
        found._refuse_open(flags)
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
        open_ = dict.fromkeys(self.rates, dropout_rate(std))
        return nest({"noise.std": std, **open_} if "noise" in self.what.split(",") else open_)

    @cached_property
    def rates(self) -> list[str]:
        """The names of the rates that are open."""
        names = [name for name in self.what.split(",") if name != "noise"]
        return [rate for n in names for rate in (self._dropout if n == "dropout" else [n])]

    @property
    def _dropout(self) -> list[str]:
        """The rates of dropout that the settings have, or all three if they have none."""
        given = RunConfig.parse(self.settings).model.dropout
        chosen = [name for name in RATES if getattr(given, name)] or RATES
        return [f"model.dropout.{name}" for name in chosen]

    def _check_rates(self) -> None:
        names = self.what.split(",")
        for name in names:
            if name not in ("noise", "dropout") and not self._is_rate(name):
                raise InvalidValue(
                    f"--what must be noise, dropout, or rates by their names, such as "
                    f"model.zoneout.p_h or noise,model.weight_drop.p, got {name!r}."
                )
        if len(opened := [*self.rates, *(n for n in names if n == "noise")]) > len({*opened}):
            raise InvalidValue(f"--what must name nothing twice, got {self.what}.")

    def _refuse_open(self, flags: Mapping[str, Any]) -> None:
        """Raise for flags of what is tuned; those of dropout say which of its rates are."""
        names = self.what.split(",")
        open_ = {*STRENGTHS, *names} if "noise" in names else {*names}
        for name in flat(flags):
            if name in open_:
                raise InvalidValue(
                    f"--{name} is what tune chooses. Leave it out, or name the std in the middle "
                    f"of those that are tried: --around 0.5."
                )

    def _is_rate(self, name: str) -> bool:
        return name.startswith("model.") and self._takes(name, 0.5) and not self._takes(name, 1.0)

    def _takes(self, name: str, value: float) -> bool:
        try:
            RunConfig.parse(merge(self.settings, nest({name: value})))
        except (InvalidConfig, InvalidValue):
            return False
        return True

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
