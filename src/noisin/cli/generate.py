"""``noisin generate``: text, music or forecasts from a trained model."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from noisin.cli.arguments import Number, Switch, WholeNumber
from noisin.cli.consoles import tell
from noisin.cli.progress import Display
from noisin.data.vocab import EOS, UNK
from noisin.errors import InvalidValue
from noisin.training.record import RunRecord

if TYPE_CHECKING:
    from noisin.data import Vocabulary
    from noisin.data.tokens import Tokenization
    from noisin.training.load import Restored

WORDS = 100  # by default
MOST = 100_000  # steps and paths
SHOWN = 10  # unknown words that are named


def generate(
    run: Path,
    /,
    *,
    prompt: str | None = None,
    length: WholeNumber | None = None,
    temperature: Number | None = None,
    top_k: WholeNumber | None = None,
    no_unknown: Switch = False,
    samples: WholeNumber | None = None,
    noise: Switch = False,
    seed: WholeNumber = 1111,
    weights: Literal["raw", "averaged"] | None = None,
    checkpoint: Literal["best", "last"] = "best",
    out: Path | None = None,
    folder: Annotated[Path | None, Parameter(name="--data")] = None,
) -> None:
    """Continue a prompt, draw a piece of music, or forecast a series with a trained model.

    Text is printed. Music is written as a MIDI file and a piano roll. Of a series, forecasts of the
    test data are scored and compared with the seasonal-naive ones, and one of them is drawn.

    Parameters
    ----------
    run
        The folder of the run.
    prompt
        Of text: the words to continue, separated by spaces as in the training text, or characters.
    length
        How many words, characters, frames or steps; by default 100, 64 frames, or a season.
    temperature
        Of text: below 1 is more cautious; 0 always takes the most probable word. By default 1.
    top_k
        Of text: draw from the k most probable words only.
    no_unknown
        Of text: never draw `<unk>`, which stands for words that are not in the vocabulary.
    samples
        Of a series: the number of paths of each forecast; by default 100.
    noise
        Of music and series: draw with the noise of training on.
    seed
        Of the draws.
    weights
        Raw or averaged weights; by default those that are better on valid.
    checkpoint
        The best epoch, or the newest checkpoint.
    out
        Of music and series: the folder of the files; by default that of the run.
    folder
        Of a series: where its data is, if it was moved.
    """
    from noisin.cli.drawn import Drawing
    from noisin.cli.scoring import task_of
    from noisin.training.load import restore

    record = RunRecord(run)
    restored = restore(record, checkpoint, weights, Display().note)
    kind = record.config.data.task_name
    words = {"--prompt": prompt, "--temperature": temperature, "--top-k": top_k}
    words |= {"--no-unknown": no_unknown or None}
    others = {"--samples": samples, "--noise": noise or None, "--out": out, "--data": folder}
    if restored.vocab is not None:
        _refuse(others, "is for music and series, and this run predicts words")
        length = WORDS if length is None else length
        temperature = 1.0 if temperature is None else temperature
        options: dict[str, Any] = {"temperature": temperature, "top_k": top_k, "seed": seed}
        if no_unknown and UNK in restored.vocab:
            options["exclude"] = [UNK]
        _text(restored, record.config.data.tokenization, prompt or "", length, options)
        return
    _refuse(words, "is for text, and this run does not predict words")
    for name, value in (("--length", length), ("--samples", samples)):
        if value is not None and not 1 <= value <= MOST:
            raise InvalidValue(f"{name} must lie in 1 to {MOST:,}, got {value}.")
    if not 0 <= seed < 2**63:
        raise InvalidValue(f"--seed must be 0 or more and below 2**63, got {seed}.")
    place = run if out is None else out
    if not place.is_dir():
        raise InvalidValue(f"--out must be a folder that exists, got {place}.")
    drawing = Drawing(record, restored, place, length, samples, noise, seed, folder)
    if kind == "music":
        drawing.music()
    elif kind == "series":
        drawing.forecasts(task_of(record, folder, 1))  # type: ignore[arg-type]
    else:
        raise InvalidValue(f"{run}: generate draws text, music and series, and its task is {kind}.")


def _refuse(options: dict[str, Any], why: str) -> None:
    for name, value in options.items():
        if value is not None:
            raise InvalidValue(f"{name} {why}. Leave it out.")


def _text(
    restored: Restored,
    tokenization: Tokenization,
    prompt: str,
    length: int,
    options: dict[str, Any],
) -> None:
    """Print a continuation of the prompt, which is read as the text was."""
    from noisin.data.tokens import joined
    from noisin.models import generate as draw

    vocab, spelt = restored.vocab, tokenization.tokens == "characters"
    assert vocab is not None
    read = tokenization.tokenize(prompt)
    _warn_of_unknown([word for word in dict.fromkeys(read) if word not in vocab], vocab, spelt)
    words = draw(restored.model, vocab, " ".join(read), length, **options)
    if spelt:
        tell(prompt + joined(words))
        return
    lines = " ".join([prompt, *words]).split(EOS)
    tell("\n".join(line.strip() for line in lines).strip())


def _warn_of_unknown(unknown: Sequence[str], vocab: Vocabulary, spelt: bool) -> None:
    """Without ``<unk>`` in the vocabulary, the model refuses them itself."""
    if unknown and UNK in vocab:
        few = ", ".join(map(repr, unknown[:SHOWN])) + (", ..." if len(unknown) > SHOWN else "")
        what = "characters" if spelt else "words"
        Display().note(f"--prompt has {what} that the model does not know, read as {UNK}: {few}.")
