"""Calibration: is the likeliest word right as often as the model says?"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from noisin.data import Batch
from noisin.errors import InvalidType
from noisin.models import LanguageModel
from noisin.models.base import State
from noisin.training.predictors.base import Clean

BINS = 15


@dataclass(frozen=True)
class Confidence:
    r"""A clean model whose likeliest words are counted, as a predictor.

    With the probability p of the likeliest word of each target, and whether it was the target, the
    *expected calibration error* is the mean over bins of p, of equal count, of

    .. math:: |\text{share that was right} - \text{mean of } p|

    It is 0 for a model that is right as often as it says.

    >>> import numpy as np
    >>> from noisin import data, models
    >>> from noisin.training.predictors import evaluate
    >>> watched = Confidence(Clean(models.LanguageModel(3, hidden_size=4)))
    >>> text = data.Windows(np.array([0, 1, 2, 0, 1, 2]), batch_size=1, length=70)
    >>> evaluate(watched, text.epoch(0)).count, sorted(watched.to_json())
    (5, ['accuracy', 'bins', 'confidence', 'error'])
    """

    clean: Clean
    _seen: list[Tensor] = field(default_factory=list, repr=False)  # (2, n): p, and whether right

    def __post_init__(self) -> None:
        model = self.clean.model
        if not isinstance(model, LanguageModel) or hasattr(model.head, "remember"):
            head = type(getattr(model, "head", None)).__name__
            raise InvalidType(
                f"Confidence: expected a language model that predicts from its state alone, got "
                f"{type(model).__name__} with the head {head}."
            )

    def __call__(self, batch: Batch, state: State = None) -> tuple[Tensor, State]:
        """Score a batch, and count its likeliest words."""
        with torch.no_grad():
            log_p, z, state = self.clean.read(batch, state)
            assert isinstance(self.clean.model, LanguageModel)
            assert z is not None
            s = self.clean.model.head_at(self.clean.temperature).predict(z)
            top, word = s.max(-1)
            p = (top - s.logsumexp(-1)).exp()
            right = word == batch.target.to(word.device)
        seen = torch.stack([p.double(), right.double()]).cpu()
        scored = slice(None) if batch.scored is None else batch.scored.cpu()
        self._seen.append(seen[:, scored].flatten(1))
        return log_p, state

    def to_json(self, bins: int = BINS) -> dict[str, Any]:
        """The calibration error, and the means of what was right and of p."""
        p, right = torch.cat(self._seen, 1)
        order = p.argsort(stable=True)
        parts = zip(p[order].chunk(bins), right[order].chunk(bins), strict=True)
        gaps = [len(ps) * float((hits.mean() - ps.mean()).abs()) for ps, hits in parts]
        return {
            "error": sum(gaps) / len(p),
            "accuracy": float(right.mean()),
            "confidence": float(p.mean()),
            "bins": bins,
        }
