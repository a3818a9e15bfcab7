"""States: trees of tensors with their batch in dimension -2."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from torch import Tensor

from noisin._util import states
from noisin.errors import InvalidType


class Pair(NamedTuple):
    h: Tensor
    c: Tensor | None


def test_a_tree_keeps_its_shape() -> None:
    state = ([torch.ones(2, 3)], Pair(torch.ones(1, 2, 3), None), None)
    found = states.map(torch.neg, state)
    assert isinstance(found[0], list)
    assert isinstance(found[1], Pair)
    assert found[1].c is None
    assert found[2] is None
    assert torch.equal(found[1].h, -torch.ones(1, 2, 3))
    added = states.map(torch.add, state, found)
    assert not added[0][0].any()


def test_detached_and_moved() -> None:
    h = torch.ones(2, 3, requires_grad=True) * 2
    assert not states.detach((h, None))[0].requires_grad
    assert states.to((h,), "meta")[0].is_meta


@pytest.mark.parametrize("lead", [(), (2,)])
@pytest.mark.parametrize("K", [1, 3])
def test_columns_are_those_of_every_copy(lead: tuple[int, ...], K: int) -> None:
    whole = torch.randn(*lead, 6, 4)
    copies = states.repeat((whole,), K)[0]
    assert copies.shape == (*lead, K * 6, 4)
    own = states.columns(copies, slice(2, 5), 6)
    assert torch.equal(own, states.repeat(whole[..., 2:5, :], K))
    parts = [states.columns((copies,), slice(k, k + 2), 6) for k in (0, 2, 4)]
    assert torch.equal(states.join(parts, 2)[0], copies)


def test_what_is_not_a_tensor_is_refused() -> None:
    with pytest.raises(InvalidType, match="state must be a tensor, got int"):
        states.detach((torch.ones(1), 3))
