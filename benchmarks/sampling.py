"""What drawing the noise of a layer costs, as a share of the layer."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from benchmarks.rivals import Problem, Size
from benchmarks.timing import Comparison, compare
from noisin import noise

# At the spreads that the paper tuned; Beta and Chi-square also at the ends of its range.
LAWS: dict[str, noise.Noise] = {
    "Gaussian": noise.Gaussian(1.1),
    "Bernoulli": noise.Bernoulli(0.45),
    "Gumbel": noise.Gumbel(1.1),
    "Logistic": noise.Logistic(1.1),
    "Laplace": noise.Laplace(1.1),
    "Gamma(2)": noise.Gamma(1.1, alpha=2.0),
    "Beta(2, 1.07)": noise.Beta(1.07, alpha=2.0),
    "Chi-square(1.2)": noise.ChiSquare(1.2),
    "Beta(2, 0.1)": noise.Beta(0.1, alpha=2.0),
    "Beta(2, 1.5)": noise.Beta(1.5, alpha=2.0),
    "Chi-square(0.2)": noise.ChiSquare(0.2),
    "Chi-square(1.5)": noise.ChiSquare(1.5),
}


def compare_samplers(
    size: Size = Size("LSTM", 650, 80),  # noqa: B008 - frozen
    budget: float = 20.0,
) -> Iterator[Comparison]:
    """One comparison: torch's layer, forward and backward, and a draw from each law."""
    problem = Problem(size)
    rivals: dict[str, Callable[[], object]] = {"torch": problem.torch()}
    for name, law in LAWS.items():
        rivals[name] = lambda law=law: law.sample(problem.x.shape, like=problem.grad)
    yield compare(f"sampling for {size}", rivals, budget)
