"""One batch in shares, without processes: the noise, the loss and the gradient of the whole."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import noisin
from noisin import noise
from noisin.data import Batch
from noisin.errors import InvalidValue, Unsupported
from noisin.models import CELLS, Dropouts, LanguageModel, detach
from noisin.models.steps import GateDropout
from noisin.noise import Gaussian
from noisin.noise.sampling import Shard, set_shard
from noisin.regularizers import WeightDrop, WeightNoise

WORDS, N, T = 12, 6, 5
DROPOUT = Dropouts(0.1, 0.2, 0.3, 0.4)


@pytest.mark.parametrize("K", [1, 3])
@pytest.mark.parametrize("lead", [(), (T,), (1,)])
def test_shards_together_are_the_whole_draw(lead: tuple[int, ...], K: int) -> None:
    like = torch.empty(0, dtype=torch.float64)

    def drawn(shard: Shard, rows: int) -> Tensor:
        generator = torch.Generator().manual_seed(1)
        return shard.sample(Gaussian(1.0), (*lead, K * rows, 4), like, generator)

    whole = drawn(Shard(0, N, N), N).view(*lead, K, N, 4)
    parts = [drawn(Shard(start, 2, N), 2).view(*lead, K, 2, 4) for start in (0, 2, 4)]
    assert torch.equal(torch.cat(parts, dim=-2), whole)


def test_other_rows_are_refused() -> None:
    with pytest.raises(InvalidValue, match="2 of 6 columns, and was given 3 rows"):
        Shard(0, 2, N).sample(Gaussian(1.0), (T, 3, 4), torch.empty(0), None)
    rnn = noisin.LSTM(2, 3, noise=Gaussian(0.5))
    set_shard(rnn, Shard(0, 2, 4))
    with pytest.raises(Unsupported, match="Pad the sequences"):
        rnn(nn.utils.rnn.pack_sequence([torch.zeros(4, 2), torch.zeros(2, 2)]))
    set_shard(rnn, None)
    assert rnn(torch.zeros(4, 3, 2))[0].shape == (4, 3, 3)


SETTINGS: dict[str, dict[str, Any]] = {
    **{cell: {"cell": cell} for cell in CELLS if cell != "batch-norm-lstm"},  # which refuses it
    "highway-locked": {"cell": "highway", "dropout": Dropouts(recurrent=0.4, locked=True)},
    "unfed": {"feedback": False, "noisy_layers": "last"},
    "sequence": {"share": "sequence"},
    "dropout": {"dropout": DROPOUT},
    "locked": {"dropout": Dropouts(0.1, 0.2, 0.3, 0.4, locked=True)},
    "gru-dropout": {"cell": "gru", "dropout": DROPOUT},
    "gates": {"gate_dropout": GateDropout(0.3, 0.2)},
    "gates-locked": {"gate_dropout": GateDropout(0.3, 0.2, locked=True, site="before")},
    "additive": {"mode": "additive"},
    "random weights": {"weight_drop": WeightDrop(0.5), "weight_noise": WeightNoise(0.3)},
    "weight noise per step": {"weight_noise": WeightNoise(0.3, per="step")},
    "words": {"dropout": Dropouts(words=0.4)},
    "words shared": {"dropout": Dropouts(words=0.4, words_shared=True)},
}


@pytest.mark.parametrize("K", [1, 2])
@pytest.mark.parametrize("name", SETTINGS)
def test_shares_have_the_loss_and_the_gradient_of_the_whole(name: str, K: int) -> None:
    """Over two windows, so that states are carried, and with the generators alike at the end."""
    whole = LanguageModel(WORDS, hidden_size=4, noise=Gaussian(0.5), **SETTINGS[name]).double()
    words = torch.randint(WORDS, (2 * T + 1, N))

    def run(lm: LanguageModel, own: slice) -> tuple[list[Any], Tensor]:
        torch.manual_seed(2)
        losses, state = [], None
        for start in (0, T):
            x, target = words[start : start + T, own], words[start + 1 : start + T + 1, own]
            loss = lm.loss(Batch(x, target).repeat(K), detach(state))
            state = loss.state
            losses.append(loss.mean)
        sum(losses).backward()
        return [*losses, *(p.grad for p in lm.parameters())], torch.get_rng_state()

    expected, stream = run(whole, slice(None))
    results = []
    for start in (0, 2, 4):
        part = copy.deepcopy(whole)
        part.zero_grad()
        set_shard(part, Shard(start, 2, N))
        found, own_stream = run(part, slice(start, start + 2))
        assert torch.equal(own_stream, stream)
        results.append(found)
    assert_close([torch.stack(parts).mean(0) for parts in zip(*results, strict=True)], expected)


def test_changing_the_noise_keeps_the_share() -> None:
    lm = LanguageModel(WORDS, hidden_size=4, noise=Gaussian(0.5))
    set_shard(lm, Shard(0, 2, N))
    noisin.set_noise(lm, noise.Laplace(0.3))
    noisin.convert(lm, noise.Laplace(0.3))
    with pytest.raises(InvalidValue, match="2 of 6 columns"):
        lm(torch.zeros(T, 3, dtype=torch.int64))
