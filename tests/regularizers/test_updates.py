"""Dropout of updates against its equations and torch's cells."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import noisin
from noisin.errors import InvalidValue
from noisin.models import LanguageModel
from noisin.regularizers import UpdateDropoutGRUCell, UpdateDropoutLSTMCell
from tests import stats

T, N, F, H = 4, 3, 2, 5
KINDS = {nn.LSTMCell: UpdateDropoutLSTMCell, nn.GRUCell: UpdateDropoutGRUCell}


@pytest.mark.parametrize("theirs", KINDS)
def test_without_a_rate_or_in_eval_it_is_torchs_cell(theirs: Any) -> None:
    torch_cell = theirs(F, H).double()
    for cell in (KINDS[theirs](F, H), KINDS[theirs](F, H, p=0.5).eval()):
        cell.double().load_state_dict(torch_cell.state_dict(), strict=True)
        x = torch.randn(T, N, F).double()
        assert_close(noisin.unroll(cell, x), noisin.unroll(torch_cell, x))


@pytest.mark.parametrize("locked", [True, False])
def test_only_the_update_is_masked(locked: bool) -> None:
    """From torch's own step: c' - f c is the update of an LSTM, and h' - u h that of a GRU."""
    x = torch.randn(T, N, F).double()
    lstm = UpdateDropoutLSTMCell(F, H, p=0.4, locked_update=locked).double()
    gru = UpdateDropoutGRUCell(F, H, p=0.4, locked_update=locked).double()
    h, c = torch.randn(2, N, H).double()
    for cell in (lstm, gru):
        masks = torch.stack([step.update for step in cell.step_inputs(x)])
        assert all(torch.equal(mask, masks[0]) for mask in masks) == locked
        step = cell.step_inputs(x)[2]
        m = step.update
        plain = step._replace(update=None)
        gates = cell.weight_ih @ x[2].T + cell.weight_hh @ h.T
        gates = (gates.T + cell.bias_ih + cell.bias_hh).sigmoid()
        if cell is lstm:
            f = gates[:, H : 2 * H]
            clean_c = cell(plain, (h, c))[1]
            got_h, got_c = cell(step, (h, c))
            assert_close(got_c, f * c + m * (clean_c - f * c))
            o = gates[:, 3 * H :]
            assert_close(got_h, o * got_c.tanh())
        else:
            u = gates[:, H : 2 * H]
            clean = cell(plain, h)
            assert_close(cell(step, h), u * h + m * (clean - u * h))


def test_a_dropped_unit_keeps_its_memory() -> None:
    cell = UpdateDropoutLSTMCell(F, H, p=0.4)
    with torch.no_grad():
        cell.bias_ih[H : 2 * H].fill_(1e3)  # never forget
    h, c = torch.randn(2, 2000, H)
    step = cell.step_inputs(torch.randn(1, 2000, F))[0]
    assert step.update is not None
    kept = cell(step, (h, c))[1] == c
    assert torch.equal(kept, step.update == 0)
    stats.assert_mean(kept.double().numpy().ravel(), 0.4, (0.4 * 0.6) ** 0.5)


def test_it_begins_with_the_weights_of_the_plain_model() -> None:
    """So that runs with one seed differ by the dropout alone."""
    models = []
    for rates in (None, (0.3,)):
        torch.manual_seed(5)
        models.append(LanguageModel(7, hidden_size=H, update_dropout=rates))
    plain, dropped = (list(lm.parameters()) for lm in models)
    assert_close(plain, dropped, rtol=0, atol=0)


def test_bad_rates() -> None:
    for kind in KINDS.values():
        with pytest.raises(InvalidValue, match="p is a probability"):
            kind(F, H, p=1.0)
        with pytest.raises(InvalidValue, match="locked_update must be True or False"):
            kind(F, H, p=0.1, locked_update="yes")
