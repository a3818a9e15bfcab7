"""The identity of a custom model and task."""

from __future__ import annotations

from typing import Any

from pydantic import Field, field_validator

from noisin.training.config.choice import json_values
from noisin.training.config.section import Section


class OwnConfig(Section):
    """A model and a task that were passed to ``Trainer.fit`` rather than built from settings.

    Each is identified by JSON values, such as its class and the arguments of its constructor, or a
    name and a version. A run continues only with the same values.
    """

    model: dict[str, Any] = Field(description="What identifies the model.")
    task: dict[str, Any] = Field(description="What identifies the task, its data included.")

    @field_validator("model", "task")
    @classmethod
    def _is_json(cls, values: dict[str, Any]) -> dict[str, Any]:
        return json_values(values, "values")
