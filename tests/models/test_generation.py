"""Generated text: the law it is drawn from, its seed, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from noisin import noise
from noisin.data.vocab import Vocabulary
from noisin.errors import InvalidType, NoisinError, Unsupported
from noisin.models import Dropouts, LanguageModel, generate
from tests import stats

VOCAB = Vocabulary(("the", "cat", "sat", "<eos>", "<unk>", "mat"))
PROMPT = "the cat"


def model(**settings: Any) -> LanguageModel:
    lm = LanguageModel(len(VOCAB), hidden_size=8, **settings).double()
    with torch.no_grad():
        for parameter in lm.parameters():
            parameter.mul_(3).add_(0.5 * torch.randn_like(parameter))  # opinions, biases too
    return lm


def following(lm: LanguageModel, words: list[str]) -> Tensor:
    """The natural parameter of the word after these, by one clean pass."""
    x = torch.tensor([[VOCAB.id(word)] for word in words])
    training = lm.training
    s = lm.eval()(x)[0][-1, 0]
    lm.train(training)
    return s.detach()


def greedy(lm: LanguageModel, length: int) -> list[str]:
    words = ["<eos>", *PROMPT.split()]
    for _ in range(length):
        words.append(VOCAB.words[int(following(lm, words).argmax())])
    return words[3:]


@pytest.mark.parametrize("choice", [{"temperature": 0}, {"temperature": 1e-12}, {"top_k": 1}])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_greedy(choice: dict[str, Any], cell: str) -> None:
    """The state carries all words before: the same as reading them all again at each step."""
    lm = model(cell=cell, noise=noise.Gaussian(0.5), dropout=Dropouts(0.5, 0.5, 0.5, 0.5))
    assert generate(lm, VOCAB, PROMPT, 12, **choice) == greedy(lm, 12)


@pytest.mark.long
@pytest.mark.parametrize(("temperature", "top_k"), [(1.0, None), (0.5, None), (1.0, 3), (2.0, 2)])
def test_the_law_of_a_word(temperature: float, top_k: int | None) -> None:
    lm, draws = model(), 1000
    s = following(lm, ["<eos>", "the", "cat"]) / temperature
    kept = s if top_k is None else s.masked_fill(s < s.sort(descending=True)[0][top_k - 1], -np.inf)
    p = kept.softmax(-1).numpy()
    words = [
        generate(lm, VOCAB, PROMPT, 1, temperature=temperature, top_k=top_k, seed=seed)[0]
        for seed in range(draws)
    ]
    for word, probability in zip(VOCAB.words, p, strict=True):
        drawn = np.array([w == word for w in words], dtype=float)
        if probability:
            stats.assert_mean(drawn, probability, math.sqrt(probability * (1 - probability)))
        else:
            assert not drawn.any()


def test_the_law_of_a_second_word() -> None:
    """Given the first, the second has the law that the model gives it."""
    lm = model()
    pairs = [generate(lm, VOCAB, PROMPT, 2, seed=seed) for seed in range(1000)]
    for first in VOCAB.words[:2]:
        p = following(lm, ["<eos>", "the", "cat", first]).softmax(-1)[0].item()
        drawn = np.array([b == VOCAB.words[0] for a, b in pairs if a == first], dtype=float)
        assert drawn.size > 30
        stats.assert_mean(drawn, p, math.sqrt(p * (1 - p)))


def test_seeds() -> None:
    lm = model(noise=noise.Gaussian(0.5), dropout=Dropouts(output=0.5)).train()
    before = torch.get_rng_state()
    first = generate(lm, VOCAB, PROMPT, 40, seed=3)
    assert first == generate(lm, VOCAB, PROMPT, 40, seed=3)
    assert first != generate(lm, VOCAB, PROMPT, 40, seed=4)
    assert first[:10] == generate(lm, VOCAB, PROMPT, 10, seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    assert lm.training
    assert generate(lm, VOCAB, length=0) == []


def test_prompts() -> None:
    """Lines end with <eos>, a prompt begins a line, and unknown words are <unk>."""
    lm = model()

    def same(a: str, b: str) -> bool:
        return generate(lm, VOCAB, a, 30) == generate(lm, VOCAB, b, 30)

    assert same("the cat", "  the\tcat ")
    assert same("the dog", "the <unk>")
    assert same("the cat\nsat", "the cat <eos> sat")
    assert not same("the cat", "the dog")
    assert generate(lm, VOCAB, "", 12, top_k=1) == generate(lm, VOCAB, length=12, top_k=1)


def test_unknown_words_without_unk_are_refused() -> None:
    vocab = Vocabulary(("the", "cat", "sat", "<eos>", "dog", "mat"))
    with pytest.raises(NoisinError, match="'bird' is not one of the 6 words"):
        generate(model(), vocab, "the bird")


def test_excluded_words_are_never_drawn() -> None:
    """The first draw is that of the others alone: with one left it is certain."""
    lm = model()
    often = generate(lm, VOCAB, PROMPT, 300)
    assert "<unk>" in often
    drawn = generate(lm, VOCAB, PROMPT, 300, exclude=["<unk>"])
    assert "<unk>" not in drawn
    assert set(drawn) >= set(often) - {"<unk>"}
    one = [word for word in VOCAB.words if word != "cat"]
    assert set(generate(lm, VOCAB, PROMPT, 20, exclude=one, top_k=3)) == {"cat"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"exclude": ["bird"]}, "exclude must have words of the vocabulary, got 'bird'"),
        ({"exclude": VOCAB.words}, "exclude has all words"),
        ({"exclude": 3}, "exclude"),
        ({"length": -1}, "length .* 0 or more, got -1"),
        ({"length": 2.5}, "length .* got 2.5"),
        ({"temperature": -0.1}, "temperature .* got -0.1"),
        ({"temperature": math.nan}, "temperature .* got nan"),
        ({"temperature": math.inf}, "temperature .* got inf"),
        ({"temperature": "hot"}, "temperature .* got 'hot'"),
        ({"top_k": 0}, "top_k .* got 0"),
        ({"top_k": True}, "top_k .* got True"),
        ({"seed": -1}, "seed .* got -1"),
        ({"seed": 2**63}, "seed"),
        ({"prompt": ["the"]}, "prompt must be a string, got list"),
        ({"vocab": Vocabulary(("<eos>",))}, "the model has 6 words, and the vocabulary has 1"),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(NoisinError, match=message):
        generate(model(), **{"vocab": VOCAB, **arguments})


def test_a_model_that_diverged_is_refused() -> None:
    lm = model()
    with torch.no_grad():
        lm.bias[0] = math.nan
    with pytest.raises(Unsupported, match="weights have diverged"):
        generate(lm, VOCAB)
    with pytest.raises(InvalidType, match="expected a LanguageModel, got Linear"):
        generate(torch.nn.Linear(1, 1), VOCAB)


def test_more_words_than_there_are_is_all_of_them() -> None:
    lm = model()
    assert generate(lm, VOCAB, top_k=100) == generate(lm, VOCAB)
