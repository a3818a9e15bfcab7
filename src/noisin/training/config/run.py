"""The settings of a run. The defaults are the paper's recipe; nothing here needs torch.

A config is frozen and complete: the run's folder keeps it as ``config.json``, from which the same
run can be made again.

>>> config = RunConfig(noise=NoiseConfig(family="gaussian", gamma=0.5), seed=7)
>>> config.train.lr, config.noise.gamma
(30.0, 0.5)
>>> NoiseConfig(family="bernoulli", gamma=1.1)
Traceback (most recent call last):
noisin.training.config.section.InvalidConfig: config: noise.Bernoulli: gamma is the keep probability and must lie in (0, 1], got 1.1. To ask for a variance, use Bernoulli.from_variance(1.1).
"""  # noqa: E501 - the message is one line, as its reader sees it

from __future__ import annotations

import hashlib
import json
import math
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from noisin._util import arguments
from noisin._util.regular import read_regular
from noisin._util.settings import flat, leave_out
from noisin._util.wording import shown
from noisin.errors import InvalidType, InvalidValue
from noisin.noise import ranges
from noisin.training.config.section import InvalidConfig, Number, Section, Whole, problems
from noisin.training.reading import LARGEST_FILE, parse_json
from noisin.training.runtime.environment import MOST_THREADS

FamilyName = Literal[
    "gaussian", "bernoulli", "gamma", "gumbel", "laplace", "logistic", "beta", "chi-square"
]
Cell = Literal["lstm", "gru", "elman-tanh", "elman-sigmoid", "elman-relu"]
LARGEST_SEED = 2**32 - 1
LARGEST = 10**6  # of a size; what is below it may still be more than a machine has room for
LARGEST_STD = math.sqrt(ranges.LARGEST_SHAPE)


class DataConfig(Section):
    """Which text to learn."""

    name: str = Field(
        default="manual",
        min_length=1,
        description="The corpus: manual (built in), ptb, wikitext-2, a folder of train, valid and "
        "test text files, or one text file.",
    )
    folder: str | None = Field(
        default=None,
        description="Where the files of ptb or wikitext-2 lie; else NOISIN_DATA says so; else they "
        "are downloaded.",
    )


class DropoutConfig(Section):
    """Dropout beside, or instead of, the noise: the probabilities to drop."""

    input: Number = Field(
        default=0.0, ge=0, lt=1, description="Of the embedding, into the first layer."
    )
    between: Number = Field(default=0.0, ge=0, lt=1, description="Between the layers.")
    output: Number = Field(
        default=0.0, ge=0, lt=1, description="Of the last layer, into the softmax."
    )
    recurrent: Number = Field(default=0.0, ge=0, lt=1, description="Of the state that is fed back.")
    locked: bool = Field(
        default=False, description="One mask for all steps of a window, not a fresh one per step."
    )


class ModelConfig(Section):
    """The language model."""

    cell: Cell = Field(default="lstm", description="The transition function.")
    hidden_size: Whole = Field(default=650, ge=1, le=LARGEST, description="Units of each layer.")
    num_layers: Whole = Field(default=2, ge=1, le=1000, description="Layers.")
    embedding_size: Whole | None = Field(
        default=None,
        ge=1,
        le=LARGEST,
        description="Units of a word's embedding; hidden_size unless given.",
    )
    tied: bool = Field(default=True, description="The softmax has the weights of the embedding.")
    dropout: DropoutConfig = DropoutConfig()

    @model_validator(mode="after")
    def _sizes_agree(self) -> Self:
        if (
            self.tied
            and self.num_layers == 1
            and self.embedding_size
            not in (
                None,
                self.hidden_size,
            )
        ):
            raise InvalidConfig(
                [
                    (
                        "embedding_size",
                        f"must be hidden_size ({self.hidden_size}) for one layer with tied "
                        f"weights, got {self.embedding_size}. Leave it out, or set tied = false.",
                    )
                ]
            )
        return self


class ScheduleConfig(Section):
    """How the spread of the noise changes over the epochs."""

    kind: Literal["constant", "linear", "cosine"] = Field(
        default="constant",
        description="The way from start to end; constant is the full noise throughout.",
    )
    epochs: Whole = Field(
        default=1, ge=1, description="The epochs it takes; the noise stays at end then."
    )
    start: Number = Field(
        default=0.0, ge=0, le=1, description="Share of the std in the first epoch."
    )
    end: Number = Field(default=1.0, ge=0, le=1, description="Share of the std after these epochs.")


