"""Calls about series: likelihoods with a learnt scale, their head, and the task."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch

from noisin import likelihoods, models
from noisin.tasks import Series
from tests.calls.call import Call
from tests.tasks.test_series import data


def _used(kind: Any, s: Any, x: Any, generator: Any) -> None:
    likelihood = kind()
    likelihood.nll(s, x)
    likelihood.mean(s)
    likelihood.sample(s, generator)


def _parameters(count: int) -> torch.Tensor:
    return torch.zeros(5, 2, 3 * count)


CALLS = [
    *(
        Call(
            kind.__name__,
            partial(_used, kind),
            {
                "s": partial(_parameters, kind.parameters),
                "x": lambda: torch.ones(5, 2, 3),
                "generator": torch.Generator,
            },
        )
        for kind in likelihoods.SCALED.values()
    ),
    Call(
        "LearntScale",
        models.LearntScale,
        {
            "in_features": lambda: 4,
            "out_features": lambda: 3,
            "likelihood": likelihoods.StudentT,
            "bias": lambda: torch.zeros(3),
            "generator": torch.Generator,
        },
    ),
    Call(
        "Series",
        lambda **a: next(iter(Series(**a).batches("train"))),
        {
            "data": data,
            "batch_size": lambda: 2,
            "eval_batch_size": lambda: 2,
            "bptt": lambda: 5,
            "clean_steps": lambda: 10,
            "seed": lambda: 1,
        },
    ),
]
