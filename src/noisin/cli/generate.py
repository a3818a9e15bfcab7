"""``noisin generate``: text from a trained model."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from noisin.cli.arguments import Number, WholeNumber
from noisin.cli.consoles import tell
from noisin.cli.progress import Display
from noisin.errors import InvalidValue
from noisin.training.record import RunRecord


def generate(
    run: Path,
    /,
    *,
    prompt: str = "",
    length: WholeNumber = 100,
    temperature: Number = 1.0,
    top_k: WholeNumber | None = None,
    seed: WholeNumber = 1111,
    weights: Literal["raw", "averaged"] | None = None,
    checkpoint: Literal["best", "last"] = "best",
) -> None:
    """Continue a prompt with a trained model.

    Parameters
    ----------
    run
        The folder of the run.
    prompt
        The words to continue, separated by spaces as in the training text.
    length
        How many words to add.
    temperature
        Below 1 is more cautious; 0 always takes the most probable word.
    top_k
        Draw from the k most probable words only.
    seed
        Of the draws.
    weights
        Raw or averaged weights; by default those that are better on valid.
    checkpoint
        The best epoch, or the newest checkpoint.
    """
    from noisin.data.vocab import EOS
    from noisin.models import generate as draw
    from noisin.training.load import restore

    restored = restore(RunRecord(run), checkpoint, weights, Display().note)
    if restored.vocab is None:
        raise InvalidValue(f"{run}: does not predict words, so it cannot generate text.")
    words = draw(
        restored.model,
        restored.vocab,
        prompt,
        length,
        temperature=temperature,
        top_k=top_k,
        seed=seed,
    )
    lines = " ".join([prompt, *words]).split(EOS)
    tell("\n".join(line.strip() for line in lines).strip())
