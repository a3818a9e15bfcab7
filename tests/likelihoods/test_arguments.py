"""The names of the likelihoods, what they take, and what they refuse."""
# ruff: noqa: E501 - a message is one line, as its reader sees it

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from noisin.errors import InvalidType, InvalidValue
from noisin.likelihoods import LIKELIHOODS, Bernoulli, Categorical, Gaussian, Likelihood, Poisson


@pytest.mark.parametrize("s", [50.0, 100.0, math.nan])
def test_poisson_refuses_rates_that_torch_cannot_draw(s: Any) -> None:
    with pytest.raises(InvalidValue, match=r"likelihoods\.Poisson: cannot draw counts at the rate"):
        Poisson().sample(torch.tensor([0.0, s]))


def test_the_registry_names_every_likelihood() -> None:
    assert {name: cls() for name, cls in LIKELIHOODS.items()} == {
        "bernoulli": Bernoulli(),
        "gaussian": Gaussian(variance=1.0),
        "poisson": Poisson(),
        "categorical": Categorical(),
    }


def test_likelihoods_are_values() -> None:
    assert Gaussian(2) == Gaussian(variance=2.0) != Gaussian()
    assert type(Gaussian(2).variance) is float
    assert Gaussian(np.float64(2.0)) in {Gaussian(2.0)}
    assert repr(Gaussian(2)) == "Gaussian(variance=2.0)"
    with pytest.raises(AttributeError):
        Gaussian().variance = 2.0
    with pytest.raises(TypeError, match="abstract"):
        Likelihood()


S = torch.zeros(2, 3)
X = torch.zeros(2, 3)
IDS = torch.zeros(2, dtype=torch.int64)


def with_value(x: Tensor, value: float) -> Tensor:
    x = x.clone()
    x.view(-1)[-1] = value
    return x


