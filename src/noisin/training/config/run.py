"""The settings of a run. The defaults are the paper's recipe; nothing here needs torch.

A config is frozen and complete: the folder of a run contains it as ``config.json``, from which the
run can be repeated.

>>> config = RunConfig(noise=NoiseConfig(family="gaussian", gamma=0.5), seed=7)
>>> config.train.lr, config.noise.gamma
(30.0, 0.5)
>>> NoiseConfig(family="bernoulli", gamma=1.1)
Traceback (most recent call last):
noisin.training.config.section.InvalidConfig: config: noise.Bernoulli: gamma is the keep probability and must lie in (0, 1], got 1.1. To ask for a variance, use Bernoulli.from_variance(1.1).
"""  # noqa: E501 - the message is one line, as its reader sees it

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from noisin._util import arguments
from noisin._util.regular import read_regular
from noisin._util.settings import flat
from noisin._util.wording import shown
from noisin.errors import InvalidType, InvalidValue
from noisin.models.names import HEADS
from noisin.recurrent.names import AFFINE_NAMES
from noisin.training.config.data import DataConfig
from noisin.training.config.hash import ABSENT, dump, effective, sha256
from noisin.training.config.latent import stochastic_problems
from noisin.training.config.model import ModelConfig
from noisin.training.config.noise import NoiseConfig
from noisin.training.config.own import OwnConfig
from noisin.training.config.section import InvalidConfig, Problem, Section, Whole, problems
from noisin.training.config.train import TrainConfig
from noisin.training.reading import LARGEST_FILE, parse_json
from noisin.training.runtime.environment import MOST_THREADS

LARGEST_SEED = 2**32 - 1


class RunConfig(Section):
    """All settings of one run."""

    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    noise: NoiseConfig | None = Field(default=None, description="The noise; off by default.")
    train: TrainConfig = TrainConfig()
    seed: Whole = Field(default=1111, ge=0, le=LARGEST_SEED, description="Of all random draws.")
    threads: Whole | None = Field(
        default=None,
        ge=1,
        le=MOST_THREADS,
        description="Processor threads; by default as many as the model has work for.",
    )
    device: Literal["cpu", "cuda", "mps", "auto"] = Field(
        default="cpu", description="Where to compute; auto takes the first of cuda, mps and cpu."
    )

    own: OwnConfig | None = Field(
        default=None,
        description="What identifies a model and a task that were not built from settings; then "
        "data, model and noise are not used.",
    )

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        found = [*_own_problems(self), *_noise_problems(self), *_task_problems(self)]
        found += [*_linear_problems(self), *stochastic_problems(self)]
        if found:
            raise InvalidConfig(found)
        return self

    @classmethod
    def parse(cls, values: Mapping[str, Any], source: str = "") -> Self:
        """A config from nested values, such as those of a file; error messages name ``source``."""
        if not isinstance(values, Mapping):
            raise InvalidType(
                f"config: expected settings by name, got {values!r:.60}. Pass a dict, such as "
                f"{{'seed': 1111}}."
            )
        try:
            return cls(**{str(key): value for key, value in values.items()})
        except InvalidConfig as error:
            if not source:
                raise
            raise InvalidValue(f"{source}: {error}") from None

    @classmethod
    def from_toml(cls, path: str | Path) -> Self:
        """Read a config from a TOML file. Settings that it leaves out have their defaults."""
        return cls.parse(_read(path, tomllib.loads), str(path))

    @classmethod
    def from_json(cls, path: str | Path) -> Self:
        """Read a config from a JSON file, as written by :meth:`to_json`."""
        return cls.parse(_read(path, parse_json), str(path))

    def to_json(self) -> str:
        """All settings, as JSON; optional ones that are off are left out."""
        return json.dumps(dump(self), indent=2, ensure_ascii=False) + "\n"

    def hash(self, limits: bool = True) -> str:
        """The sha256 of the settings that can change a result, with or without the limits."""
        return sha256(effective(self, limits))

    def differences(self, other: RunConfig) -> list[str]:
        """The settings in which two runs differ: dotted names, with both values."""
        mine, theirs = self.settings(), other.settings()
        return [
            f"{name} = {mine.get(name, ABSENT.get(name))!r} and "
            f"{theirs.get(name, ABSENT.get(name))!r}"
            for name in sorted(mine.keys() | theirs.keys())
            if mine.get(name) != theirs.get(name)
        ]

    def settings(self) -> dict[str, Any]:
        """The settings that can change a result, without the limits, by dotted name."""
        return flat(effective(self, limits=False))


