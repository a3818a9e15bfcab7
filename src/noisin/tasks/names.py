"""The tasks by name, and which task a data set belongs to. Nothing here needs torch.

To add a task, write its class and add a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from noisin.tasks.unit import BITS_PER_CHARACTER, NATS_PER_FRAME, NATS_PER_STEP, PERPLEXITY, Unit


@dataclass(frozen=True)
class TaskRow:
    """A task.

    Attributes:
        home: the class of the task, as ``package.module:Class``.
        unit: the unit of its scores.
        data: the names of the data sets (``data.name``) that belong to it.
        words: whether it predicts words, whose embeddings the softmax can share.
    """

    home: str
    unit: Unit
    data: tuple[str, ...] = ()
    words: bool = False


DEFAULT = "text"  # the task of any other data
TASKS: Mapping[str, TaskRow] = {
    "text": TaskRow("noisin.tasks.text:Text", PERPLEXITY, words=True),
    "characters": TaskRow("noisin.tasks.text:Characters", BITS_PER_CHARACTER, words=True),
    "music": TaskRow(
        "noisin.tasks.music:Music",
        NATS_PER_FRAME,
        data=("jsb", "nottingham", "musedata", "piano-midi"),
    ),
    "series": TaskRow("noisin.tasks.series:Series", NATS_PER_STEP, data=("bikes", "ett")),
}


def task_of(data: str) -> str:
    """The name of the task that a data set belongs to.

    >>> task_of("jsb"), task_of("ptb"), task_of("my/folder")
    ('music', 'text', 'text')
    """
    return next((name for name, row in TASKS.items() if data in row.data), DEFAULT)
