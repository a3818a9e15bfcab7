"""Each stochastic RNN: its noise, its padding, its state and its size."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import noisin
from noisin.data import Batch
from noisin.errors import NoisinError
from noisin.likelihoods import Bernoulli, Categorical, Gaussian, Poisson
from noisin.models import Dense, Dropouts, SequenceModel, Trainable, Values
from noisin.models.latent import (
    SRNN,
    STORN,
    VRNN,
    IndependentSRNN,
    LatentModel,
    ZForcing,
    particle_bound,
)
from noisin.models.latent.gaussian import OFFSET, SMALLEST_STD
from noisin.noise import Gaussian as GaussianNoise
from tests import stats

T, N, F, H, Z, M = 6, 4, 3, 5, 2, 7
KINDS: dict[str, Any] = {
    "storn": (STORN, {}),
    "vrnn": (VRNN, {"res_q": True}),
    "srnn-smoothing": (SRNN, {"res_q": False}),
    "srnn-filtering": (SRNN, {"smoothing": False}),
    "srnn-independent": (IndependentSRNN, {}),
    "z-forcing": (ZForcing, {"auxiliary": 0.3, "backward": 0.2}),
}
ALL = pytest.mark.parametrize("kind", KINDS)


def build(kind: str, likelihood: Any = Bernoulli(), **options: Any) -> LatentModel:  # noqa: B008
    torch.manual_seed(0)
    made, own = KINDS[kind]
    sizes = {"hidden_size": H, "z_size": Z, "mlp_size": M}
    model: LatentModel = made(F, likelihood, **{**sizes, **own, **options}).double()
    with torch.no_grad():  # biases that are not zero
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def window(scored: Tensor | None = None) -> Batch:
    torch.manual_seed(1)
    x = torch.rand(T + 1, N, F).round()
    return Batch(x[:-1], x[1:], scored)


def noise_for(K: int = 1, steps: int = T) -> Tensor:
    random = torch.Generator().manual_seed(3)
    return torch.randn(steps, K * N, Z, dtype=torch.float64, generator=random)


@ALL
def test_the_loss_is_the_mean_of_the_negative_bound(kind: str) -> None:
    model, scored = build(kind), torch.rand(T, N) < 0.7
    assert isinstance(model, Trainable)
    batch = window(scored)
    torch.manual_seed(2)
    loss = model.loss(batch)
    torch.manual_seed(2)
    log_p, state = model.log_prob(batch)
    torch.testing.assert_close(loss.mean, -log_p[scored].mean())
    torch.testing.assert_close(loss.state, state)
    assert loss.count == int(scored.sum())
    expected = {"auxiliary", "backward"} if kind == "z-forcing" else set()
    assert set(loss.terms) == expected
    model.kl_weight = 0.2
    torch.manual_seed(2)
    annealed = model.loss(batch)
    torch.testing.assert_close(annealed.mean, loss.mean)
    torch.testing.assert_close(annealed.terms["annealing"], -0.8 * loss.measured["kl"])
    annealed.objective.backward()
    missing = [name for name, p in model.named_parameters() if p.grad is None]
    assert missing == []


@ALL
def test_padding_changes_no_bound_and_no_gradient(kind: str) -> None:
    lengths = torch.tensor([6, 4, 2, 1])
    scored = (torch.arange(T).unsqueeze(1) < lengths).contiguous()
    found: list[Any] = []
    for padding in (0.0, 1.0):
        model, batch = build(kind), window(scored)
        batch.target[~scored] = padding
        batch.x[1:][~scored[:-1]] = padding
        bound = model.bound(batch, eta=noise_for())
        terms = sum(model.costs(batch, bound).values())
        (terms + (bound.log_p - bound.kl)[scored].sum()).backward()
        particles = []
        for threshold in (None, 0.7):
            torch.manual_seed(5)
            parts, _ = particle_bound(model, batch, K=3, threshold=threshold, eta=noise_for(3))
            assert (parts[~scored] == 0).all()
            particles.append(parts.detach())
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        found.append([gradients, particles, (bound.log_p - bound.kl)[scored].detach()])
    torch.testing.assert_close(found[0], found[1])
    # A piece alone, without padding, has the bound that it has beside longer ones.
    for n, length in enumerate(lengths.tolist()):
        alone = window().columns(slice(n, n + 1)).rows(slice(0, length))
        bound = model.bound(alone, eta=noise_for()[:length, n : n + 1])
        whole = model.bound(batch, eta=noise_for())
        torch.testing.assert_close(bound.log_p[:, 0], whole.log_p[:length, n])
        torch.testing.assert_close(bound.kl[:, 0], whole.kl[:length, n])


@ALL
@pytest.mark.parametrize("cell", ["lstm", "gru", "elman-tanh"])
def test_the_state_is_carried(kind: str, cell: str) -> None:
    """The posterior of a smoothing model reads the window alone, but h and z go on."""
    model, batch, eta = build(kind, cell=cell, num_layers=2), window(), noise_for()
    whole = model.bound(batch, eta=eta)
    first = model.bound(batch.rows(slice(0, 3)), eta=eta[:3])
    rest = model.bound(batch.rows(slice(3, T)), first.state, eta=eta[3:])
    if kind in ("storn", "vrnn", "srnn-filtering"):
        torch.testing.assert_close(torch.cat([first.log_p, rest.log_p]), whole.log_p)
        torch.testing.assert_close(torch.cat([first.kl, rest.kl]), whole.kl)
    else:
        fresh = model.bound(batch.rows(slice(3, T)), eta=eta[3:])
        assert not torch.allclose(fresh.log_p, rest.log_p)


@ALL
@pytest.mark.parametrize("feedback", [True, False])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_noise_is_on_the_recurrent_state_while_training(
    kind: str, feedback: bool, cell: str
) -> None:
    options = {"noise": GaussianNoise(0.5), "feedback": feedback, "cell": cell, "num_layers": 2}
    model, batch, eta = build(kind, **options), window(), noise_for()
    quiet = build(kind, cell=cell, num_layers=2)
    quiet.load_state_dict(model.state_dict())

    def log_p(net: LatentModel) -> Tensor:
        return net.bound(batch, eta=eta).log_p.detach()

    assert not torch.equal(log_p(model), log_p(model))
    with noisin.noise_off(model):
        torch.testing.assert_close(log_p(model), log_p(quiet))
    model.eval()
    torch.testing.assert_close(log_p(model), log_p(quiet))
    with noisin.noise_on(model):
        assert not torch.equal(log_p(model), log_p(model))
    # The inference network has no noise of its own, also if the model is given another one.
    noisin.set_noise(model, GaussianNoise(0.9))
    for name in ("future", "recognition"):
        part = getattr(model, name, None)
        if isinstance(part, nn.Module) and kind != "srnn-filtering":
            with noisin.noise_on(model):
                size = part.layers[0].rnn.input_size
                x = torch.randn(T, N, size, dtype=torch.float64)
                assert torch.equal(part(x)[0], part(x)[0])


@pytest.mark.parametrize("kind", ["storn", "vrnn", "z-forcing", "srnn-filtering"])
@pytest.mark.parametrize("mode", ["multiplicative", "additive"])
def test_noise_is_unbiased_given_the_past(kind: str, mode: Any) -> None:
    """``E[h_t | past] = f(past)``: the mean over the noise of a step is the clean state."""
    model, rows = build(kind, noise=GaussianNoise(0.4), mode=mode), 3000
    x, eta = torch.ones(1, rows, F), torch.ones(1, rows, Z, dtype=torch.float64)
    first = slice(M, M + H) if kind == "vrnn" else slice(H)  # of what the emission reads
    with torch.no_grad():
        noisy = model.bound(Batch(x, x), eta=eta).steps.read[0, :, first]
        clean = model.eval().bound(Batch(x, x), eta=eta).steps.read[0, 0, first]
    for k, expected in enumerate(clean.tolist()):
        std = 0.4 * (abs(expected) if mode == "multiplicative" else 1.0)
        stats.assert_mean(noisy[:, k].numpy(), expected, std)


@pytest.mark.parametrize("share", ["step", "sequence"])
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_noise_of_a_sequence(kind: str, share: Any) -> None:
    """Shared noise is drawn once per sequence, at once (LSTM) and step by step (GRU)."""
    model = build("vrnn", noise=GaussianNoise(1.0), share=share, cell=kind)
    cell: Any = model.get_submodule("layers.cells.0")
    drawn = 0

    def draw(noise: Any, shape: Any, like: Tensor) -> Tensor:
        nonlocal drawn
        drawn += torch.Size(shape).numel() // (N * H)
        found: Tensor = type(cell)._draw(cell, noise, shape, like)
        return found

    cell._draw = draw
    model.bound(window())
    assert drawn == (1 if share == "sequence" else T)


@pytest.mark.parametrize("cell", ["lstm", "gru"])
@pytest.mark.parametrize("kind", ["srnn-filtering", "srnn-smoothing"])
def test_without_z_the_bound_of_an_srnn_is_the_likelihood_of_the_rnn(kind: str, cell: str) -> None:
    """Where nothing reads z, and q = p, the KL is zero and the rest is a deterministic RNN."""
    model: Any = build(kind, cell=cell)
    with torch.no_grad():
        model.emission[0].weight[:, H:] = 0  # of z
    assert_deterministic(model, model.layers.layers, Read(model, after=Z))


@pytest.mark.parametrize("kind", ["vrnn", "storn", "z-forcing"])
def test_without_z_the_bound_is_the_likelihood_of_the_rnn(kind: str) -> None:
    """The same where z is an input of the RNN."""
    model: Any = build(kind)
    own, inputs = model.layers.cells[0].state_dict(), M
    with torch.no_grad():
        own["weight_ih"][:, inputs:] = 0  # of z, or of its embedding
        if kind == "vrnn":
            model.emission[0].weight[:, :M] = 0
    rnn = noisin.LSTM(inputs, H).double()
    own["weight_ih"] = own["weight_ih"][:, :inputs]
    rnn.load_state_dict({f"{name}_l0": weight for name, weight in own.items()})
    assert_deterministic(model, [rnn], Read(model, before=M if kind == "vrnn" else 0))


def assert_deterministic(model: Any, layers: Any, head: nn.Module) -> None:
    """That the bounds are the likelihood of an RNN, once q = p."""
    standard = math.log(math.expm1(1 - SMALLEST_STD)) - OFFSET  # where the prior of z is N(0, 1)
    laws = [model.posterior, *([model.prior] if hasattr(model, "prior") else [])]
    with torch.no_grad():
        for law in laws:
            for network in law.networks:
                last = network[-1]
                last.weight.zero_()
                last.bias.zero_()
                last.bias[-Z:] = standard if network is law.networks[-1] else 0.0
    batch = window()
    encoder = nn.Sequential(Values(F), *model.embed_u)
    expected = SequenceModel(encoder, layers, head).double().log_prob(batch)[0]
    bound = model.bound(batch)
    torch.testing.assert_close(bound.kl, torch.zeros_like(bound.kl))
    torch.testing.assert_close(bound.log_p, expected)
    found, _ = particle_bound(model, batch, K=4, threshold=0.5)
    torch.testing.assert_close(found, expected)


class Read(nn.Module):
    """The emission of a model whose z is zero, as a head of its recurrent state."""

    def __init__(self, model: LatentModel, before: int = 0, after: int = 0) -> None:
        super().__init__()
        self.model, self.padding = model, (before, after)

    def nll(self, d: Tensor, batch: Batch, memory: Any = None) -> tuple[Tensor, Any]:
        return -self.model.log_emission(nn.functional.pad(d, self.padding), batch), None


@ALL
def test_the_posterior_reads_the_target_and_the_prior_does_not(kind: str) -> None:
    """Nothing of the prediction at t depends on targets from t on but through z."""
    model, batch, eta = build(kind), window(), noise_for()
    t = 3
    other = Batch(batch.x, batch.target.clone())
    other.target[t:] = 1 - other.target[t:]
    one, two = model.bound(batch, eta=eta).steps, model.bound(other, eta=eta).steps
    assert not torch.allclose(one.q.mean[t], two.q.mean[t])
    looks_ahead = kind in ("srnn-smoothing", "srnn-independent", "z-forcing")
    before = torch.allclose(one.q.mean[:t], two.q.mean[:t])
    assert before is not looks_ahead
    if not looks_ahead:
        torch.testing.assert_close(one.p.mean[: t + 1], two.p.mean[: t + 1])


@pytest.mark.parametrize("likelihood", [Gaussian(0.5), Poisson(), Bernoulli()])
def test_other_observations_and_inputs(likelihood: Any) -> None:
    x, target = torch.randn(T, N, 5), torch.randint(2, (T, N, F)).float()
    for made in (VRNN, SRNN, STORN, IndependentSRNN, ZForcing):
        model = made(F, likelihood, input_size=5, hidden_size=H, z_size=Z, mlp_size=M)
        assert model.loss(Batch(x, target)).mean.isfinite()
    with pytest.raises(NoisinError, match=r"inputs as observations, .* 5 and 3 values"):
        ZForcing(F, likelihood, input_size=5, backward=0.1)


def test_bad_arguments() -> None:
    with pytest.raises(NoisinError, match="Stochastic RNNs of words are not available"):
        VRNN(F, Categorical())
    with pytest.raises(NoisinError, match="VRNN: z_size must be a whole number, 1 or more, got 0"):
        VRNN(F, Bernoulli(), z_size=0)
    with pytest.raises(NoisinError, match="VRNN: cell must be .*'gru'.* got 'highway'"):
        VRNN(F, Bernoulli(), cell="highway")
    with pytest.raises(NoisinError, match=r"Values: expected a non-empty tensor \(T, N, 3\)"):
        VRNN(F, Bernoulli()).loss(Batch(torch.zeros(T, N, 2), torch.zeros(T, N, 3)))


def test_dropout() -> None:
    batch, eta = window(), noise_for()
    for kind in KINDS:
        for place in ("input", "between", "output"):
            for locked in (False, True):
                dropout = Dropouts(**{place: 0.5}, locked=locked)
                model = build(kind, dropout=dropout, num_layers=2)
                one, two = (model.bound(batch, eta=eta).log_p for _ in range(2))
                assert not torch.equal(one, two), (kind, place)
                model.eval()
                one, two = (model.bound(batch, eta=eta).log_p for _ in range(2))
                assert torch.equal(one, two)


# Published sizes


def parameters(model: nn.Module, second_biases: bool = True) -> int:
    return sum(
        p.numel() for name, p in model.named_parameters() if second_biases or "bias_hh" not in name
    )


def test_the_size_of_the_authors_srnn() -> None:
    """Theirs has one bias per gate, and torch's GRU, which is ours, two."""
    model = SRNN(88, Bernoulli(), hidden_size=300, z_size=100, mlp_size=500, cell="gru")
    assert parameters(model, second_biases=False) == 3_253_788


def test_the_sizes_of_the_re_examination() -> None:
    rnn = SequenceModel(nn.Linear(88, 256), [noisin.LSTM(256, 256)], Dense(256, 88, Bernoulli()))
    assert parameters(rnn) == 571_736
    srnn = IndependentSRNN(88, Bernoulli(), hidden_size=256, z_size=256, mlp_size=256)
    assert parameters(srnn) == 2_280_792
