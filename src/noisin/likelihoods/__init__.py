"""Likelihoods: the exponential families of the paper's Table 1. See :mod:`.families`."""

from noisin.likelihoods.base import Likelihood as Likelihood
from noisin.likelihoods.families import LIKELIHOODS as LIKELIHOODS
from noisin.likelihoods.families import Bernoulli as Bernoulli
from noisin.likelihoods.families import Categorical as Categorical
from noisin.likelihoods.families import Gaussian as Gaussian
from noisin.likelihoods.families import Poisson as Poisson
