"""``noisin data``: facts about a text, music or a series, and the names of all."""

from __future__ import annotations

import json as json_format
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter
from rich.table import Table

from noisin.cli.arguments import Switch, WholeNumber
from noisin.cli.consoles import Results, tell
from noisin.errors import InvalidValue, Unsupported
from noisin.tasks.names import DEFAULT, TASKS, task_of

if TYPE_CHECKING:
    from noisin.data import Facts
    from noisin.data.sizes import Sizes
    from noisin.training.config import DataConfig


def data(
    name: str = "manual",
    /,
    *,
    folder: Annotated[Path | None, Parameter(name="--data")] = None,
    tokens: Literal["space", "words", "characters"] = "space",
    lower: Switch = False,
    min_count: WholeNumber = 1,
    max_words: WholeNumber | None = None,
    split: Literal["position", "blocks"] = "position",
    json: Switch = False,
    list_: Annotated[Switch, Parameter(name="--list")] = False,
) -> None:
    """Show facts about data: of a text, tokens, words, unknown words, and the overlap with train.

    What might make a text hard to learn from is said below the table. Of music and series, the
    number and length of the sequences.

    Parameters
    ----------
    name
        manual (built in), ptb, wikitext-2, a folder with train, valid and test files, or one text
        file; jsb, nottingham, musedata or piano-midi; bikes or ett; or the data of a TOML file of
        settings, such as your own series.
    folder
        The folder of a named data set; by default NOISIN_DATA; otherwise ptb and wikitext-2 are
        downloaded.
    tokens
        Of a text: what white space separates, words and marks of punctuation, or characters. This
        and the next four are the settings data.tokens, data.lower, ... of noisin train.
    lower
        Convert the text to lower case.
    min_count
        Words that are less frequent in train are `<unk>`.
    max_words
        Keep that many words, the most frequent ones in train.
    split
        How one file is split: train is its beginning and test its end, or all three are taken from
        ten places.
    json
        Print JSON instead of a table.
    list_
        List the names of all data sets, what is predicted, and the unit of its score.
    """
    from noisin import data as library
    from noisin.data.facts import advice
    from noisin.data.sizes import NAMES, describe_sequences
    from noisin.data.tokens import Tokenization

    if list_:
        _list((*library.NAMES, *NAMES), json)
        return
    tokenization = Tokenization(tokens, lower, min_count, max_words, split)
    place: str | Path | None = folder
    columns = None
    if name.endswith(".toml"):
        source = _source(name, alone=folder is None and tokenization == Tokenization())
        name, place, columns = source.name, source.folder, source.described_columns
        tokenization = source.tokenization
    if name in NAMES or columns is not None:
        found = describe_sequences(name, place, columns)
        tell(json_format.dumps(asdict(found), indent=2)) if json else _print_sizes(found)
        return
    facts = library.describe(library.load(name, place, **asdict(tokenization)))
    remarks = advice(facts, tokenization)
    if json:
        tell(json_format.dumps(asdict(facts) | {"advice": remarks}, indent=2))
        return
    _print(facts)
    for remark in remarks:
        Results().print(f"\n{remark}")


def _source(file: str, alone: bool) -> DataConfig:
    """What a file of settings says of its data, given ``alone`` or with flags for the same."""
    from noisin.experiments import presets

    found = {config.data for config in presets.read(file).configs().values()}
    if not alone:
        raise InvalidValue(
            f"noisin data: {file} says how its data are read, and so do flags. Leave the flags "
            f"out, or change the file."
        )
    if len(found) > 1:
        raise InvalidValue(
            f"noisin data: the runs of {file} have different data. Name a file with one of them."
        )
    (source,) = found
    if source.task_row is None:
        raise Unsupported(
            f"noisin data: {file} has a task of your own, {source.task_name}, whose data only it "
            f"knows. Name a file with text, music or a series."
        )
    return source


def _list(names: Sequence[str], json: bool) -> None:
    rows = [(name, task_of(name), str(TASKS[task_of(name)].unit)) for name in names]
    if json:
        tell(json_format.dumps([dict(zip(("name", "task", "unit"), r, strict=True)) for r in rows]))
        return
    table = Table("data.name", "task", "unit", box=None, pad_edge=False)
    for row in rows:
        table.add_row(*row)
    Results().print(table)


def _print_sizes(sizes: Sizes) -> None:
    table = Table("", *sizes.steps, box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    task = task_of(sizes.name)
    per = TASKS["series" if task == DEFAULT else task].unit.targets  # a series of one's own
    for name, values in (
        ("sequences", sizes.sequences),
        (f"{per}, scored", sizes.steps),
        ("shortest", sizes.shortest),
        ("longest", sizes.longest),
    ):
        table.add_row(name, *(f"{n:,}" for n in values.values()))
    table.add_row("values that are not 0", *(_percent(s) for s in sizes.density.values()))
    tell(f"{sizes.name}: {sizes.values}\n")
    Results().print(table)
    tell(f"\nsha256 of the file  {sizes.sha256}")


def _print(facts: Facts) -> None:
    from noisin.data.facts import GRAM

    table = Table("", *facts.tokens, box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    table.add_row("tokens", *(f"{n:,}" for n in facts.tokens.values()))
    table.add_row("<unk>", *(_percent(facts.unknown[split]) for split in facts.tokens))
    overlap = [_percent(facts.overlap[s]) if s in facts.overlap else "" for s in facts.tokens]
    unseen = [_percent(facts.unseen[s]) if s in facts.unseen else "" for s in facts.tokens]
    table.add_row("words that occur once", f"{facts.once:,}")
    table.add_row("words not in train", *unseen)
    table.add_row("nats by frequencies of train", *(f"{n:.2f}" for n in facts.unigram.values()))
    table.add_row(f"{GRAM}-grams also in train", *overlap)
    console = Results()
    tell(f"{facts.name}: {facts.words:,} words, from {facts.source}\n")
    console.print(table)
    tell(f"\nsha256 of the text        {facts.sha256}")
    tell(f"sha256 of the vocabulary  {facts.vocabulary_sha256}")


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