class NoiseConfig(Section):
    """The noise on the hidden state. Its spread is given as gamma or as std."""

    family: FamilyName = Field(default="gaussian", description="The law of the noise.")
    gamma: Number | None = Field(
        default=None, description="Its spread, in the paper's meaning for this family."
    )
    std: Number | None = Field(
        default=None, ge=0, le=LARGEST_STD, description="Its standard deviation, instead of gamma."
    )
    alpha: Number | None = Field(
        default=None, description="The shape, of gamma and beta noise only."
    )
    mode: Literal["multiplicative", "additive"] = Field(
        default="multiplicative", description="z = h * (1 + eps) or z = h + eps."
    )
    feedback: bool = Field(default=True, description="The recurrence reads the noisy state.")
    noisy_layers: Literal["all", "last"] = Field(
        default="all", description="Which layers have noise."
    )
    share: Literal["step", "sequence"] = Field(
        default="step", description="A fresh draw per step, or one per window."
    )
    site: Literal["read", "state"] = Field(
        default="read",
        description="Of a GRU: noise on what the gates read, or on the state itself.",
    )
    schedule: ScheduleConfig = ScheduleConfig()

    @property
    def law(self) -> str:
        """The name of the family's class, as in ``noisin.noise.ranges`` and ``noisin.noise``."""
        return _LAWS[self.family]

    @model_validator(mode="after")
    def _is_a_noise(self) -> Self:
        if (self.gamma is None) == (self.std is None):
            got = "neither" if self.gamma is None else "both"
            raise InvalidConfig(
                [("", f"noise needs gamma or std, exactly one of them, got {got}.")]
            )
        if self.gamma is not None:
            ranges.check(self.law, "gamma", self.gamma)
        if self.alpha is not None and "alpha" not in ranges.RANGES[self.law]:
            raise InvalidConfig(
                [("alpha", f"is the shape of gamma and beta noise, and {self.family} has none.")]
            )
        if self.alpha is not None:
            ranges.check(self.law, "alpha", self.alpha)
        return self


class TrainConfig(Section):
    """The recipe, its limits, and how often to save. The defaults are the paper's."""

    batch_size: Whole = Field(
        default=80, ge=1, le=LARGEST, description="Columns of text read side by side."
    )
    bptt: Whole = Field(
        default=35, ge=1, le=LARGEST, description="Steps of a window of truncated backpropagation."
    )
    variable_length: bool = Field(
        default=False, description="Windows of random length around bptt, the step in proportion."
    )
    optimizer: Literal["sgd", "adamw"] = Field(default="sgd", description="The optimizer.")
    lr: Number = Field(
        default=30.0, gt=0, description="Its first step size, on the mean loss of a word."
    )
    lr_decay: Number = Field(
        default=1.2,
        ge=1,
        description="lr is divided by this after an epoch that is not the best so far.",
    )
    weight_decay: Number = Field(default=0.0, ge=0, description="Decay of the weights.")
    clip: Number = Field(
        default=0.25, ge=0, description="Largest norm of the gradient; 0 is no limit."
    )
    averaging: Literal["none", "from_start", "nt"] = Field(
        default="from_start",
        description="Average of the weights over the steps: none, from the first step, or from "
        "when validation stops improving (nt, the non-monotone trigger).",
    )
    nt_window: Whole = Field(
        default=5, ge=1, description="Epochs that the trigger of nt looks back."
    )
    objective: Literal["noise", "penalty"] = Field(
        default="noise",
        description="Train with noise, or without it and with its explicit regularizer added.",
    )
    K: Whole = Field(default=1, ge=1, le=LARGEST, description="Noise samples per word and step.")
    epochs: Whole = Field(default=200, ge=1, description="End after so many epochs.")
    tokens: Whole | None = Field(default=None, ge=1, description="End after so many tokens.")
    minutes: Number | None = Field(default=None, gt=0, description="End after so many minutes.")
    patience: Whole | None = Field(
        default=None,
        ge=1,
        description="End after so many epochs without a new best, of raw or averaged weights.",
    )
    eval_batch_size: Whole = Field(
        default=10, ge=1, le=LARGEST, description="Columns in evaluation."
    )
    clean_tokens: Whole = Field(
        default=100_000,
        ge=0,
        description="Training perplexity without noise is that of the first so many tokens.",
    )
    save_minutes: Number = Field(default=10.0, gt=0, description="Save at least this often.")
    save_steps: Whole | None = Field(
        default=None, ge=1, description="Save also after so many steps."
    )
    tensorboard: bool = Field(default=False, description="Write for TensorBoard as well.")

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        if self.optimizer == "adamw" and self.lr > 1:
            raise InvalidConfig(
                [("lr", f"must be 1 or less with adamw, got {self.lr:g}. 0.001 is common.")]
            )
        if self.objective == "penalty" and self.K > 1:
            raise InvalidConfig([("K", f"must be 1 where no noise is drawn, got {self.K}.")])
        return self


