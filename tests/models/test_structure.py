"""The structure of language models: sizes of layers, skip connections, projections, counts."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from scipy import stats
from torch import Tensor, nn
from torch.testing import assert_close

from noisin import noise
from noisin._util import states
from noisin.data import Batch
from noisin.errors import NoisinError
from noisin.models import Dropouts, LanguageModel
from noisin.models.mixture import MixtureOfSoftmaxes
from noisin.models.pointer import PointerSentinel
from noisin.models.projection import DownProjection
from noisin.regularizers.terms import ActivationPenalty
from tests.stats import assert_law

WORDS, E, H, T, N = 11, 4, 6, 5, 3
STRONG = {"feedback": False, "noisy_layers": "last"}


def count(**settings: Any) -> int:
    with torch.device("meta"):
        lm = LanguageModel(**settings)
    assert all(p.is_meta for p in lm.parameters())
    return sum(p.numel() for p in lm.parameters())


MOS = {"num_layers": 3, "head": partial(MixtureOfSoftmaxes, experts=15)}
COUNTS: dict[str, tuple[dict[str, Any], int]] = {
    "AWD-LSTM": (
        {"num_words": 10_000, "hidden_size": 1150, "embedding_size": 400, "num_layers": 3},
        24_221_600,
    ),
    "AWD-LSTM-MoS, PTB": (
        {"num_words": 10_000, "hidden_size": 960, "embedding_size": 280, "last_size": 620} | MOS,
        21_500_620,
    ),
    "AWD-LSTM-MoS, WikiText-2": (
        {"num_words": 33_278, "hidden_size": 1150, "embedding_size": 300, "last_size": 650} | MOS,
        34_909_528,
    ),
    "pointer sentinel": (
        {"num_words": 10_000, "hidden_size": 650, "tied": False, "head": PointerSentinel},
        20_204_200,
    ),
    "fraternal": ({"num_words": 10_000, "hidden_size": 655, "num_layers": 1}, 9_997_440),
    "Melis, 1 layer": (
        {"num_words": 10_001, "hidden_size": 1194, "embedding_size": 268, "num_layers": 1}
        | {"skip": True, "projection": 0.327, "cell": "melis-lstm"},
        9_997_549,
    ),
    "Melis, 4 layers": (
        {
            "num_words": 10_001,
            "hidden_size": 723,
            "num_layers": 4,
            "skip": True,
            "cell": "melis-lstm",
        },
        23_979_620,
    ),
    "Melis, WikiText-2": (
        {"num_words": 33_279, "hidden_size": 1227, "embedding_size": 149, "num_layers": 2}
        | {"skip": True, "projection": 0.3915, "cell": "melis-lstm"},
        23_982_129,
    ),
    "Inan, medium": ({"num_words": 10_000, "output_bias": False}, 13_270_400),
}


@pytest.mark.parametrize("name", COUNTS)
def test_parameters_of_published_models(name: str) -> None:
    settings, expected = COUNTS[name]
    assert count(**settings) == expected


def model(**settings: Any) -> LanguageModel:
    torch.manual_seed(0)
    return LanguageModel(WORDS, **{"hidden_size": H} | settings).double()


def batch() -> Batch:
    words = torch.randint(WORDS, (T + 1, N), generator=torch.Generator().manual_seed(1))
    return Batch(words[:-1], words[1:])


def test_skip_and_projection_are_their_equations() -> None:
    """Layer l + 1 reads h^l alone; the head reads the projected sum of all."""
    lm = model(num_layers=3, embedding_size=E, skip=True, projection=0.0)
    b = batch()
    h, total = lm.embedding(b.x), torch.zeros(T, N, H, dtype=torch.float64)
    for layer in lm.layers:
        rnn = nn.LSTM(h.shape[-1], H).double()
        rnn.load_state_dict(layer.rnn.state_dict())
        h, _ = rnn(h)
        total = total + h
    projection = lm.projection
    assert isinstance(projection, DownProjection)
    expected = total @ projection.weight.t() @ lm.embedding.weight.t() + lm.bias
    assert_close(lm(b.x)[0], expected)
    identity = torch.eye(E, dtype=torch.float64)
    assert_close(projection.weight @ projection.weight.t(), identity, atol=1e-6, rtol=0)


def test_with_one_layer_skip_changes_nothing() -> None:
    b = batch()
    assert_close(model(num_layers=1)(b.x), model(num_layers=1, skip=True)(b.x), rtol=0, atol=0)
    plain, skip = model(), model(skip=True)
    assert plain.state_dict().keys() == skip.state_dict().keys()
    assert not torch.equal(plain(b.x)[0], skip(b.x)[0])


def test_the_dropouts_of_the_sum_and_of_its_projection() -> None:
    """One mask on the sum, one on what is projected; the terms see what the head reads."""
    settings: dict[str, Any] = {"embedding_size": E, "skip": True, "projection": 0.5}
    lm = model(**settings, dropout=Dropouts(output=0.5, locked=True), terms=[ActivationPenalty(1)])
    seen: list[Tensor] = []
    lm.projection.dropout.register_forward_hook(lambda _m, _i, out: seen.append(out))
    b = batch()
    loss = lm.loss(b)
    (z,) = seen
    assert z.shape == (T, N, E)
    zeros = z == 0
    assert torch.equal(zeros[0], zeros[-1])
    assert 0 < zeros.double().mean() < 1
    assert_close(loss.terms["ar"], z.square().mean())
    clean = model(**{**settings, "projection": 0.0})
    assert_close(lm.eval()(b.x), clean(b.x))
    assert not torch.equal(lm.train()(b.x)[0], lm(b.x)[0])


@pytest.mark.parametrize("terms", [(), (ActivationPenalty(1.0),)])
def test_samples_that_share_their_layers(terms: Any) -> None:
    settings = {"embedding_size": E, "skip": True, "projection": 0.2, "terms": terms}
    lm = model(noise=noise.Gaussian(0.5), **STRONG, **settings)
    b, found = batch(), []
    for given, more in ((b, {"samples": 2}), (b.repeat(2), {})):
        torch.manual_seed(3)
        loss = lm.loss(given, **more)
        torch.manual_seed(4)
        again = lm.loss(given, states.detach(loss.state), **more)
        found.append((loss.objective, again.objective, again.state))
    assert_close(*found)


def test_a_model_without_output_bias() -> None:
    lm, b = model(output_bias=False), batch()
    assert "bias" not in lm.state_dict()
    z, _ = lm.encode(b.x)
    assert_close(lm(b.x)[0], z @ lm.embedding.weight.t())
    lm.loss(b).mean.backward()
    lm.load_state_dict(lm.state_dict())


@pytest.mark.parametrize("cell", ["melis-lstm", "lstm", "highway", "layer-norm-lstm"])
@pytest.mark.parametrize("tied", [True, False])
def test_weights_that_start_from_a_truncated_normal_law(cell: str, tied: bool) -> None:
    """What reads n numbers has a standard deviation of 1/√n; all follow one law in its units."""
    settings: dict[str, Any] = {"num_words": 300, "hidden_size": 40, "num_layers": 1}
    settings |= {"embedding_size": 40 if tied else 20, "cell": cell, "tied": tied}
    lm, drawn = LanguageModel(**settings, initialization="truncated-normal"), []
    for (name, found), start in zip(
        lm.named_parameters(), LanguageModel(**settings).parameters(), strict=True
    ):
        if ".weight" in f".{name}":
            drawn.append(found.flatten() * found.shape[-1] ** 0.5)
        elif ".bias" in name:
            drawn.append((found - start).flatten() * 40**0.5)
        else:  # gains, and the bias of the output
            assert torch.equal(found, start), name
    assert len(drawn) > 3 - tied
    sigma = 1 / stats.truncnorm(-2, 2).std()
    sample = torch.cat(drawn).detach().double().numpy() / sigma
    assert_law(sample, stats.truncnorm(-2, 2).cdf)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"initialization": "normal"}, "initialization must be 'uniform' or 'truncated-normal'"),
        ({"last_size": 5}, "last_size must be the size of the embedding .6. for a linear head"),
        ({"last_size": 0}, "last_size must be a whole number"),
        ({"projection": 0.1}, "projection must be left out"),
        ({"projection": 1.0, "embedding_size": E}, "must lie in"),
        ({"skip": True, "embedding_size": E}, "got 4. Add a projection"),
        ({"skip": 1}, "skip must be True or False"),
        ({"last_size": 5, "num_layers": 1, "tied": False}, "last_size must be hidden_size .6. for"),
    ],
)
def test_what_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(NoisinError, match=message):
        model(**settings)
