"""Sequence models of any observation, against likelihoods computed whole, masked or not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import noisin
from noisin import likelihoods
from noisin.data import Batch
from noisin.errors import NoisinError
from noisin.models import Dense, SequenceModel, Trainable, Values
from noisin.noise import Gaussian

T, N, F, H = 6, 4, 3, 5
OBSERVATIONS: dict[str, tuple[Any, Any]] = {
    "bernoulli": (likelihoods.Bernoulli(), lambda: torch.rand(T + 1, N, F).round()),
    "poisson": (likelihoods.Poisson(), lambda: torch.poisson(torch.full((T + 1, N, F), 2.0))),
    "gaussian": (likelihoods.Gaussian(0.5), lambda: torch.randn(T + 1, N, F)),
}


def model(likelihood: Any, **settings: Any) -> SequenceModel:
    torch.manual_seed(0)
    layers = [noisin.LSTM(F, H, **settings), noisin.GRU(H, H, **settings)]
    return SequenceModel(Values(F), layers, Dense(H, F, likelihood))


def window(name: str, scored: Tensor | None = None) -> Batch:
    torch.manual_seed(1)
    x = OBSERVATIONS[name][1]()
    return Batch(x[:-1], x[1:], scored)


@pytest.mark.parametrize("name", OBSERVATIONS)
@pytest.mark.parametrize("masked", [False, True])
def test_the_loss_is_the_mean_nll_of_what_is_scored(name: str, masked: bool) -> None:
    scored = torch.rand(T, N) < 0.6 if masked else None
    likelihood, net = OBSERVATIONS[name][0], model(OBSERVATIONS[name][0])
    batch = window(name, scored)
    s, state = net(batch.x)
    nll = likelihood.nll(s=s, x=batch.target).sum(-1)
    assert nll.shape == (T, N)
    expected = nll.mean() if scored is None else nll[scored].mean()
    loss = net.loss(batch)
    torch.testing.assert_close(loss.mean, expected)
    torch.testing.assert_close(net.log_prob(batch)[0], -nll)
    torch.testing.assert_close(loss.state, state)
    assert isinstance(net, Trainable)


@pytest.mark.parametrize("name", OBSERVATIONS)
def test_padding_changes_nothing(name: str) -> None:
    """Neither the loss nor a gradient: what is not scored may hold anything finite."""
    scored = (torch.arange(T).unsqueeze(1) < torch.tensor([6, 4, 2, 1])).contiguous()
    found = []
    for padding in (0.0, 1.0):
        net, batch = model(OBSERVATIONS[name][0]), window(name, scored)
        batch.target[~scored] = padding
        batch.x[1:][~scored[:-1]] = padding
        net.loss(batch).mean.backward()
        found.append([p.grad for p in net.parameters()])
    torch.testing.assert_close(found[0], found[1])


def test_the_state_is_carried_from_batch_to_batch() -> None:
    net, batch = model(likelihoods.Bernoulli()).double(), window("bernoulli")
    whole, _ = net.log_prob(batch)
    first = Batch(batch.x[:2], batch.target[:2])
    rest = Batch(batch.x[2:], batch.target[2:])
    one, state = net.log_prob(first)
    two, _ = net.log_prob(rest, state)
    torch.testing.assert_close(torch.cat([one, two]), whole)


def test_noise_acts_while_training_only() -> None:
    net, batch = model(likelihoods.Bernoulli(), noise=Gaussian(0.5)), window("bernoulli")
    assert not torch.equal(net.loss(batch).mean, net.loss(batch).mean)
    net.eval()
    assert torch.equal(net.loss(batch).mean, net.loss(batch).mean)


class Remembering(Dense):
    """A head with a memory: the mean of all z so far."""

    def nll(self, z: Tensor, batch: Batch, memory: Any = None) -> tuple[Tensor, Any]:
        before = z.new_zeros(1, *z.shape[1:]) if memory is None else memory
        return super().nll(z + before, batch)[0], (before + z.mean(0, keepdim=True)).detach()

    def mean_nll(self, z: Tensor, batch: Batch, memory: Any = None) -> tuple[Tensor, Any]:
        nll, memory = self.nll(z, batch, memory)
        return nll.mean(), memory


def test_a_head_may_carry_a_memory() -> None:
    net = SequenceModel(Values(F), [noisin.RNN(F, H)], Remembering(H, F, likelihoods.Bernoulli()))
    batch = window("bernoulli")
    state = net.loss(batch).state
    assert len(state) == 2
    assert state[1].shape == (1, N, H)
    assert not torch.equal(net.log_prob(batch, state)[0], net.log_prob(batch, state[:1])[0])
    with pytest.raises(NoisinError, match="one part for each of 1 layers, got 3 parts"):
        net.log_prob(batch, (*state, None))


def test_a_temperature_divides_the_natural_parameters() -> None:
    net, batch = model(likelihoods.Bernoulli()), window("bernoulli")
    s, _ = net(batch.x)
    nll = likelihoods.Bernoulli().nll(s=s / 2, x=batch.target).sum(-1)
    torch.testing.assert_close(net.log_prob(batch, temperature=2.0)[0], -nll)


@pytest.mark.parametrize("x", [torch.zeros(2, 3), torch.zeros(2, 3, F + 1), torch.zeros(0, 3, F)])
def test_values_of_another_size_are_refused(x: Tensor) -> None:
    with pytest.raises(NoisinError, match=rf"expected a non-empty tensor \(T, N, {F}\)"):
        Values(F)(x)


def test_the_parts_are_modules_of_the_model() -> None:
    net = model(likelihoods.Bernoulli())
    assert isinstance(net.head, nn.Module)
    assert {name.split(".")[0] for name, _ in net.named_parameters()} == {"layers", "head"}
    assert net.double()(window("bernoulli").x)[0].dtype == torch.float64
