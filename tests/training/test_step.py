"""Steps: what a kill leaves of state, order and averages; resets at random; and the kernel."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from noisin.training.state import TrainState
from noisin.training.step import Stepper
from tests.compiler import needs_compiler
from tests.training import toy

# A rate at which the long average is kept in epoch 3 and replaced by the short one in epoch 4.
ALL: dict[str, Any] = {
    "train": {"averaging": "two_tailed", "partial_shuffle": True, "state_reset": 0.3}
    | {"optimizer": "adam", "lr": 0.02, "beta1": 0, "shrink": 1e-3, "lr_patience": 2}
    | {"variable_length": True, "save_steps": 3, "epochs": 4, "clean_tokens": 0}
}


def kill_at(step: int) -> None:
    """The process kills itself before an update; the last save was a few steps before."""
    update = Stepper.update

    def update_or_die(self: Stepper, state: TrainState, batch: Any) -> None:
        if state.step == step:
            os.kill(os.getpid(), signal.SIGKILL)
        update(self, state, batch)

    Stepper.update = update_or_die  # type: ignore[method-assign]


@pytest.mark.parametrize("step", [8, 35])  # in the first epoch, and in the last
def test_two_tails_another_order_and_resets_after_a_kill(step: int, tmp_path: Path) -> None:
    """All that is random is a function of seed, epoch and place; both averages are saved."""
    settings = toy.config(**ALL)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert toy.run(whole, settings=settings).code == 0
    outcome = toy.run(killed, settings=settings, before=lambda: kill_at(step))
    assert outcome.code == -signal.SIGKILL
    assert toy.run(killed, settings=settings) == toy.Outcome(0, "", [])
    assert toy.result(killed) == toy.result(whole)
    averaged = [line["valid_averaged"] is not None for line in toy.result(whole)["metrics"]]
    assert averaged == [False, True, True, True]


def test_resets_are_as_frequent_as_asked_and_start_from_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states: list[bool] = []
    found = Stepper._carried

    def noted(self: Stepper, state: TrainState, batch: Any) -> Any:
        carried = found(self, state, batch)
        if state.carried is not None:
            states.append(carried is None)
        return carried

    monkeypatch.setattr(Stepper, "_carried", noted)
    toy.fit(tmp_path, train={"bptt": 1, "epochs": 3, "state_reset": 0.3, "clean_tokens": 0})
    assert len(states) == 3 * 98
    assert sum(states) / len(states) == pytest.approx(0.3, abs=0.1)


@needs_compiler
def test_without_noise_training_uses_the_c_kernel_and_evaluation_torchs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Torch's GRU records every operation of every step."""
    recorded = []

    def forward(self: Any, *args: Any) -> Any:
        recorded.append(torch.is_grad_enabled())
        return torchs(self, *args)

    torchs = torch.nn.GRU.forward
    monkeypatch.setattr(torch.nn.GRU, "forward", forward)
    toy.train(toy.config(model={"cell": "gru"}, noise=None), tmp_path / "run")
    assert recorded
    assert not any(recorded)
