"""The settings of the data."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from noisin.data import hourly
from noisin.data.columns import Columns
from noisin.data.series import SUPPORTS
from noisin.data.tokens import SplitBy, Tokenization, Tokens
from noisin.tasks.names import DEFAULT as TEXT
from noisin.tasks.names import TASKS, TaskRow, task_of
from noisin.training.config.choice import OneOf
from noisin.training.config.columns import ColumnsConfig
from noisin.training.config.section import InvalidConfig, Number, Section, Whole


class DataConfig(Section):
    """The data to learn from."""

    name: str = Field(
        default="manual",
        min_length=1,
        description="The text: manual (built in), ptb, wikitext-2, a folder of train, valid and "
        "test text files, or one text file. Polyphonic music: jsb, nottingham, musedata or "
        "piano-midi. Series: bikes, ett, or with data.columns a file or folder of arrays.",
    )
    folder: str | None = Field(
        default=None,
        description="The folder that contains the files of a named data set; by default "
        "NOISIN_DATA. Otherwise ptb and wikitext-2 are downloaded.",
    )
    task: Annotated[str, AfterValidator(OneOf(TASKS))] | None = Field(
        default=None, description="What to predict; by default decided by data.name."
    )
    tokens: Tokens | None = Field(
        default=None,
        description="Of a text: what white space separates (space, the default), words and marks "
        "of punctuation (words), or characters.",
    )
    lower: bool = Field(default=False, description="Of a text: convert it to lower case.")
    min_count: Whole = Field(
        default=1, ge=1, description="Of a text: words that are less frequent in train are `<unk>`."
    )
    max_words: Whole | None = Field(
        default=None,
        ge=3,
        description="Of a text: keep that many words, the most frequent ones in train; all others "
        "are `<unk>`.",
    )
    split: SplitBy = Field(
        default="position",
        description="Of one text file: train is its beginning and test its end (position), or "
        "all three are taken from ten places (blocks).",
    )
    fraction: Number = Field(
        default=1.0,
        gt=0,
        le=1,
        description="Of a text: how much of train to learn from, from its beginning. The "
        "vocabulary is that of the whole text.",
    )
    likelihood: str | None = Field(
        default=None,
        description=f"Of a series: {', '.join(SUPPORTS)}; by default that of the named data set.",
    )
    columns: ColumnsConfig | None = Field(
        default=None, description="The columns of your own series; off by default."
    )

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        found = []
        if self.likelihood is not None and self.likelihood not in SUPPORTS:
            what = f"must be {' or '.join(SUPPORTS)}, got {self.likelihood!r:.60}."
            found.append(("likelihood", what))
        if self.task_name in TASKS and self.task_name != "series":
            what = f"must be left out for {self.task_name}: it is for series."
            given = {"likelihood": self.likelihood, "columns": self.columns}
            found += [(name, what) for name, value in given.items() if value is not None]
        found += self._about_tokens()
        if self.columns is not None and self.name in hourly.FILES:
            what = f"must be left out for {self.name}, whose columns are known."
            found.append(("columns", what))
        elif self.columns is not None and self.likelihood is None:
            what = f"must be given with data.columns: {', '.join(SUPPORTS)}."
            found.append(("likelihood", what))
        if found:
            raise InvalidConfig(found)
        return self

    def _about_tokens(self) -> list[tuple[str, str]]:
        """What is wrong with the settings of a text."""
        row, name = self.task_row, self.task_name
        if row is None or row.words:
            if self.tokens is None or (self.tokens == "characters") == (name == "characters"):
                return []
            usual = "characters" if name == "characters" else "space or words"
            return [("tokens", f"must be {usual} for the task {name}, got {self.tokens!r}.")]
        known = type(self).model_fields
        names = [*(field.name for field in fields(Tokenization)), "fraction"]
        given = [setting for setting in names if getattr(self, setting) != known[setting].default]
        return [(setting, f"must be left out for {name}: it is for text.") for setting in given]

    @property
    def tokenization(self) -> Tokenization:
        """How the text is read."""
        usual: Tokens = "characters" if self.task_name == "characters" else "space"
        return Tokenization(
            self.tokens or usual, self.lower, self.min_count, self.max_words, self.split
        )

    @property
    def task_name(self) -> str:
        """The name of the task, or ``package.module:Class``."""
        if self.task is not None:
            return self.task
        usual = "series" if self.columns is not None else task_of(self.name)
        return "characters" if usual == TEXT and self.tokens == "characters" else usual

    @property
    def task_row(self) -> TaskRow | None:
        """The row of the task in ``noisin.tasks.names``; None for ``package.module:Class``."""
        return TASKS.get(self.task_name)

    @property
    def task_class(self) -> str:
        """The class of the task, as ``package.module:Class``."""
        row = self.task_row
        return self.task_name if row is None else row.home

    @property
    def described_columns(self) -> Columns | None:
        """The columns of your own series, as :func:`noisin.data.columns.load` takes them."""
        if self.columns is None or self.likelihood is None:
            return None
        return Columns(likelihood=self.likelihood, **self.columns.model_dump())

    @property
    def learns_scale(self) -> bool:
        """Whether the likelihood is one with a learnt scale."""
        known = hourly.FILES.get(self.name)
        usual = known.likelihood if known is not None and self.task_name == "series" else None
        return (self.likelihood or usual) in ("scaled-gaussian", "student-t")
