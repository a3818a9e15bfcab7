"""What a task must have, and what is found out where it does not say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

from noisin.data import Batch
from noisin.errors import InvalidType
from noisin.tasks import NATS_PER_STEP, Observation, Task
from noisin.tasks.base import facts_of, name_of, observation_of, sha256_of, splits_of


class Minimal:
    unit = NATS_PER_STEP

    def __init__(self, value: float = 1.0) -> None:
        self.value = value

    def batches(self, split: str, *, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        x = torch.full((3, 2, 1), self.value)
        yield Batch(x, x, stop=1)


def test_a_unit_and_batches_make_a_task() -> None:
    assert isinstance(Minimal(), Task)
    assert not isinstance(object(), Task)
    assert name_of(Minimal()) == "Minimal"
    assert splits_of(Minimal()) == ("train", "valid", "test")


def test_data_are_known_by_their_content() -> None:
    assert sha256_of(Minimal()) == sha256_of(Minimal())
    assert sha256_of(Minimal()) != sha256_of(Minimal(2.0))
    assert facts_of(Minimal()) == {"data": {"name": "Minimal", "sha256": sha256_of(Minimal())}}


def test_a_task_may_say_more() -> None:
    class Named(Minimal):
        name, sha256, splits = "mine", "abc", ("train", "valid")
        observation = Observation("poisson", 1)

    assert facts_of(Named()) == {"data": {"name": "mine", "sha256": "abc"}}
    assert splits_of(Named()) == ("train", "valid")
    assert observation_of(Named()) == Observation("poisson", 1)
    with pytest.raises(InvalidType, match="needs to know what to predict"):
        observation_of(Minimal())


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"x": [1]}, "x must be a tensor"),
        ({"target": torch.zeros(3, 3)}, r"equal T and N, got x \(3, 2\), target \(3, 3\)"),
        ({"x": torch.zeros(3), "target": torch.zeros(3)}, "Time comes first"),
        ({"scored": torch.zeros(3, 2)}, "must be a boolean tensor"),
        ({"scored": torch.zeros(2, 3, dtype=torch.bool)}, "equal T and N"),
    ],
)
def test_a_batch_that_cannot_be(parts: dict[str, Any], message: str) -> None:
    given = {"x": torch.zeros(3, 2), "target": torch.zeros(3, 2)} | parts
    with pytest.raises((InvalidType, ValueError), match=message):
        Batch(**given)


def test_a_batch_counts_what_is_scored() -> None:
    x = torch.zeros(3, 2, 5)
    scored = torch.tensor([[True, True], [True, False], [False, False]])
    assert Batch(x, x).count == 6
    assert Batch(x, x, scored).count == 3
    assert Batch(x, x, scored).repeat(3).count == 9
    assert Batch(x, x, scored).columns(slice(1, 2)).count == 1
    assert Batch(x, x, scored).first_step().count == 2