def _own_problems(config: RunConfig) -> list[Problem]:
    if config.own is None:
        return []
    sections = ("data", "model", "noise")
    given = [n for n in sections if getattr(config, n) != type(config).model_fields[n].default]
    what = "must be left out with own: the model and the task were not built from settings."
    return [(name, what) for name in given]


def _noise_problems(config: RunConfig) -> list[Problem]:
    noise, model, train = config.noise, config.model, config.train
    found: list[Problem] = []
    if train.objective == "penalty":
        if noise is None:
            found.append(("train.objective", "must be noise if there is no noise section."))
        elif noise.feedback or noise.noisy_layers != "last" or noise.share != "step":
            found.append(
                (
                    "train.objective",
                    "must be noise, unless noise.feedback = false, noise.noisy_layers = "
                    "'last' and noise.share = 'step': the penalty exists only for such noise.",
                )
            )
        elif noise.mean != 1:
            found.append(("train.objective", "must be noise if noise.mean is not 1."))
    if noise is None and train.K > 1 and train.objective != "importance":  # of dropout
        found.append(("train.K", f"must be 1 if no noise is drawn, got {train.K}."))
    return found + ([] if noise is None else _site_problems(noise, model.cell))


def _site_problems(noise: NoiseConfig, cell: str) -> list[Problem]:
    """A class of the user's own may be affine, which is known when it is loaded."""
    affine = cell in AFFINE_NAMES or ":" in cell
    sites = ("read", "state") if cell == "gru" else ("read",)
    if not affine and noise.site not in sites:
        what = f"must be {' or '.join(sites)} for model.cell = {cell!r}, got {noise.site}."
        return [("noise.site", f"{what} state is for gru, and it, increment and output for "
                 f"{' and '.join(AFFINE_NAMES)}.")]  # fmt: skip
    if affine and not noise.feedback and noise.site not in ("read", "output"):
        what = f"must be output with noise.feedback = false, got {noise.site}."
        return [("noise.site", f"{what} Noise at other sites of an affine cell is fed back.")]
    return []


def _task_problems(config: RunConfig) -> list[Problem]:
    row = config.data.task_row
    if config.own is not None or row is None or row.words:
        return []
    name = config.data.task_name
    found: list[Problem] = []
    if config.model.tied:
        found.append(
            (
                "model.tied",
                f"must be false for {name}, which has no word embedding to share weights with, got "
                f"true. Set model.tied = false.",
            )
        )
    if config.model.dropout.words:
        what = f"must be 0 for {name}, which has no words, got {config.model.dropout.words:g}."
        found.append(("model.dropout.words", what))
    for setting in ("partial_shuffle", "state_reset"):
        if getattr(config.train, setting):
            what = "must be left out for {}, whose batches are sequences in random order."
            found.append((f"train.{setting}", what.format(name)))
    for setting, given in (
        ("model.projection", config.model.projection is not None),
        ("model.output_bias", not config.model.output_bias),
        ("model.initialization", config.model.initialization != "uniform"),
        ("train.augmented_loss", config.train.augmented_loss is not None),
    ):
        if given:
            found.append((setting, f"must be left out for {name}, which does not predict words."))
    return found


def _linear_problems(config: RunConfig) -> list[Problem]:
    """What is defined for a linear head alone; a head of yours may be one."""
    head = config.model.head
    if config.data.learns_scale:
        why = "for a likelihood with a learnt scale: it is defined for exponential families."
    elif head is None or head.kind == "linear" or head.kind not in HEADS:
        return []
    else:
        why = f"with model.head.kind = {head.kind!r}: it is defined for the linear head."
    found: list[Problem] = []
    if config.train.objective == "penalty":
        found.append(("train.objective", f"must be noise {why}"))
    if config.train.objective == "fraternal":
        found.append(("train.objective", f"must not be fraternal {why}"))
    if config.train.augmented_loss is not None:
        found.append(("train.augmented_loss", f"must be left out {why}"))
    return found


def explain(error: ValidationError) -> InvalidConfig:
    """Convert pydantic's error about a RunConfig, for a library that calls pydantic itself."""
    return InvalidConfig(problems(RunConfig, error))


def _read(path: str | Path, parse: Any) -> dict[str, Any]:
    arguments.path("config: the file", path)
    try:
        values = parse(read_regular(path, LARGEST_FILE).decode())
    except OSError as error:
        raise InvalidValue(f"config: cannot read {path}: {error.strerror}.") from None
    except ValueError as error:  # from either format, or text that is not UTF-8
        raise InvalidValue(f"config: {path} cannot be parsed: {error}.") from None
    except RecursionError:
        raise InvalidValue(f"config: {path} is nested too deeply.") from None
    if not isinstance(values, dict):
        raise InvalidValue(
            f"config: {path} must contain settings by name, got {shown(values, 60)}."
        )
    return values
