"""Dropout of word types: equal words have equal masks, in a column or in the whole batch."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from noisin.data import Batch
from noisin.errors import InvalidValue
from noisin.models import Dropouts, LanguageModel, Words
from noisin.noise.sampling import Shard, set_shard
from noisin.regularizers.sequences import WordDropout
from tests import stats

T, N, E, WORDS = 12, 6, 4, 5


def ids(rows: int = N) -> Tensor:
    return torch.randint(WORDS, (T, rows), generator=torch.Generator().manual_seed(1))


def encoder(p: float = 0.5, shared: bool = False) -> Words:
    torch.manual_seed(0)
    return Words(WORDS, E, dropout=Dropouts(words=p, words_shared=shared).words_of()).double()


@pytest.mark.parametrize("shared", [False, True])
def test_equal_words_have_equal_masks(shared: bool) -> None:
    """Against a loop: within a column (Gal), or everywhere (AWD-LSTM), and nowhere else."""
    words, x = encoder(shared=shared), ids()
    masks = words.dropout.mask(words.weight, x, WORDS)
    assert masks.shape == (T, N, 1)
    assert_close(masks.unique(), torch.tensor([0.0, 2.0]).double())
    decided: dict[Any, float] = {}
    for t in range(T):
        for n in range(N):
            key = int(x[t, n]) if shared else (int(x[t, n]), n)
            assert decided.setdefault(key, float(masks[t, n])) == float(masks[t, n])
    assert len({*decided.values()}) == 2
    if not shared:  # a word is dropped in some columns and not in others
        by_word = [{v for (w, _), v in decided.items() if w == word} for word in range(WORDS)]
        assert any(len(values) == 2 for values in by_word)


@pytest.mark.parametrize("shared", [False, True])
def test_the_vectors_are_those_of_an_embedding_with_dropped_rows(shared: bool) -> None:
    words, x = encoder(shared=shared), ids()
    torch.manual_seed(2)
    found = words(x)
    torch.manual_seed(2)
    masks = words.dropout.mask(words.weight, x, WORDS)
    assert_close(found, words.weight[x] * masks)
    if shared:
        torch.manual_seed(2)
        rows = words.dropout._mask(0.5, (WORDS, 1), words.weight)
        assert_close(found, (words.weight * rows)[x])
    found.sum().backward()
    dropped = [w for w in range(WORDS) if not found[x == w].any()]
    assert all(not words.weight.grad[w].any() for w in dropped)


@pytest.mark.parametrize("shared", [False, True])
def test_the_rate_and_the_mean(shared: bool) -> None:
    drop = WordDropout(0.3, shared)
    x = torch.arange(4000).view(1, -1) if shared else torch.zeros(3, 4000, dtype=torch.int64)
    masks = drop.mask(torch.ones(()), x, 4000)
    assert_close(masks.unique(), torch.tensor([0.0, 1 / 0.7]))
    stats.assert_mean(masks[0].numpy(), 1.0, (0.3 / 0.7) ** 0.5)


@pytest.mark.parametrize("shared", [False, True])
def test_evaluation_and_rate_zero_are_the_embedding(shared: bool) -> None:
    words, x = encoder(shared=shared), ids()
    plain = Words(WORDS, E).double()
    plain.load_state_dict(words.state_dict())
    torch.manual_seed(3)
    first = words(x)
    assert torch.equal(words.eval()(x), plain(x))
    torch.manual_seed(3)
    assert torch.equal(copy.deepcopy(words.train())(x), first)
    assert not torch.equal(words(x), first)
    assert Dropouts(words_shared=shared).words_of() is None
    assert torch.equal(WordDropout(0.0, shared)(first, x, WORDS), first)


@pytest.mark.parametrize("shared", [False, True])
def test_processes_decide_alike(shared: bool) -> None:
    """Each sees its own columns only, and the streams stay alike."""
    words, x = encoder(shared=shared), ids()
    torch.manual_seed(4)
    whole, stream = words(x), torch.get_rng_state()
    for start in (0, 2, 4):
        set_shard(words, Shard(start, 2, N))
        torch.manual_seed(4)
        assert torch.equal(words(x[:, start : start + 2]), whole[:, start : start + 2])
        assert torch.equal(torch.get_rng_state(), stream)


def test_only_the_input_of_a_tied_model_is_dropped() -> None:
    lm = LanguageModel(WORDS, hidden_size=E, dropout=Dropouts(words=0.5, words_shared=True))
    x = ids()
    assert torch.equal(lm.V, lm.embedding.weight.t())
    assert list(lm.state_dict()) == list(LanguageModel(WORDS, hidden_size=E).state_dict())
    lm.loss(Batch(x[:-1], x[1:])).mean.backward()
    assert lm.embedding.weight.grad.any()


@pytest.mark.parametrize("rate", [1.0, -0.1, True, None])
def test_bad_rates(rate: Any) -> None:
    with pytest.raises(InvalidValue, match=r"WordDropout: p .* must lie in \[0, 1\)"):
        WordDropout(rate)
