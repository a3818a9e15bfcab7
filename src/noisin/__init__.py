"""Unbiased noise regularization for recurrent neural networks.

>>> import torch, noisin
>>> from noisin import noise
>>> rnn = noisin.LSTM(650, 650, num_layers=2, noise=noise.Gaussian(gamma=1.10))

Names load when first used, so that ``import noisin`` itself is instant and needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from noisin import analysis as analysis
    from noisin import data as data
    from noisin import errors as errors
    from noisin import functional as functional
    from noisin import kernels as kernels
    from noisin import likelihoods as likelihoods
    from noisin import models as models
    from noisin import noise as noise
    from noisin import objective as objective
    from noisin import regularizers as regularizers
    from noisin import testing as testing
    from noisin import training as training
    from noisin.cells import GRUCell as GRUCell
    from noisin.cells import LSTMCell as LSTMCell
    from noisin.cells import Noisy as Noisy
    from noisin.cells import RNNCell as RNNCell
    from noisin.cells import unroll as unroll
    from noisin.conversion import convert as convert
    from noisin.conversion import revert as revert
    from noisin.injection import noise_off as noise_off
    from noisin.injection import noise_on as noise_on
    from noisin.injection import set_noise as set_noise
    from noisin.linear import linear_nll as linear_nll
    from noisin.rnn import GRU as GRU
    from noisin.rnn import LSTM as LSTM
    from noisin.rnn import RNN as RNN

__version__ = "0.2.0"

_MODULES = (
    *("analysis", "data", "errors", "functional", "kernels", "likelihoods", "models", "noise"),
    *("objective", "regularizers", "testing", "training"),
)
_HOME = {
    "GRU": "rnn",
    "LSTM": "rnn",
    "RNN": "rnn",
    "GRUCell": "cells",
    "LSTMCell": "cells",
    "RNNCell": "cells",
    "Noisy": "cells",
    "unroll": "cells",
    "convert": "conversion",
    "revert": "conversion",
    "linear_nll": "linear",
    "noise_off": "injection",
    "noise_on": "injection",
    "set_noise": "injection",
}

__all__ = ["__version__", *_MODULES, *_HOME]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"noisin.{name}")
    if name in _HOME:
        value = getattr(import_module(f"noisin.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'noisin' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
