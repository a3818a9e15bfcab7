"""Unbiased noise regularization for recurrent neural networks.

>>> import torch, noisin
>>> from noisin import noise
>>> rnn = noisin.LSTM(650, 650, num_layers=2, noise=noise.Gaussian(gamma=1.10))

Names load when first used, so that ``import noisin`` itself is instant and needs no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from noisin._util import lazy

if TYPE_CHECKING:
    from noisin import analysis as analysis
    from noisin import data as data
    from noisin import errors as errors
    from noisin import likelihoods as likelihoods
    from noisin import models as models
    from noisin import noise as noise
    from noisin import objective as objective
    from noisin import regularizers as regularizers
    from noisin import tasks as tasks
    from noisin import testing as testing
    from noisin import training as training
    from noisin.likelihoods.linear import linear_nll as linear_nll
    from noisin.recurrent import functional as functional
    from noisin.recurrent import kernels as kernels
    from noisin.recurrent.cells import GRUCell as GRUCell
    from noisin.recurrent.cells import LSTMCell as LSTMCell
    from noisin.recurrent.cells import Noisy as Noisy
    from noisin.recurrent.cells import RNNCell as RNNCell
    from noisin.recurrent.cells import unroll as unroll
    from noisin.recurrent.convert import convert as convert
    from noisin.recurrent.convert import revert as revert
    from noisin.recurrent.injection import noise_off as noise_off
    from noisin.recurrent.injection import noise_on as noise_on
    from noisin.recurrent.injection import set_noise as set_noise
    from noisin.recurrent.modules import GRU as GRU
    from noisin.recurrent.modules import LSTM as LSTM
    from noisin.recurrent.modules import RNN as RNN
    from noisin.recurrent.replay import replay as replay
    from noisin.recurrent.scanned import MinGRU as MinGRU
    from noisin.recurrent.scanned import MinGRUCell as MinGRUCell
    from noisin.recurrent.scanned import MinLSTM as MinLSTM
    from noisin.recurrent.scanned import MinLSTMCell as MinLSTMCell
    from noisin.recurrent.scanned import Scanned as Scanned
    from noisin.recurrent.scans import scan as scan
    from noisin.recurrent.unrolled import Unrolled as Unrolled
    from noisin.tuning import tune as tune

__version__ = "0.2.0"

_MODULES = (
    *("analysis", "data", "errors", "likelihoods", "models", "noise", "objective"),
    *("regularizers", "tasks", "testing", "training"),
)
_HOMES = {name: name for name in _MODULES}
_HOMES |= {name: f"recurrent.{name}" for name in ("functional", "kernels", "convert")}
_HOMES |= dict.fromkeys(("GRU", "LSTM", "RNN"), "recurrent.modules")
_HOMES |= dict.fromkeys(("GRUCell", "LSTMCell", "Noisy", "RNNCell", "unroll"), "recurrent.cells")
_HOMES |= dict.fromkeys(("noise_off", "noise_on", "set_noise"), "recurrent.injection")
_HOMES |= dict.fromkeys(
    ("MinGRU", "MinGRUCell", "MinLSTM", "MinLSTMCell", "Scanned"), "recurrent.scanned"
)
_HOMES |= {"scan": "recurrent.scans", "replay": "recurrent.replay"}
_HOMES |= {"revert": "recurrent.convert", "Unrolled": "recurrent.unrolled"}
_HOMES |= {"linear_nll": "likelihoods.linear", "tune": "tuning"}

__getattr__, _names = lazy.names_of(__name__, _HOMES)
__all__ = ["__version__", *_names]


def __dir__() -> list[str]:
    return sorted(__all__)
