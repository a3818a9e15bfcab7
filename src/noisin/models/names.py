"""The parts that a model is assembled from, by name. Nothing here needs torch.

A row gives the class, as ``package.module:Class``. To add a part, write its class and add a row.
"""

from __future__ import annotations

from collections.abc import Mapping

HEADS: Mapping[str, str] = {
    "linear": "noisin.models.heads:Dense",
    "mixture-of-softmaxes": "noisin.models.mixture:MixtureOfSoftmaxes",
    "pointer-sentinel": "noisin.models.pointer:PointerSentinel",
    "autoregressive": "noisin.models.autoregressive:Autoregressive",
}
LATENT: Mapping[str, str] = {
    "storn": "noisin.models.latent.storn:STORN",
    "vrnn": "noisin.models.latent.vrnn:VRNN",
    "srnn": "noisin.models.latent.srnn:SRNN",
    "srnn-independent": "noisin.models.latent.independent:IndependentSRNN",
    "z-forcing": "noisin.models.latent.z_forcing:ZForcing",
}
LEARNT_SCALE = "noisin.models.heads:LearntScale"  # the linear head of a learnt scale
TERMS: Mapping[str, str] = {
    "ar": "noisin.regularizers.terms:ActivationPenalty",
    "tar": "noisin.regularizers.terms:SlownessPenalty",
    "l1": "noisin.regularizers.terms:L1Penalty",
    "l2": "noisin.regularizers.terms:L2Penalty",
}
