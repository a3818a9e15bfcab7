"""Build the noise, the task and the model of a config."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import nn

from noisin._util.arguments import takes_keyword
from noisin._util.settings import construct, load_object
from noisin.errors import InvalidValue
from noisin.likelihoods import LIKELIHOODS, SCALED, Likelihood, LocationScale
from noisin.models import Dropouts, LanguageModel, SequenceModel, Values
from noisin.models.layers import Layer, emitted_dropouts, own_stream, recurrent_layers
from noisin.models.names import HEADS, LATENT, LEARNT_SCALE, TERMS
from noisin.models.sizes import Reads, layer_sizes
from noisin.models.steps import GateDropout, UpdateDropout
from noisin.noise import FAMILIES, Biased, Noise, validate
from noisin.recurrent.injection import Injection
from noisin.regularizers import WeightDrop, WeightNoise, set_dropout_law
from noisin.regularizers.augmented import AugmentedLoss
from noisin.regularizers.terms import Term
from noisin.tasks import Observation, Task
from noisin.training.config import DropoutConfig, LatentConfig, NoiseConfig, RunConfig
from noisin.training.objectives import NoisePenalty
from noisin.training.schedule import noise_share

# Multiply-adds of a time step. Threads synchronize at every step. With less work per step than
# this, two threads are 1.2 to 1.5 times as fast as one on idle cores, but can take several times as
# long on busy ones. The bound is a compromise between the two, not a measured optimum.
WORTH_A_THREAD = 50_000_000


def build_noise(config: NoiseConfig | None, epoch: int | None = None) -> Noise | None:
    """The noise of a config: at full strength, or as scheduled for an epoch, counted from 0.

    A class given as ``package.module:Class`` is loaded here, and the noise must pass
    :func:`noisin.noise.validate`.

    >>> build_noise(NoiseConfig(family="bernoulli", std=1.0))
    Bernoulli(gamma=0.5)
    """
    if config is None:
        return None
    alpha = {} if config.alpha is None else {"alpha": config.alpha}
    if config.gamma is not None:
        noise = _constructed(config, _noise_class(config.family), config.gamma, **alpha)
    else:
        assert config.std is not None
        noise = _of_variance(config, config.std**2, **alpha)
    share = 1.0 if epoch is None else noise_share(config.schedule, epoch)
    if share != 1:
        noise = _of_variance(config, share**2 * noise.variance, **alpha)
    return noise if config.mean == 1 else Biased(noise, config.mean, config.rescaled)


def _noise_class(name: str, setting: str = "noise.family") -> type[Any]:
    return FAMILIES.get(name) or load_object(name, setting, ("variance", "sample"))


def _of_variance(config: NoiseConfig, variance: float, **alpha: float) -> Noise:
    found = _noise_class(config.family)
    if not hasattr(found, "from_variance"):
        raise InvalidValue(
            f"noise.family = {config.family!r}: noise.std and noise.schedule need a class method "
            f"{found.__name__}.from_variance(variance), which is missing. Define it, or give "
            f"noise.gamma without a schedule."
        )
    return _constructed(config, found.from_variance, variance, **alpha)


def _constructed(
    config: NoiseConfig, make: Callable[..., Any], spread: float, **alpha: float
) -> Noise:
    return validate(construct(f"noise.family = {config.family!r}", make, spread, **alpha))


def build_task(config: RunConfig) -> Task:
    """The task of a config, with its data loaded.

    A class given as ``package.module:Class`` is made by its ``from_config(config)``.
    """
    kind = load_object(config.data.task_class, "data.task", ("from_config", "batches", "unit"))
    task: Task = kind.from_config(config)
    return task


def build_model(config: RunConfig, observation: Observation) -> Any:
    """The model of a config for a task's observations; noise used as a penalty is not injected.

    It is a stochastic RNN if the config has ``model.latent``, and a SequenceModel if not.
    """
    model = _with_bernoulli_dropout(config, observation)
    if (law := config.model.dropout.law) != "bernoulli":
        set_dropout_law(model, _noise_class(law, "model.dropout.law"))
    return model


def _with_bernoulli_dropout(config: RunConfig, observation: Observation) -> Any:
    model = config.model
    if model.latent is not None:
        return _stochastic(config, model.latent, observation)
    parts: dict[str, Any] = {
        "zoneout": model.zoneout and (model.zoneout.p_h, model.zoneout.p_c),
        "weight_drop": model.weight_drop and WeightDrop(**model.weight_drop.model_dump()),
        "weight_noise": model.weight_noise and WeightNoise(**model.weight_noise.model_dump()),
        "gate_dropout": model.gate_dropout and GateDropout(**model.gate_dropout.model_dump()),
        "update_dropout": model.update_dropout
        and UpdateDropout(**model.update_dropout.model_dump()),
        "cell_arguments": model.cell_arguments,
    }
    if observation.likelihood != "categorical":
        return _assembled(config, observation, parts)
    return LanguageModel(
        observation.size,
        embedding_size=model.embedding_size,
        hidden_size=model.hidden_size,
        num_layers=model.num_layers,
        cell=model.cell,
        tied=model.tied,
        last_size=model.last_size,
        output_bias=model.output_bias,
        head=None if model.head is None else partial(build_head, config),
        skip=model.skip,
        projection=None if model.projection is None else model.projection.dropout,
        initialization=model.initialization,
        dropout=_dropouts(model.dropout),
        noise=build_noise(_sampled(config)),
        terms=build_terms(config),
        **_placement(config),
        **parts,
    )


def _dropouts(config: DropoutConfig) -> Dropouts:
    return Dropouts(**config.model_dump(exclude={"law"}))


def _sampled(config: RunConfig) -> NoiseConfig | None:
    """The noise to sample; None if it is a penalty instead."""
    return None if config.train.objective == "penalty" else config.noise


def _placement(config: RunConfig) -> dict[str, Any]:
    """How the noise is injected."""
    names = {"mode", "feedback", "noisy_layers", "share", "site"}
    noise = _sampled(config)
    return {} if noise is None else noise.model_dump(include=names)


def _assembled(config: RunConfig, observation: Observation, parts: dict[str, Any]) -> SequenceModel:
    """A model of values, without an embedding."""
    model, size = config.model, observation.size
    if model.tied or model.embedding_size is not None or model.projection is not None:
        raise InvalidValue(
            "config: model.tied must be false, and model.embedding_size and model.projection left "
            f"out unless the inputs are words, because {config.data.name!r} has no embedding."
        )
    sizes = layer_sizes(
        observation.inputs or size,
        model.hidden_size,
        model.num_layers,
        model.last_size,
        Reads(tied=False, linear=model.head is None, skip=model.skip),
    )
    dropout = _dropouts(model.dropout)
    placement = _placement(config)
    injection = Injection(
        build_noise(_sampled(config)),
        layers=placement.pop("noisy_layers", "all"),
        owner="SequenceModel",
        **placement,
    )
    with own_stream(None):
        layers = recurrent_layers(model.cell, sizes, injection, dropout, **parts)
    for layer in layers:
        assert isinstance(layer, Layer)
        layer.reset_parameters()
    bias = None if observation.bias is None else torch.tensor(observation.bias)
    return SequenceModel(
        Values(observation.inputs or size),
        layers,
        build_head(config, sizes[-1], observation.size, _likelihood(observation), bias=bias),
        dropouts=emitted_dropouts(dropout, model.num_layers),
        skip=model.skip,
        terms=build_terms(config),
    )


def _stochastic(config: RunConfig, latent: LatentConfig, observation: Observation) -> Any:
    """A model with latent variables."""
    model, kind = config.model, latent.kind
    found = load_object(LATENT.get(kind, kind), "model.latent.kind", ("loss", "log_prob"))
    return construct(
        "model.latent",
        found,
        observation.size,
        _likelihood(observation),
        input_size=observation.inputs or observation.size,
        hidden_size=model.hidden_size,
        num_layers=model.num_layers,
        z_size=latent.z_size,
        mlp_size=latent.mlp_size or model.hidden_size,
        cell=model.cell,
        head=partial(build_head, config),
        bias=None if observation.bias is None else torch.tensor(observation.bias),
        dropout=_dropouts(model.dropout),
        noise=build_noise(_sampled(config)),
        **_placement(config),
        **latent.options,
    )


def _likelihood(observation: Observation) -> Likelihood | LocationScale:
    name = observation.likelihood
    return SCALED[name]() if name in SCALED else LIKELIHOODS[name]()


def build_head(
    config: RunConfig,
    in_features: int,
    out_features: int,
    likelihood: Likelihood | LocationScale,
    **options: Any,
) -> Any:
    """The head of a config: linear, or a class with the same arguments and its own.

    For a likelihood with a learnt scale, the linear head is one that is linear in its parameters.

    ``options`` are ``bias``, and ``embedding`` if its weights are shared.
    """
    head = config.model.head
    kind = "linear" if head is None else head.kind
    arguments = {} if head is None else head.arguments
    home = HEADS.get(kind, kind)
    if kind == "linear" and isinstance(likelihood, LocationScale):
        home = LEARNT_SCALE
    found = load_object(home, "model.head.kind", ("nll", "mean_nll", "predict"))
    if "embedding" in options and not takes_keyword(found, "embedding"):
        raise InvalidValue(
            f"config: model.tied must be false for model.head.kind = {kind!r}: the head has its "
            f"own weights, because its constructor takes no argument embedding."
        )
    options = {"bias": None, **options, **arguments}
    return construct("model.head", found, in_features, out_features, likelihood, **options)


def build_terms(config: RunConfig) -> list[Term]:
    """The terms that the settings add to the loss."""
    terms: list[Term] = []
    if config.train.objective == "penalty":
        noise = build_noise(config.noise)
        assert noise is not None
        assert config.noise is not None
        terms.append(NoisePenalty(noise, config.noise.mode))
    if (augmented := config.train.augmented_loss) is not None:
        alpha = augmented.gamma * augmented.temperature
        terms.append(AugmentedLoss(alpha, augmented.temperature, augmented.detach))
    for name, weight in config.train.terms.items():
        term = load_object(TERMS.get(name, name), "train.terms", ("name", "__call__"))
        terms.append(construct("train.terms", term, weight))
    return terms


def threads_worthwhile(model: nn.Module, rows: int) -> int:
    """The number of threads that have enough work in a time step, for all rows of the batch.

    >>> small, medium = LanguageModel(1_658, hidden_size=128), LanguageModel(10_000)
    >>> threads_worthwhile(small, 20), threads_worthwhile(medium, 80)
    (1, 21)
    """
    weights = sum(p.numel() for p in model.parameters())
    return max(1, rows * weights // WORTH_A_THREAD)