class RunConfig(Section):
    """All settings of one run."""

    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    noise: NoiseConfig | None = Field(default=None, description="No noise unless given.")
    train: TrainConfig = TrainConfig()
    seed: Whole = Field(default=1111, ge=0, le=LARGEST_SEED, description="Of all random draws.")
    threads: Whole | None = Field(
        default=None,
        ge=1,
        le=MOST_THREADS,
        description="Processor threads; unless given, as many as the model has work for.",
    )
    device: Literal["cpu", "cuda"] = Field(default="cpu", description="Where to compute.")

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        noise = self.noise
        found = []
        if self.train.objective == "penalty":
            if noise is None:
                found.append(("train.objective", "must be noise where there is none to penalise."))
            elif noise.feedback or noise.noisy_layers != "last" or noise.share != "step":
                found.append(
                    (
                        "train.objective",
                        "must be noise, unless noise.feedback = false, noise.noisy_layers = "
                        "'last' and noise.share = 'step': the penalty is that of such noise only.",
                    )
                )
        if noise is None and self.train.K > 1:
            found.append(("train.K", f"must be 1 where no noise is drawn, got {self.train.K}."))
        if noise is not None and noise.site == "state" and self.model.cell != "gru":
            found.append(("noise.site", "must be read: state is for model.cell = 'gru' only."))
        if found:
            raise InvalidConfig(found)
        return self

    @classmethod
    def parse(cls, values: Mapping[str, Any], source: str = "") -> Self:
        """A config from nested values, such as a file holds; the message names their source."""
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
        """Read a config from a TOML file. What it leaves out has its default."""
        return cls.parse(_read(path, tomllib.loads), str(path))

    @classmethod
    def from_json(cls, path: str | Path) -> Self:
        """Read back what :meth:`to_json` has written to a file."""
        return cls.parse(_read(path, parse_json), str(path))

    def to_json(self) -> str:
        """All settings, as JSON."""
        return self.model_dump_json(indent=2) + "\n"

    def hash(self, limits: bool = True) -> str:
        """The sha256 of all that can change a result; without ``limits``, on the way to the end."""
        settings = self._effective(limits)
        for name, before in _ADDED.items():
            leave_out(settings, name, before)
        canonical = json.dumps(settings, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()

    def differences(self, other: RunConfig) -> list[str]:
        """What makes two runs different: dotted names, with both values."""
        mine, theirs = self.settings(), other.settings()
        return [
            f"{name} = {mine.get(name)!r} and {theirs.get(name)!r}"
            for name in sorted(mine.keys() | theirs.keys())
            if mine.get(name) != theirs.get(name)
        ]

    def settings(self) -> dict[str, Any]:
        """What can change a result but for the limits, by dotted name."""
        return flat(self._effective(limits=False))

    def _effective(self, limits: bool) -> dict[str, Any]:
        """The settings that can change a result."""
        left_out = {name: set(fields) for name, fields in _WITHOUT_EFFECT.items()}
        if not limits:
            left_out["train"] |= _LIMITS
        return self.model_dump(mode="json", exclude=left_out)


_LAWS = {re.sub(r"(?<!^)(?=[A-Z])", "-", law).lower(): law for law in ranges.RANGES}
_WITHOUT_EFFECT = {"data": {"folder"}, "train": {"save_minutes", "save_steps", "tensorboard"}}
_LIMITS = {"epochs", "tokens", "minutes", "patience"}

# Settings that were added after there were runs, by dotted name, with the value that those runs had
# without knowing it, which is the default. There a hash leaves them out, so that those runs go on.
_ADDED: dict[str, Any] = {}


def explain(error: ValidationError) -> InvalidConfig:
    """Pydantic's error about a RunConfig as ours; where a library has called pydantic itself."""
    return InvalidConfig(problems(RunConfig, error))


def _read(path: str | Path, parse: Any) -> dict[str, Any]:
    arguments.path("config: the file", path)
    try:
        values = parse(read_regular(path, LARGEST_FILE).decode())
    except OSError as error:
        raise InvalidValue(f"config: cannot read {path}: {error.strerror}.") from None
    except ValueError as error:  # of either format, and of text that is not UTF-8
        raise InvalidValue(f"config: {path} cannot be understood: {error}.") from None
    except RecursionError:
        raise InvalidValue(f"config: {path} is nested too deeply.") from None
    if not isinstance(values, dict):
        raise InvalidValue(f"config: {path} must hold settings by name, got {shown(values, 60)}.")
    return values
