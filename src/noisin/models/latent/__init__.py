"""Stochastic RNNs: models with a latent variable at every step, and noise on their recurrent state.

:mod:`~noisin.models.latent.base` has what they share; each other module is one model, or the bounds
of their likelihood.
"""

from noisin.models.latent.base import Bound as Bound
from noisin.models.latent.base import LatentModel as LatentModel
from noisin.models.latent.bounds import Particles as Particles
from noisin.models.latent.bounds import particle_bound as particle_bound
from noisin.models.latent.gaussian import DiagonalGaussian as DiagonalGaussian
from noisin.models.latent.gaussian import GaussianNetwork as GaussianNetwork
from noisin.models.latent.independent import IndependentSRNN as IndependentSRNN
from noisin.models.latent.srnn import SRNN as SRNN
from noisin.models.latent.storn import STORN as STORN
from noisin.models.latent.vrnn import VRNN as VRNN
from noisin.models.latent.walk import LatentStep as LatentStep
from noisin.models.latent.z_forcing import ZForcing as ZForcing
