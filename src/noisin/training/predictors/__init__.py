r"""Predictors: how a trained model is used to score data. They compose.

A predictor takes a batch and a state to ``log p`` of each target, ``(T, N)``, and the next state.
:class:`Clean` is the model without noise. :class:`Cache` and :class:`Dynamic` adapt it to the
targets that it has seen; :class:`Marginal`, :class:`Arithmetic` and :class:`Geometric` mix K
samples of the noise, and :class:`MonteCarlo` K samples of noise and dropout. :class:`ELBO`,
:class:`IWAE` and :class:`FIVO` bound the likelihood of stochastic RNNs. :class:`Confidence` counts
how often the likeliest word of a clean model is right. :func:`evaluate` scores batches with one.
All that a predictor remembers is in its state: the model is as it was after every call, also if one
is interrupted.

>>> import numpy as np
>>> from noisin import data, models
>>> model = models.LanguageModel(3, hidden_size=4)
>>> text = data.Windows(np.array([0, 1, 2, 0, 1, 2]), batch_size=1, length=70)
>>> evaluate(Clean(model), text.epoch(0)).count
5
>>> evaluate(Dynamic(Cache(Clean(model), window=3), SGD), text.epoch(0)).count
5
"""

from noisin.training.predictors.base import Clean as Clean
from noisin.training.predictors.base import Predictor as Predictor
from noisin.training.predictors.base import Reader as Reader
from noisin.training.predictors.base import Reading as Reading
from noisin.training.predictors.base import Tally as Tally
from noisin.training.predictors.base import evaluate as evaluate
from noisin.training.predictors.base import tally as tally
from noisin.training.predictors.bounds import ELBO as ELBO
from noisin.training.predictors.bounds import FIVO as FIVO
from noisin.training.predictors.bounds import IWAE as IWAE
from noisin.training.predictors.cache import Cache as Cache
from noisin.training.predictors.calibration import Confidence as Confidence
from noisin.training.predictors.dynamic import Dynamic as Dynamic
from noisin.training.predictors.ensembles import Arithmetic as Arithmetic
from noisin.training.predictors.ensembles import Geometric as Geometric
from noisin.training.predictors.ensembles import Marginal as Marginal
from noisin.training.predictors.monte_carlo import MonteCarlo as MonteCarlo
from noisin.training.predictors.rates import SGD as SGD
from noisin.training.predictors.rates import Rates as Rates
from noisin.training.predictors.statistics import Statistics as Statistics
from noisin.training.predictors.statistics import gradient_statistics as gradient_statistics
