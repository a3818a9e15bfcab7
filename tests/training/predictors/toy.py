"""A tiny language model in double precision, and text to score."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from noisin.data import Windows
from noisin.models import LanguageModel
from noisin.tasks import Score
from noisin.training.predictors import Statistics, evaluate, gradient_statistics

WORDS = 7
IDS = np.random.RandomState(0).randint(WORDS, size=83).astype(np.int32)


def model(**settings: Any) -> LanguageModel:
    lm = LanguageModel(WORDS, hidden_size=5, **settings).double()
    with torch.no_grad():
        for parameter in lm.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    return lm


def score(predictor: Any, batch_size: int = 1, length: int = 7) -> Score:
    return evaluate(predictor, Windows(IDS, batch_size, length).epoch(0))


def statistics(lm: Any) -> Statistics:
    return gradient_statistics(lm, Windows(IDS, 4, 70).epoch(0))
