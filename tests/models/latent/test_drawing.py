"""Ancestral samples of stochastic RNNs: their law is that of the model's likelihood."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any, cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from noisin.data import Batch
from noisin.likelihoods import Bernoulli
from noisin.models import Autoregressive, SequenceModel, Values
from noisin.models.latent import SRNN, VRNN, LatentModel, particle_bound
from noisin.models.paths import draw
from tests import stats
from tests.models.latent import kalman
from tests.models.latent.test_models import ALL, KINDS, Read, build, window

PATHS, PARTICLES, STEPS, NOTES = 20_000, 1_000, 2, 2


def same(drawn: Tensor) -> Tensor:
    return drawn.double()


def small(kind: str) -> LatentModel:
    """A model of two notes whose latent variable matters."""
    torch.manual_seed(4)
    made, own = KINDS[kind]
    options = {name: own[name] for name in ("smoothing",) if name in own}
    options |= {"res_q": True} if made in (VRNN, SRNN) else {}
    sizes = {"hidden_size": 4, "z_size": 2, "mlp_size": 6}
    model: Any = made(NOTES, Bernoulli(), **sizes, **options).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
        model.head.weight.mul_(8.0)
        # A posterior near the prior, and wider: importance weights without heavy tails.
        mean, std = model.posterior.networks[0][-1], model.posterior.networks[-1][-1]
        std.weight[-2:] *= 0.1
        std.bias[-2:] += 1.0
        mean.weight[:2] *= 0.1
        mean.bias[:2] *= 0.1
        if kind != "storn":
            mean, std = model.prior.networks[0][-1], model.prior.networks[-1][-1]
            std.weight[-2:] *= 0.1
            mean.weight[:2] *= 3.0 if "res_q" in options else 0.5
            mean.bias[:2] += 0.7
    return cast(LatentModel, model)


def probabilities(model: LatentModel) -> tuple[np.ndarray, np.ndarray]:
    """``p(x)`` of every sequence of two frames by importance sampling, with standard errors.

    The latent variables are drawn from the posterior, so this shares no draw with the prior.
    """
    notes = list(itertools.product([0.0, 1.0], repeat=STEPS * NOTES))
    frames = torch.tensor(notes).view(-1, STEPS, NOTES).transpose(0, 1)
    x = torch.cat([torch.zeros_like(frames[:1]), frames[:-1]])
    found = []
    with torch.no_grad():
        for seed in range(6):
            torch.manual_seed(seed)
            parts, _ = particle_bound(model, Batch(x, frames), K=PARTICLES)
            found.append(parts.sum(0).exp().numpy())
    return np.mean(found, 0), np.std(found, 0, ddof=1) / len(found) ** 0.5


@ALL
def test_the_law_of_what_is_drawn_is_that_of_the_likelihood(kind: str) -> None:
    model = small(kind)
    p, error = probabilities(model)
    random = torch.Generator().manual_seed(1)
    x = torch.zeros(PATHS, NOTES, dtype=torch.float64)
    drawn = draw(model, x, STEPS, same, generator=random)
    place = 2.0 ** torch.arange(STEPS * NOTES - 1, -1, -1).view(STEPS, 1, NOTES)
    which = (drawn * place).sum((0, 2)).long().numpy()
    for seed in range(4):
        signs = np.random.RandomState(seed).choice([-1.0, 1.0], len(p))
        mean = float(signs @ p)
        spread = 1 - mean**2 + PATHS * float(np.square(error).sum())
        stats.assert_mean(signs[which], mean, spread**0.5)
    s, _ = model.predict_next(x.unsqueeze(0))
    assert s.std(0).max() > 0.2, "z matters"


@ALL
def test_the_stream_is_the_one_given(kind: str) -> None:
    model, x = build(kind).eval(), torch.zeros(3, 3, dtype=torch.float64)
    found: list[Tensor] = []
    for seed in (1, 1, 2):
        torch.manual_seed(len(found))  # torch's own stream has no part in it
        random = torch.Generator().manual_seed(seed)
        found.append(draw(model, x, 20, same, generator=random))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_without_z_the_prediction_is_that_of_the_rnn(cell: str) -> None:
    """Where the emission does not read z, nothing else is random: a deterministic generator."""
    model: Any = build("srnn-filtering", cell=cell).eval()
    H = model.hidden_size
    with torch.no_grad():
        model.emission[0].weight[:, H:] = 0
    rnn = SequenceModel(
        nn.Sequential(Values(3), *model.embed_u), model.layers.layers, Reading(model, after=2)
    ).double()
    x, state, before = window().x.double(), None, None
    for t in range(len(x)):
        s, state = model.predict_next(x[t : t + 1], state)
        expected, before = rnn.predict_next(x[t : t + 1], before)
        torch.testing.assert_close(s, expected)
    after_all, _ = model.predict_next(x)
    torch.testing.assert_close(after_all, s)


class Reading(Read):
    """The same head, which also predicts."""

    def predict(self, d: Tensor, memory: Any = None) -> Tensor:
        s: Tensor = self.model.head.predict(self.model.emission(nn.functional.pad(d, self.padding)))
        return s


def test_after_reading_the_prediction_is_that_of_the_kalman_filter() -> None:
    """With the exact posterior, z of the past is drawn from its law given what was read."""
    T, K = 6, 20_000
    x = kalman.draw(T, 1)
    model = kalman.StateSpace("smoothing")
    torch.manual_seed(0)
    with torch.no_grad():
        _, state = model.log_prob(Batch(x, x).repeat(K))
        drawn = draw(
            model, x[-1].repeat(K, 1), 2, same, state=state, generator=torch.Generator()
        ).numpy()
    mean, var = kalman.filtered(x[:, 0].numpy())
    for step in range(2):
        mean, var = kalman.A * mean, kalman.A**2 * var + kalman.Q
        for i in range(2):
            law = kalman.C[i] * mean, kalman.C[i] ** 2 * var + kalman.R
            stats.assert_mean(drawn[step, :, i], law[0], law[1] ** 0.5)
            squares = (drawn[step, :, i] - law[0]) ** 2
            stats.assert_mean(squares, law[1], 2**0.5 * law[1])


def test_a_head_that_draws_the_values_of_a_frame_one_by_one() -> None:
    """Two notes that are always equal, which no head with independent notes can draw."""
    torch.manual_seed(0)
    model = VRNN(2, Bernoulli(), hidden_size=4, head=partial(Autoregressive, hidden=1)).eval()
    head = cast(Autoregressive, model.head)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.zero_()
        head.weight_in[0, 0] = head.weight_out[1, 0] = 20.0
        head.linear.bias[1] = -50.0
    frames = draw(model, torch.zeros(2000, 2), 3, lambda drawn: drawn)
    assert torch.equal(frames[..., 0], frames[..., 1])
    stats.assert_mean(frames[..., 0].flatten().numpy(), 0.5, 0.5)
