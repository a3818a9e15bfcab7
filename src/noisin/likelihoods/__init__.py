"""Likelihoods: the exponential families of the paper's Table 1, :mod:`.families`.

Those with a learnt scale, for real values, are in :mod:`.scaled`.
"""

from noisin.likelihoods.base import Likelihood as Likelihood
from noisin.likelihoods.families import LIKELIHOODS as LIKELIHOODS
from noisin.likelihoods.families import Bernoulli as Bernoulli
from noisin.likelihoods.families import Categorical as Categorical
from noisin.likelihoods.families import Gaussian as Gaussian
from noisin.likelihoods.families import Poisson as Poisson
from noisin.likelihoods.scaled import SCALED as SCALED
from noisin.likelihoods.scaled import LocationScale as LocationScale
from noisin.likelihoods.scaled import ScaledGaussian as ScaledGaussian
from noisin.likelihoods.scaled import StudentT as StudentT
