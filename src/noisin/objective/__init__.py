r"""The objective of NOISIN and what it bounds, for any noise-injected model.

A model is ``model(x, state) -> (s, state)``: from inputs ``(T, N, ...)`` to the natural parameters
s of a likelihood, ``(T, N, O)`` or ``(T, N)``, carrying a state. With ``batch_first=True`` it takes
and returns ``(N, T, ...)`` instead. With noise, the likelihood that it gives to a row of targets is
random, ``log p(x_{1:T} | z_{1:T})``, and

- the **objective** (Jensen bound) is its mean over the noise, which training maximises;
- the **marginal** ``log p(x_{1:T})``, the log of the mean likelihood, is what it bounds.

K noise samples are K times as many rows of the batch, with their own states. A model whose methods
take ``samples``, as noisin's do, is given N rows and K, and computes once what the samples have in
common: see :mod:`noisin.recurrent.samples`. Other models are given K·N rows.
"""

from noisin.objective.densities import log_joint as log_joint
from noisin.objective.densities import transition_log_density as transition_log_density
from noisin.objective.estimates import Ensemble as Ensemble
from noisin.objective.estimates import Estimate as Estimate
from noisin.objective.estimates import Model as Model
from noisin.objective.estimates import Window as Window
from noisin.objective.estimates import estimate as estimate
from noisin.objective.estimates import likelihood_of as likelihood_of
from noisin.objective.estimates import predict as predict
from noisin.objective.forecasts import Forecast as Forecast
from noisin.objective.forecasts import forecast as forecast
