"""The settings of the data."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from noisin.tasks.names import TASKS, TaskRow, task_of
from noisin.training.config.choice import OneOf
from noisin.training.config.section import Section


class DataConfig(Section):
    """The data to learn from."""

    name: str = Field(
        default="manual",
        min_length=1,
        description="The text: manual (built in), ptb, wikitext-2, a folder of train, valid and "
        "test text files, or one text file. Polyphonic music: jsb, nottingham, musedata or "
        "piano-midi.",
    )
    folder: str | None = Field(
        default=None,
        description="The folder that contains the files of a named data set; by default "
        "NOISIN_DATA. Otherwise ptb and wikitext-2 are downloaded.",
    )
    task: Annotated[str, AfterValidator(OneOf(TASKS))] | None = Field(
        default=None, description="What to predict; by default decided by data.name."
    )

    @property
    def task_row(self) -> TaskRow | None:
        """The row of the task in ``noisin.tasks.names``; None for ``package.module:Class``."""
        return TASKS.get(self.task or task_of(self.name))

    @property
    def task_class(self) -> str:
        """The class of the task, as ``package.module:Class``."""
        row = self.task_row
        if row is not None:
            return row.home
        assert self.task is not None
        return self.task
