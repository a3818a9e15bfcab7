"""The heads of words: against oracles, tied and not, with memory, samples and temperatures."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from noisin import noise
from noisin._util import states
from noisin.data import Batch, Vocabulary
from noisin.errors import NoisinError
from noisin.likelihoods import Bernoulli, Categorical
from noisin.models import Dropouts, LanguageModel, SequenceModel, generate
from noisin.models.mixture import MixtureOfSoftmaxes
from noisin.models.pointer import PointerSentinel
from noisin.training.predictors import Arithmetic, Clean, Geometric, evaluate
from tests.pairwise import table

WORDS, E, H, T, N, L = 7, 4, 6, 5, 3, 4
HEADS: dict[str, Any] = {
    "mixture": partial(MixtureOfSoftmaxes, experts=3),
    "pointer": partial(PointerSentinel, window=L),
}
STRONG = {"feedback": False, "noisy_layers": "last"}


def model(head: str, tied: bool = True, **settings: Any) -> LanguageModel:
    torch.manual_seed(0)
    sizes = {"hidden_size": H, "embedding_size": E} | settings
    lm = LanguageModel(WORDS, head=HEADS[head], tied=tied, **sizes).double()
    with torch.no_grad():
        for parameter in lm.parameters():
            parameter.mul_(5)  # so that the predictions are far from uniform
    return lm


def batch(steps: int = T, scored: bool = False, seed: int = 1) -> Batch:
    g = torch.Generator().manual_seed(seed)
    words = torch.randint(WORDS, (steps + 1, N), generator=g)
    mask = torch.rand(steps, N, generator=g) < 0.6 if scored else None
    return Batch(words[:-1], words[1:], mask)


# The oracles: loops over steps and words, with probabilities and not their logarithms


def mixture_oracle(lm: LanguageModel, b: Batch) -> Tensor:
    z, _ = lm.encode(b.x)
    head = lm.prediction
    p = torch.zeros(T, N, WORDS, dtype=torch.float64)
    for t in range(T):
        for n in range(N):
            pi = (head.prior.weight @ z[t, n]).softmax(0)
            h = torch.tanh(head.latent.weight @ z[t, n] + head.latent.bias)
            for k in range(head.experts):
                size = head.weight.shape[1]
                s = head.weight @ h[k * size : (k + 1) * size] + head.bias
                p[t, n] += pi[k] * s.softmax(0)
    return p


def pointer_oracle(lm: LanguageModel, b: Batch) -> Tensor:
    z, _ = lm.encode(b.x)
    head = lm.prediction
    p = torch.zeros(len(z), N, WORDS, dtype=torch.float64)
    for n in range(N):
        for t in range(len(z)):
            q = torch.tanh(head.query.weight @ z[t, n] + head.query.bias)
            window = range(max(0, t - L + 1), t + 1)
            a = torch.stack([*(q @ z[i, n] for i in window), q @ head.sentinel]).softmax(0)
            p[t, n] = a[-1] * (head.weight @ z[t, n] + head.bias).softmax(0)
            for weight, i in zip(a[:-1], window, strict=True):
                p[t, n, b.x[i, n]] += weight
    return p


ORACLES = {"mixture": mixture_oracle, "pointer": pointer_oracle}


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("head", HEADS)
def test_it_is_the_loop(head: str, tied: bool) -> None:
    lm, b = model(head, tied), batch()
    p = ORACLES[head](lm, b)
    assert_close(p.sum(-1), torch.ones(T, N, dtype=torch.float64))
    assert_close(lm(b.x)[0].exp(), p)
    log_p = p.log().gather(-1, b.target.unsqueeze(-1)).squeeze(-1)
    assert_close(lm.log_prob(b)[0], log_p)
    assert_close(lm.loss(b).mean, -log_p.mean())
    masked = batch(scored=True)
    assert masked.scored is not None
    assert_close(lm.loss(masked).mean, -log_p[masked.scored].mean())


@pytest.mark.parametrize("scored", [False, True])
@pytest.mark.parametrize("head", HEADS)
def test_the_gradients_are_those_of_the_loop(head: str, scored: bool) -> None:
    lm, b = model(head), batch(scored=scored)
    lm.loss(b).mean.backward()
    found = [p.grad for p in lm.parameters()]
    lm.zero_grad()
    nll = -ORACLES[head](lm, b).log().gather(-1, b.target.unsqueeze(-1)).squeeze(-1)
    (nll if b.scored is None else nll[b.scored]).mean().backward()
    assert_close(found, [p.grad for p in lm.parameters()])


@pytest.mark.parametrize(("head", "tied", "temperature"), table(HEADS, (True, False), (0.5, 2.0)))
def test_a_temperature_is_a_power(head: str, tied: bool, temperature: float) -> None:
    lm, b = model(head, tied), batch()
    p = ORACLES[head](lm, b) ** (1 / temperature)
    p = (p / p.sum(-1, keepdim=True)).gather(-1, b.target.unsqueeze(-1)).squeeze(-1)
    found, state = lm.log_prob(b, temperature=temperature)
    assert_close(found, p.log())
    assert_close(state, lm.log_prob(b)[1])
    score = evaluate(Clean(lm, temperature), [b])
    assert score.nats == pytest.approx(-float(p.detach().log().mean()))


@pytest.mark.parametrize("head", HEADS)
def test_the_state_joins_batches(head: str) -> None:
    """Also where a batch is shorter, or longer, than the words that a pointer sees."""
    lm, b = model(head), batch(13)
    whole, end = lm.log_prob(b)
    everything = lm(b.x)[0]
    pieces, state, predicted, forwarded, nexts = [], None, [], None, None
    for start, stop in ((0, 1), (1, 3), (3, 11), (11, 13)):
        part = Batch(b.x[start:stop], b.target[start:stop])
        log_p, state = lm.log_prob(part, states.detach(state))
        pieces.append(log_p)
        s, forwarded = lm(part.x, forwarded)
        predicted.append(s)
        s, nexts = lm.predict_next(part.x, nexts)
        assert_close(s, everything[stop - 1])
    assert_close(torch.cat(pieces), whole)
    assert_close(torch.cat(predicted), everything)
    for found in (state, forwarded, nexts):
        assert_close(found, end)
    _, other = lm.log_prob(b, None)
    fresh, _ = lm.log_prob(b, other)  # the memory matters
    assert not torch.equal(fresh, whole)


@pytest.mark.parametrize("head", HEADS)
def test_samples_are_copies_of_the_rows(head: str) -> None:
    K = 2
    lm, b = model(head, noise=noise.Gaussian(0.5), **STRONG), batch()
    found = []
    for given, more in ((b, {"samples": K}), (b.repeat(K), {})):
        torch.manual_seed(6)
        state = lm.loss(given, **more).state
        assert all(part.shape[-2] == K * N for layer in state for part in layer)
        loss = lm.loss(given, states.detach(state), **more)
        found.append((loss.mean, dict(loss.terms), loss.state))
    assert_close(*found)
    spread = lm.loss(b, model(head).log_prob(b)[1], samples=K).state  # N rows become K·N
    assert spread[-1][0].shape[-2] == K * N


@pytest.mark.parametrize("head", HEADS)
def test_columns_are_independent(head: str) -> None:
    lm, b = model(head), batch(2 * T)
    first, second = Batch(b.x[:T], b.target[:T]), Batch(b.x[T:], b.target[T:])
    state = lm.log_prob(first)[1]
    whole = lm.log_prob(second, state)[0]
    for n in range(N):
        own = slice(n, n + 1)
        part = lm.log_prob(second.columns(own), states.columns(state, own, N))[0]
        assert_close(part, whole[:, own])


@pytest.mark.parametrize("head", HEADS)
def test_copies_and_modes(head: str) -> None:
    settings = {"head": partial(MixtureOfSoftmaxes, experts=3, dropout=0.5)}
    lm = model(head)
    if head == "mixture":
        torch.manual_seed(0)
        lm = LanguageModel(WORDS, hidden_size=H, embedding_size=E, **settings).double()
        assert not torch.equal(lm.loss(batch()).mean, lm.loss(batch()).mean)
        torch.manual_seed(2)
        h = lm.prediction._experts(lm.encode(batch().x)[0])[0].flatten(2)
        assert torch.equal(h[0] == 0, h[-1] == 0)  # one mask for all steps
        assert 0 < (h == 0).double().mean() < 1
    lm.eval()
    clean = lm.loss(batch()).mean
    copied = copy.deepcopy(lm)
    assert torch.equal(copied.loss(batch()).mean, clean)
    assert copied.prediction.weight is copied.embedding.weight
    with torch.no_grad():
        copied.embedding.weight.mul_(2)
    assert torch.equal(lm.loss(batch()).mean, clean)
    other = model(head, last_size=lm.layers[-1].rnn.hidden_size)
    other.load_state_dict(lm.state_dict())
    assert torch.equal(other.eval().loss(batch()).mean, clean)
    assert torch.equal(lm.train().eval().loss(batch()).mean, clean)


@pytest.mark.parametrize("head", HEADS)
def test_a_generator_is_the_only_source(head: str) -> None:
    """Initialisation and dropout draw from it, and none from the global stream."""
    options = {"dropout": 0.5} if head == "mixture" else {}
    found = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        generator = torch.Generator().manual_seed(7)
        lm = LanguageModel(
            WORDS, hidden_size=H, head=partial(HEADS[head], **options), generator=generator
        )
        found.append([lm.loss(batch()).mean.detach(), *lm.state_dict().values()])
        assert torch.equal(torch.get_rng_state(), before)
    assert_close(found[0], found[1], rtol=0, atol=0)


@pytest.mark.parametrize("head", HEADS)
def test_text_is_generated(head: str) -> None:
    lm = model(head)
    vocab = Vocabulary(("<eos>", *(f"w{k}" for k in range(1, WORDS))))
    words = generate(lm, vocab, "w1 w2", 6, temperature=0)
    x = torch.tensor([[0], [1], [2]])
    with torch.no_grad():
        for word in words:
            best = int(lm.eval()(x)[0][-1, 0].argmax())
            assert vocab.decode([best]) == [word]
            x = torch.cat([x, torch.tensor([[best]])])


@pytest.mark.parametrize("head", HEADS)
def test_predictors(head: str) -> None:
    lm = model(head, noise=noise.Gaussian(0.3))
    batches = [batch(), batch(seed=2)]
    assert evaluate(Arithmetic(lm, 3), batches).stderr is not None
    with pytest.raises(NoisinError, match="linear head"):
        Geometric(lm, 3)


# The pointer sentinel alone


def test_a_gate_of_one_is_the_plain_model() -> None:
    lm, b = model("pointer"), batch()
    head = lm.prediction
    with torch.no_grad():
        head.query.weight.zero_()
        head.query.bias.fill_(1)
        head.sentinel.fill_(1e3)
    plain = LanguageModel(WORDS, hidden_size=H, embedding_size=E).double()
    plain.load_state_dict(
        {name: value for name, value in lm.state_dict().items() if "prediction" not in name}
        | {"bias": head.bias}
    )
    assert_close(lm.log_prob(b)[0], plain.log_prob(b)[0])
    assert_close(lm.loss(b).terms["pointer"], torch.tensor(0.0, dtype=torch.float64))


def test_the_second_term_of_the_loss() -> None:
    lm, b = model("pointer"), batch()
    loss, z = lm.loss(b), lm.encode(b.x)[0]
    log_a, log_g = lm.prediction._attention(z, lm.prediction.remember(z, b.x, None)[0])
    a, total = log_a.exp(), 0.0
    for t in range(T):
        for n in range(N):
            window = [i for i in range(T) if i <= t and i > t - L and b.x[i, n] == b.target[t, n]]
            mass = log_g[t, n].exp() + sum(a[t, n, L + i] for i in window)
            total -= float(mass.detach().log()) / (T * N)
    assert float(loss.terms["pointer"].detach()) == pytest.approx(total)
    assert_close(loss.objective, loss.mean + loss.terms["pointer"])
    loss.terms["pointer"].backward()
    assert lm.prediction.sentinel.grad.abs().sum() > 0
    silent = LanguageModel(WORDS, hidden_size=H, head=partial(PointerSentinel, supervision=0.0))
    assert silent.loss(b).terms == {}


def test_the_memory_of_earlier_batches_is_detached_by_whoever_carries_it() -> None:
    lm, b = model("pointer"), batch()
    state = lm.loss(b).state
    keys, words = state[-1]
    assert (keys.shape, words.shape) == ((L, N, E), (L, N, 1))
    assert torch.equal(words.squeeze(-1), b.x[-L:])
    loss = lm.loss(b, states.detach(state)).objective
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in lm.parameters())


# What is refused


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (partial(MixtureOfSoftmaxes, experts=0), "experts must be a whole number, 1 or more"),
        (partial(MixtureOfSoftmaxes, dropout=1.0), r"must lie in \[0, 1\)"),
        (partial(PointerSentinel, window=0), "window must be a whole number of words, 1 or more"),
        (partial(PointerSentinel, supervision=-1.0), "supervision must be a finite number, 0 or"),
        ("pointer-sentinel", "head must be None or a class"),
    ],
)
def test_bad_settings(make: Any, message: str) -> None:
    with pytest.raises(NoisinError, match=message):
        LanguageModel(WORDS, hidden_size=H, head=make)


def test_other_data_and_sizes_are_refused() -> None:
    with pytest.raises(NoisinError, match="the likelihood must be Categorical, got Bernoulli"):
        MixtureOfSoftmaxes(4, 3, Bernoulli())
    embedding = torch.nn.Parameter(torch.zeros(WORDS, E))
    with pytest.raises(NoisinError, match=r"embedding of shape \(7, 6\), got \(7, 4\). Use layers"):
        PointerSentinel(H, WORDS, Categorical(), embedding=embedding)


def test_an_own_head_without_the_new_methods_still_works() -> None:
    from noisin.models import Dense, Words

    net = SequenceModel(Words(WORDS, E), [torch.nn.LSTM(E, H)], Dense(H, WORDS, Categorical()))
    b = batch()
    assert net.predict_next(b.x)[0].shape == (N, WORDS)
    lm = LanguageModel(WORDS, hidden_size=H, tied=False, head=Dense, dropout=Dropouts(0.1))
    assert lm.loss(b).terms == {}
