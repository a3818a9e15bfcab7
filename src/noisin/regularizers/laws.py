"""Dropout by other laws than Bernoulli's: noise at the places of dropout."""

from __future__ import annotations

from torch import nn

from noisin._util import checks
from noisin.errors import InvalidType
from noisin.noise import Noise, validate
from noisin.regularizers.sequences import Dropout
from noisin.regularizers.windowed import WindowCell


def set_dropout_law(model: nn.Module, law: type[Noise]) -> None:
    r"""Let the dropout of units in a model be multiplicative noise of another law.

    A mask of dropout at rate p is ``1 + eps`` with Bernoulli noise eps. It becomes ``1 + eps`` with
    noise of this law and the same variance, ``p / (1 - p)``, at the same places and as often. With
    :class:`noisin.noise.Gaussian` it is Gaussian dropout (Srivastava et al., 2014, section 10).

    Dropout of words, of weights and in the gates, and zoneout, keep their masks of zeros and ones.

    Args:
        model: the model; its dropouts, and the recurrent dropout of its cells, are changed.
        law: a class of noise with ``from_variance``.

    >>> import torch
    >>> from noisin import models, noise
    >>> lm = models.LanguageModel(10, hidden_size=4, dropout=models.Dropouts(0.5, 0.5, 0.5))
    >>> set_dropout_law(lm, noise.Gaussian)
    >>> lm.dropouts[0](torch.ones(1, 1, 4)).eq(0).any()
    tensor(False)
    """
    checks.require_module("set_dropout_law", model)
    if not isinstance(law, type) or not hasattr(law, "from_variance"):
        raise InvalidType(
            f"set_dropout_law: law must be a class of noise with from_variance, such as "
            f"noise.Gaussian, got {law!r:.60}."
        )
    validate(law.from_variance(1.0))
    for module in model.modules():
        if isinstance(module, Dropout | WindowCell):
            module.mask_law = law
