"""From settings to the things themselves: noise, model, optimizer, objective."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from noisin._util.settings import load_object
from noisin.analysis import Penalty
from noisin.errors import InvalidValue, NoisinError
from noisin.likelihoods.linear import linear_nll
from noisin.models import Dropouts, LanguageModel
from noisin.noise import FAMILIES, Noise, validate
from noisin.training import optim
from noisin.training.config import NoiseConfig, RunConfig, TrainConfig
from noisin.training.schedule import noise_share

# Multiply-adds of a time step. Threads wait for each other at every step: with less to do between
# two meetings, two of them are 1.2 to 1.5 times as fast as one on idle cores, but on busy ones they
# can take several times as long. The bound is a choice between the two, not a measured optimum.
WORTH_A_THREAD = 50_000_000

# (model, x, target, state) -> the mean nll and the mean penalty of a word, and the state
Objective = Callable[[LanguageModel, Tensor, Tensor, Any], tuple[Tensor, Tensor, Any]]


def build_noise(config: NoiseConfig | None, epoch: int | None = None) -> Noise | None:
    """The noise of a config: in full, or as its schedule has it in an epoch, counted from 0.

    A class given as ``package.module:Class`` is loaded here, and the noise must pass
    :func:`noisin.noise.validate`.

    >>> build_noise(NoiseConfig(family="bernoulli", std=1.0))
    Bernoulli(gamma=0.5)
    """
    if config is None:
        return None
    alpha = {} if config.alpha is None else {"alpha": config.alpha}
    if config.gamma is not None:
        noise = _call(config, _noise_class(config), config.gamma, **alpha)
    else:
        assert config.std is not None
        noise = _of_variance(config, config.std**2, **alpha)
    share = 1.0 if epoch is None else noise_share(config.schedule, epoch)
    return noise if share == 1 else _of_variance(config, share**2 * noise.variance, **alpha)


def _noise_class(config: NoiseConfig) -> type[Any]:
    known = FAMILIES.get(config.family)
    return known or load_object(config.family, "noise.family", ("variance", "sample"))


def _of_variance(config: NoiseConfig, variance: float, **alpha: float) -> Noise:
    found = _noise_class(config)
    if not hasattr(found, "from_variance"):
        raise InvalidValue(
            f"noise.family = {config.family!r}: noise.std and noise.schedule need a class method "
            f"{found.__name__}.from_variance(variance), and there is none. Define it, or give "
            f"noise.gamma without a schedule."
        )
    return _call(config, found.from_variance, variance, **alpha)


def _call(config: NoiseConfig, make: Callable[..., Any], *spread: float, **alpha: float) -> Noise:
    given = ", ".join([*map(str, spread), *(f"alpha={value}" for value in alpha.values())])
    try:
        noise = make(*spread, **alpha)
    except NoisinError:
        raise
    except (TypeError, ValueError) as error:
        raise InvalidValue(
            f"noise.family = {config.family!r}: {make.__qualname__}({given}) failed: {error}. The "
            f"class takes gamma, or gamma and alpha; from_variance takes a variance."
        ) from error
    return validate(noise)


def build_model(config: RunConfig, num_words: int) -> LanguageModel:
    """The language model of a config, with its noise unless that is to be a penalty."""
    model, noise = config.model, config.noise
    sampled = noise if config.train.objective == "noise" else None
    settings: dict[str, Any] = {}
    if sampled is not None:
        settings = sampled.model_dump(include={"mode", "feedback", "noisy_layers", "share", "site"})
    return LanguageModel(
        num_words,
        embedding_size=model.embedding_size,
        hidden_size=model.hidden_size,
        num_layers=model.num_layers,
        cell=model.cell,
        tied=model.tied,
        dropout=Dropouts(**model.dropout.model_dump()),
        noise=build_noise(sampled),
        **settings,
    )


def threads_worthwhile(config: RunConfig, num_words: int) -> int:
    """How many threads have enough to do in a time step, for all rows of the batch.

    >>> small, medium = RunConfig(model={"hidden_size": 128}, train={"batch_size": 20}), RunConfig()
    >>> threads_worthwhile(small, 1_658), threads_worthwhile(medium, 10_000)
    (1, 21)
    """
    with torch.device("meta"):
        weights = sum(p.numel() for p in build_model(config, num_words).parameters())
    rows = config.train.batch_size * config.train.K
    return max(1, rows * weights // WORTH_A_THREAD)


def build_optimizer(config: TrainConfig, model: nn.Module) -> torch.optim.Optimizer:
    """SGD or AdamW over all weights."""
    kind = optim.sgd if config.optimizer == "sgd" else optim.adamw
    return kind(model.parameters(), config.lr, weight_decay=config.weight_decay)


def build_objective(config: RunConfig, epoch: int) -> Objective:
    """What an epoch minimises: the loss under noise, or the clean loss and the noise's penalty."""
    noise = build_noise(config.noise, epoch)
    if config.train.objective == "noise":
        return partial(noisy_loss, K=config.train.K)
    assert noise is not None
    assert config.noise is not None
    penalty = Penalty(LanguageModel.likelihood, noise, config.noise.mode)
    return partial(penalised_loss, penalty=penalty)


def noisy_loss(
    model: LanguageModel, x: Tensor, target: Tensor, state: Any, K: int = 1
) -> tuple[Tensor, Tensor, Any]:
    """The mean nll of a word over K noise samples, which are K times the rows."""
    if K > 1:
        x, target = x.repeat(1, K), target.repeat(1, K)
    nll, state = model.loss(x, target, state)
    return nll, nll.new_zeros(()), state


def penalised_loss(
    model: LanguageModel, x: Tensor, target: Tensor, state: Any, penalty: Penalty
) -> tuple[Tensor, Tensor, Any]:
    """The mean nll of a word without noise, and the mean of the noise's explicit regularizer."""
    h, state = model.encode(x, state)
    nll = linear_nll(h, model.V, target, model.bias).mean()
    return nll, penalty(h, model.V, model.bias).mean(), state
