"""The regularizers: what each adds to a noisy layer, and what those that run step by step take.

``regularized``
    a noisy layer by the kernels, with each regularizer that they have, over the plain one.
``step by step``
    layers that have no kernel, and zoneout, over a loop over torch's cell.
``mixture of softmaxes``, ``dynamic evaluation``
    a head, and segments of five words that are scored and learnt from, over their products.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.models import Shape
from benchmarks.rivals import GAMMA, Problem, Size
from benchmarks.timing import Comparison, Rival, compare
from noisin import noise
from noisin.data import Batch
from noisin.likelihoods import Categorical
from noisin.likelihoods._chunked import HEAD, over_few_rows
from noisin.models import Dropouts, LanguageModel
from noisin.models.layers import layer
from noisin.models.mixture import MixtureOfSoftmaxes
from noisin.models.steps import GateDropout
from noisin.recurrent.injection import Injection
from noisin.regularizers.sequences import Dropout
from noisin.regularizers.terms import ActivationPenalty, SlownessPenalty, Trace
from noisin.regularizers.weights import WeightDrop
from noisin.training.predictors import Dynamic, Rates, Statistics

SIZES = [Size("LSTM", 650, 20), Size("LSTM", 256, 20)]
MIXTURE = Shape(O=10_000, H=200, N=20)
TEXT = Shape(O=10_000, N=1, T=5)
EXPERTS, CHUNK = 5, 510  # rows of logits at a time
PER_GATE = GateDropout(0.25, 0.25, locked=True, site="before")
TERMS = ActivationPenalty(2.0), SlownessPenalty(1.0)

Regularize = Callable[[Problem], Rival]


def compare_regularizers(
    sizes: Iterable[Size] = SIZES,
    mixture: Shape = MIXTURE,
    text: Shape = TEXT,
    budget: float = 10.0,
) -> Iterator[Comparison]:
    """Two comparisons per size, one of the mixture of softmaxes and one of dynamic evaluation."""
    for size in sizes:
        problem = Problem(size)
        kinds = {name: make(problem) for name, make in IN_KERNELS.items()}
        yield compare(f"regularized {size}", kinds, budget)
        steps = {name: make(problem) for name, make in BY_STEPS.items()}
        yield compare(f"step by step, {size}", {"loop": problem.loop(), **steps}, budget)
    yield compare(f"mixture of {EXPERTS} softmaxes", mixture_rivals(mixture), budget)
    yield compare("dynamic evaluation of 70 words", dynamic_rivals(text), budget)


def noisy(problem: Problem, *, cell: str = "lstm", **options: Any) -> Rival:
    """A layer with noise and other regularizers."""
    H = problem.size.H
    rnn = layer(cell, H, H, injection=Injection(noise.Gaussian(GAMMA)), **options)
    return lambda: problem.backward(rnn(problem.x)[0], rnn)


def gal(problem: Problem, p: float = 0.25) -> Rival:
    """One mask for all steps of what is read of the input and the state, and of the output."""
    H, drop = problem.size.H, Dropout(p, locked=True)
    rnn = layer("lstm", H, H, injection=Injection(noise.Gaussian(GAMMA)), dropout=drop)
    return lambda: problem.backward(drop(rnn(drop(problem.x))[0]), rnn)


def penalised(problem: Problem) -> Rival:
    """AR and TAR on what a layer emits."""
    H = problem.size.H
    rnn = layer("lstm", H, H, injection=Injection(noise.Gaussian(GAMMA)))
    leaves, batch = [problem.x, *rnn.parameters()], Batch(problem.x, problem.x)

    def run() -> object:
        z = rnn(problem.x)[0]
        terms = [term(Trace((z,), (z,), None), batch) for term in TERMS]
        ones = [torch.ones_like(term) for term in terms]
        return torch.autograd.grad([z, *terms], leaves, [problem.grad, *ones])

    return run


IN_KERNELS: dict[str, Regularize] = {
    "plain": noisy,
    "weight drop": partial(noisy, weight_drop=WeightDrop(0.5)),
    "Gal": gal,
    "Gal, a mask for each gate": partial(noisy, gate_dropout=PER_GATE),
    "recurrent dropout": lambda problem: noisy(problem, dropout=Dropout(0.25)),
    "dropout of updates": partial(noisy, update_dropout=(0.25,)),
    "zoneout": partial(noisy, zoneout=(0.05, 0.5)),
    "AR and TAR": penalised,
}
BY_STEPS: dict[str, Regularize] = {
    "zoneout": partial(noisy, zoneout=(0.05, 0.5)),
    "layer norm": partial(noisy, cell="layer-norm-lstm"),
    "highway": partial(noisy, cell="highway", cell_arguments={"depth": 1}),
}


def mixture_rivals(shape: Shape) -> dict[str, Rival]:
    """The loss of a mixture of softmaxes with all gradients, and its products alone."""
    head = MixtureOfSoftmaxes(shape.H, shape.O, Categorical(), experts=EXPERTS)
    x, target = shape.window()
    z = torch.randn(*x.shape, shape.H, requires_grad=True)

    def loss() -> object:
        mean = head.mean_nll(z, Batch(x, target))[0]
        return torch.autograd.grad(mean, [z, *head.parameters()])

    rows = z.detach().flatten(0, 1)
    latent = torch.randn(len(rows) * EXPERTS, shape.H)
    weights = [head.latent.weight.detach(), head.prior.weight.detach()]

    def products() -> None:
        for weight in weights:
            linear_products(rows, weight.t())
        head_products(latent, head.weight.detach().t())

    return {"products": products, "noisin": loss}


def linear_products(z: Tensor, V: Tensor) -> None:
    """``z V``, and its gradients."""
    d = z @ V
    _ = d @ V.t(), z.t() @ d


def head_products(z: Tensor, V: Tensor) -> None:
    """The products of a prediction and its gradients, some rows at a time."""
    total = torch.zeros(V.t().shape)
    s = torch.empty(min(CHUNK, len(z)), V.shape[1])
    for part in torch.split(z, CHUNK):
        ds = HEAD("logits", part, V, out=s[: len(part)])
        HEAD("states", ds, V.t())
        total.addmm_(ds.t(), part)


def dynamic_rivals(shape: Shape) -> dict[str, Rival]:
    """Dynamic evaluation of a batch; and its products with the updates of all weights."""
    model = LanguageModel(
        shape.O, hidden_size=shape.H, num_layers=shape.layers, dropout=Dropouts(0.5)
    )
    weights = [p.detach() for p in model.parameters()]
    statistics = Statistics([torch.full_like(w, 1e-6) for w in weights], n=1)
    dynamic = Dynamic(model, Rates(), statistics, shape.T)
    batch = Batch(*replace(shape, T=dynamic.rows).window())
    state: Any = dynamic(batch)[1]

    def run() -> None:
        nonlocal state
        state = dynamic(batch, state)[1]

    recurrence = Problem(Size("LSTM", shape.H, shape.N, shape.T)).limit()
    z, V = torch.randn(shape.T * shape.N, shape.H), model.V.detach()
    adapted = [w.clone() for w in weights]
    rates = [torch.full_like(w, 1e-3) for w in weights]

    def segment() -> None:
        for _ in range(shape.layers):
            recurrence()
        ds = HEAD("logits", z, V)
        HEAD("states", ds, V.t())
        over_few_rows(ds, z)
        torch._foreach_lerp_(adapted, weights, rates)
        torch._foreach_addcmul_(adapted, rates, rates, value=-1)

    return {"noisin": run, "products": lambda: [segment() for _ in range(dynamic.rows // shape.T)]}
