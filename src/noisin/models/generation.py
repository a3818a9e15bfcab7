"""Generate text with a language model, word by word."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Generator, Tensor

from noisin._util import arguments
from noisin.data.vocab import EOS, Vocabulary
from noisin.errors import InvalidType, InvalidValue, Unsupported
from noisin.models.language import LanguageModel
from noisin.recurrent.injection import as_training


@torch.no_grad()
def generate(
    model: LanguageModel,
    vocab: Vocabulary,
    prompt: str = "",
    length: int = 100,
    *,
    temperature: float = 1.0,
    top_k: int | None = None,
    seed: int = 1111,
    exclude: Sequence[str] = (),
) -> list[str]:
    """Continue a prompt: returns the ``length`` words that follow it.

    The model runs without noise, as in evaluation; its mode is restored. It reads ``"<eos>"``
    first, so that the prompt starts a line; a line break in the prompt is ``"<eos>"`` too. Words
    that are not in the vocabulary become ``"<unk>"``, or raise an error if there is no ``"<unk>"``.

    Args:
        model: the language model.
        vocab: the vocabulary of the model.
        prompt: the words to continue, separated by white space.
        length: the number of words to generate.
        temperature: divides the natural parameters: below 1 favors probable words, 0 always takes
            the most probable one.
        top_k: sample from the k most probable words only; None samples from all.
        seed: the seed of a separate random stream on the CPU.
        exclude: words that are never drawn, such as ``["<unk>"]``; the others keep their ratios.

    >>> from noisin.models import LanguageModel
    >>> vocab = Vocabulary(("<eos>", "tick", "tock"))
    >>> model = LanguageModel(len(vocab), hidden_size=4)
    >>> len(generate(model, vocab, "tick tock", length=5))
    5
    >>> set(generate(model, vocab, "tick", exclude=["<eos>", "tock"]))
    {'tick'}
    """
    _check(model, vocab, prompt, length, temperature, top_k)
    left = _others(vocab, exclude)
    generator = torch.Generator().manual_seed(arguments.whole("generate: seed", seed, 0))
    words = vocab.encode([EOS, *prompt.replace("\n", f" {EOS} ").split()])
    x = torch.from_numpy(words).long().unsqueeze(1)
    drawn: list[int] = []
    with as_training(model, on=False):
        state = None
        while len(drawn) < length:
            s, state = model.predict_next(x.to(model.embedding.weight.device), state)
            drawn.append(_draw(s[0].double().cpu(), left, temperature, top_k, generator))
            x = torch.tensor([[drawn[-1]]])
    return vocab.decode(drawn)


def _others(vocab: Vocabulary, exclude: Sequence[str]) -> Tensor:
    """The ids of the words that may be drawn."""
    arguments.items("generate: exclude", exclude, 'words, such as ["<unk>"],')
    unknown = [word for word in exclude if word not in vocab]
    if unknown:
        raise InvalidValue(
            f"generate: exclude must have words of the vocabulary, got {unknown[0]!r:.60}."
        )
    never = set(exclude)
    left = [i for i, word in enumerate(vocab.words) if word not in never]
    if not left:
        raise InvalidValue("generate: exclude has all words, so there is none to draw.")
    return torch.tensor(left)


def _draw(
    s: Tensor, left: Tensor, temperature: float, top_k: int | None, generator: Generator
) -> int:
    """A word from ``softmax(s / temperature)``, restricted to the k most probable of those left."""
    if not s.isfinite().all():
        raise Unsupported(
            "generate: the model predicts NaN or infinity, so its weights have diverged. Use an "
            "earlier checkpoint, or train with a smaller learning rate."
        )
    candidates = s[left].topk(min(top_k or len(left), len(left)))  # in descending order
    if temperature == 0:
        return int(left[candidates.indices[0]])
    p = ((candidates.values - candidates.values[0]) / temperature).softmax(-1)
    return int(left[candidates.indices[torch.multinomial(p, 1, generator=generator)]])


def _check(
    model: LanguageModel,
    vocab: Vocabulary,
    prompt: str,
    length: int,
    temperature: float,
    top_k: int | None,
) -> None:
    if not isinstance(model, LanguageModel):
        raise InvalidType(f"generate: expected a LanguageModel, got {type(model).__name__}.")
    arguments.instance("generate: vocab", vocab, Vocabulary, "Pass corpus.vocab.")
    if len(vocab) != model.embedding.num_embeddings:
        raise InvalidValue(
            f"generate: the model has {model.embedding.num_embeddings} words, and the vocabulary "
            f"has {len(vocab)}. Pass the vocabulary of the corpus that the model was trained on."
        )
    if not isinstance(prompt, str):
        raise InvalidType(
            f"generate: prompt must be a string, got {type(prompt).__name__}. "
            f"Join a list of words: ' '.join(words)."
        )
    arguments.whole("generate: length", length, 0, what="a whole number of words")
    arguments.finite(
        "generate: temperature",
        temperature,
        least=0,
        advice="Use 1 for the model's own probabilities, 0 for the most probable word.",
    )
    if top_k is not None:
        arguments.whole("generate: top_k", top_k, what="None or a whole number of words")
