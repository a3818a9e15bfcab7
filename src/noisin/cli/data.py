"""``noisin data``: facts about a corpus."""

from __future__ import annotations

import json as json_format
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.table import Table

from noisin.cli.arguments import Switch
from noisin.cli.consoles import Results, tell

if TYPE_CHECKING:
    from noisin.data import Facts


def data(
    name: str = "manual",
    /,
    *,
    folder: Annotated[Path | None, Parameter(name="--data")] = None,
    json: Switch = False,
) -> None:
    """Show facts about a corpus: tokens, words, unknown words, and the overlap with train.

    Parameters
    ----------
    name
        manual (built in), ptb, wikitext-2, a folder with train, valid and test files, or one text
        file.
    folder
        The folder of ptb or wikitext-2; by default NOISIN_DATA; otherwise they are
        downloaded.
    json
        Print JSON instead of a table.
    """
    from noisin import data as library

    facts = library.describe(library.load(name, folder))
    if json:
        tell(json_format.dumps(asdict(facts), indent=2))
    else:
        _print(facts)


def _print(facts: Facts) -> None:
    from noisin.data.facts import GRAM

    table = Table("", *facts.tokens, box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    table.add_row("tokens", *(f"{n:,}" for n in facts.tokens.values()))
    table.add_row("<unk>", *(_percent(facts.unknown[split]) for split in facts.tokens))
    overlap = [_percent(facts.overlap[s]) if s in facts.overlap else "" for s in facts.tokens]
    table.add_row(f"{GRAM}-grams also in train", *overlap)
    console = Results()
    tell(f"{facts.name}: {facts.words:,} words, from {facts.source}\n")
    console.print(table)
    tell(f"\nsha256 of the text        {facts.sha256}")
    tell(f"sha256 of the vocabulary  {facts.vocabulary_sha256}")


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
