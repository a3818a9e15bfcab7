"""The settings that can change a result, and their hash, which identifies a run."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from pydantic import BaseModel

from noisin._util.settings import leave_out

_WITHOUT_EFFECT = {
    "data": {"folder"},
    "train": {"save_minutes", "save_steps", "tensorboard", "tracker"},
}
_LIMITS = {"epochs", "tokens", "minutes", "patience", "nt_patience"}

# Optional settings by dotted name, with the value that means "off". With that value they are left
# out of the hash and of config.json, so that runs from before a setting existed keep their
# identity. Add a new setting here; its default must be that value.
ABSENT: dict[str, Any] = {
    "data.task": None,
    "data.tokens": None,
    "data.lower": False,
    "data.min_count": 1,
    "data.max_words": None,
    "data.split": "position",
    "data.fraction": 1.0,
    "data.likelihood": None,
    "data.columns": None,
    "model.zoneout": None,
    "model.gate_dropout": None,
    "model.weight_drop": None,
    "model.weight_noise": None,
    "model.dropout.words": 0.0,
    "model.dropout.words_shared": False,
    "model.dropout.law": "bernoulli",
    "model.gate_dropout.locked": False,
    "model.gate_dropout.site": "after",
    "model.gate_dropout.shared": False,
    "model.update_dropout": None,
    "model.cell_arguments": {},
    "model.head": None,
    "model.latent": None,
    "model.last_size": None,
    "model.output_bias": True,
    "model.skip": False,
    "model.projection": None,
    "model.initialization": "uniform",
    "noise.mean": 1.0,
    "noise.rescaled": True,
    "train.augmented_loss": None,
    "train.annealing": None,
    "train.terms": {},
    "train.importance": None,
    "train.fraternal": None,
    "train.partial_shuffle": False,
    "train.state_reset": 0.0,
    "train.beta1": 0.9,
    "train.lr_patience": 1,
    "train.lr_decay_after": None,
    "train.shrink": 0.0,
    "train.start": None,
    "train.nt_patience": None,
    "train.tracker": None,
    "own": None,
}


def dump(config: BaseModel, exclude: dict[str, set[str]] | None = None) -> dict[str, Any]:
    """The settings as JSON values, without the optional ones that are off."""
    settings = config.model_dump(mode="json", exclude=exclude)
    for name, off in ABSENT.items():
        leave_out(settings, name, off)
    return settings


def effective(config: BaseModel, limits: bool) -> dict[str, Any]:
    """The settings that can change a result, with or without the limits."""
    without = {name: set(fields) for name, fields in _WITHOUT_EFFECT.items()}
    if not limits:
        without["train"] |= _LIMITS
    settings = dump(config, without)
    noise = settings.get("noise") or {}
    if noise.get("site") == "increment":  # of an affine cell, where the default is the same
        noise["site"] = "read"
    if "mean" not in noise:
        noise.pop("rescaled", None)
    return settings


def sha256(settings: dict[str, Any]) -> str:
    """The sha256 of settings, independent of their order."""
    canonical = json.dumps(settings, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