NLL_ERRORS = [
    (Bernoulli(), S, [0.0], InvalidType, "likelihoods.Bernoulli: x must be a tensor, got list. Convert it with torch.as_tensor(x)."),
    (Poisson(), 1.0, X, InvalidType, "likelihoods.Poisson: s must be a tensor, got float. Convert it with torch.as_tensor(s)."),
    (Categorical(), S, 1, InvalidType, "likelihoods.Categorical: x must be a tensor, got int. Convert it with torch.as_tensor(x)."),
    (Categorical(), S.long(), IDS, InvalidType, "likelihoods.Categorical: s must be a floating-point tensor, got torch.int64. Convert it, e.g. s.float()."),
    (Gaussian(), S, X[:1], InvalidValue, "likelihoods.Gaussian: x has shape (1, 3) and s has shape (2, 3); expected equal shapes, one x for each distribution that s describes. Reshape or expand x."),
    (Poisson(), S, X[0], InvalidValue, "likelihoods.Poisson: x has shape (3,) and s has shape (2, 3); expected equal shapes, one x for each distribution that s describes. Reshape or expand x."),
    (Categorical(), S, IDS[:1], InvalidValue, "likelihoods.Categorical: x has shape (1,) and s has shape (2, 3); expected s.shape == (*x.shape, O), one x for each distribution that s describes. Reshape or expand x."),
    (Categorical(), S, X.long(), InvalidValue, "likelihoods.Categorical: x has shape (2, 3) and s has shape (2, 3); expected s.shape == (*x.shape, O), one x for each distribution that s describes. Reshape or expand x."),
    (Categorical(), S[0, 0], IDS[0], InvalidValue, "likelihoods.Categorical: x has shape () and s has shape (); expected s.shape == (*x.shape, O), one x for each distribution that s describes. Reshape or expand x."),
    (Bernoulli(), S, with_value(X, 0.5), InvalidValue, "likelihoods.Bernoulli: x must be 0 or 1, got 0.5 with s of shape (2, 3). Threshold it first, e.g. x > 0.5."),
    (Bernoulli(), S, with_value(X.long(), 2), InvalidValue, "likelihoods.Bernoulli: x must be 0 or 1, got 2 with s of shape (2, 3). Threshold it first, e.g. x > 0.5."),
    (Poisson(), S, with_value(X, -1), InvalidValue, "likelihoods.Poisson: x must be a whole number, 0 or more, got -1.0 with s of shape (2, 3). For real-valued data use likelihoods.Gaussian."),
    (Poisson(), S, with_value(X, 1.5), InvalidValue, "likelihoods.Poisson: x must be a whole number, 0 or more, got 1.5 with s of shape (2, 3). For real-valued data use likelihoods.Gaussian."),
    (Poisson(), S, with_value(X, math.inf), InvalidValue, "likelihoods.Poisson: x must be a whole number, 0 or more, got inf with s of shape (2, 3). For real-valued data use likelihoods.Gaussian."),
    (Gaussian(), S, with_value(X, math.nan), InvalidValue, "likelihoods.Gaussian: x must be finite, got nan with s of shape (2, 3). Leave out or fill in missing values first."),
    (Categorical(), S, X[:, 0], InvalidType, "likelihoods.Categorical: x must contain integer class numbers, got torch.float32. Convert one-hot or probability targets with x.argmax(-1)."),
    (Categorical(), S, IDS.bool(), InvalidType, "likelihoods.Categorical: x must contain integer class numbers, got torch.bool. Convert one-hot or probability targets with x.argmax(-1)."),
    (Categorical(), S, with_value(IDS, 3), InvalidValue, "likelihoods.Categorical: x must be one of the classes 0 ... O - 1, got 3 with s of shape (2, 3). To leave entries out, select the others: nll(s[keep], x[keep])."),
    (Categorical(), S, with_value(IDS, -100), InvalidValue, "likelihoods.Categorical: x must be one of the classes 0 ... O - 1, got -100 with s of shape (2, 3). To leave entries out, select the others: nll(s[keep], x[keep])."),
    (Categorical(), S[:, :0], IDS, InvalidValue, "likelihoods.Categorical: x must be one of the classes 0 ... O - 1, got 0 with s of shape (2, 0). To leave entries out, select the others: nll(s[keep], x[keep])."),
]  # fmt: skip


@pytest.mark.parametrize(("lik", "s", "x", "error", "message"), NLL_ERRORS)
def test_errors_of_nll_and_of_the_statistic(
    lik: Likelihood, s: Any, x: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        lik.nll(s=s, x=x)
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        lik.T(x, like=s)


@pytest.mark.parametrize(
    ("variance", "error", "message"),
    [
        (0.0, InvalidValue, "likelihoods.Gaussian: variance is σ² of the observations and must lie in [1e-30, 1e+30], got 0.0. Scale the data so that σ² is near 1."),
        (-1, InvalidValue, "likelihoods.Gaussian: variance is σ² of the observations and must lie in [1e-30, 1e+30], got -1. Scale the data so that σ² is near 1."),
        (math.nan, InvalidValue, "likelihoods.Gaussian: variance is σ² of the observations and must lie in [1e-30, 1e+30], got nan. Scale the data so that σ² is near 1."),
        (math.inf, InvalidValue, "likelihoods.Gaussian: variance is σ² of the observations and must lie in [1e-30, 1e+30], got inf. Scale the data so that σ² is near 1."),
        ("1", InvalidType, "likelihoods.Gaussian: variance must be a number, got '1' (str). Pass a float, e.g. Gaussian(variance=1.0)."),
        (True, InvalidType, "likelihoods.Gaussian: variance must be a number, got True (bool). Pass a float, e.g. Gaussian(variance=1.0)."),
        (torch.tensor(1.0), InvalidType, "likelihoods.Gaussian: variance must be a number, got tensor(1.) (Tensor). Pass a float, e.g. Gaussian(variance=1.0)."),
    ],
)  # fmt: skip
def test_errors_of_the_variance(variance: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        Gaussian(variance=variance)
