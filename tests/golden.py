"""Golden steps: what training computes, to compare a version of the code with another.

``python -m tests.golden record FILE`` trains small models by every kind of recipe for 20 steps and
records the loss, a hash of the weights and a hash of the random stream after each of them.
``python -m tests.golden compare FILE`` records again and compares bit for bit. Bits depend on the
processor and the number of threads, so both belong on one machine. A refactoring that is to change
nothing is compared with the commit before it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import random
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

WORDS = [f"w{i}" for i in range(40)]
COMMON = {
    "model.hidden_size": "16",
    "train.batch_size": "8",
    "train.bptt": "10",
    "train.epochs": "4",
    "train.lr": "5",
    "train.eval_batch_size": "2",
    "train.clean_tokens": "0",
    "threads": "1",
}
NOISE = {"noise.gamma": "0.5"}
RECIPES: dict[str, dict[str, str]] = {
    "sgd-averaged-from-start": {**NOISE, "train.averaging": "from_start"},
    "sgd-averaged-on-trigger": {**NOISE, "train.averaging": "nt", "train.nt_window": "1",
                                "train.lr": "60"},
    "sgd-clean": {"train.averaging": "none"},
    "adamw": {**NOISE, "train.optimizer": "adamw", "train.lr": "0.01",
              "train.weight_decay": "0.01"},
    "dropout": {**NOISE, "model.dropout.input": "0.5", "model.dropout.between": "0.4",
                "model.dropout.output": "0.5"},
    "dropout-locked": {"model.dropout.input": "0.5", "model.dropout.output": "0.5",
                       "model.dropout.locked": "true"},
    "two-samples": {**NOISE, "train.K": "2"},
    "penalty": {**NOISE, "noise.feedback": "false", "noise.noisy_layers": "last",
                "train.objective": "penalty"},
    "strong": {**NOISE, "noise.feedback": "false", "noise.noisy_layers": "last"},
    "additive-shared": {**NOISE, "noise.mode": "additive", "noise.share": "sequence"},
    "variable-length": {**NOISE, "train.variable_length": "true"},
    "schedule": {**NOISE, "noise.schedule.kind": "linear", "noise.schedule.epochs": "3"},
    "beta": {"noise.family": "beta", "noise.gamma": "0.25", "noise.alpha": "2"},
    "gru-read": {**NOISE, "model.cell": "gru"},
    "gru-state": {"noise.gamma": "0.1", "model.cell": "gru", "noise.site": "state"},
    "elman-tanh": {**NOISE, "model.cell": "elman-tanh"},
    "elman-relu": {**NOISE, "model.cell": "elman-relu", "train.lr": "1"},
    "elman-sigmoid": {**NOISE, "model.cell": "elman-sigmoid", "model.tied": "false"},
    "embedding": {**NOISE, "model.embedding_size": "12", "model.num_layers": "3"},
}  # fmt: skip
# The loop of recurrent dropout may sum in another order: losses are compared to 1e-12, in float64.
CLOSE: dict[str, dict[str, str]] = {
    "recurrent-dropout": {**NOISE, "model.dropout.input": "0.5", "model.dropout.recurrent": "0.4"},
    "recurrent-dropout-clean": {"model.dropout.recurrent": "0.4"},
    "recurrent-dropout-locked": {**NOISE, "model.dropout.recurrent": "0.4",
                                 "model.dropout.locked": "true", "noise.feedback": "false"},
    "recurrent-dropout-gru": {**NOISE, "model.dropout.recurrent": "0.4", "model.cell": "gru"},
    "recurrent-dropout-elman": {**NOISE, "model.dropout.recurrent": "0.4",
                                "model.cell": "elman-tanh"},
}  # fmt: skip


def write_corpus(folder: Path) -> None:
    """A few hundred words, the same at every call."""
    source = random.Random(1111)
    for name, words in (("train", 409), ("valid", 60), ("test", 60)):
        lines = [" ".join(source.choices(WORDS, range(1, 41), k=10)) for _ in range(words // 11)]
        (folder / f"{name}.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


@contextlib.contextmanager
def watched() -> Iterator[list[dict[str, Any]]]:
    """Listen to every backward pass and every step of an optimizer, whoever makes them."""
    steps: list[dict[str, Any]] = []
    losses: list[float] = []
    backward = torch.autograd.backward

    def listen(tensors: Any, *args: Any, **kwargs: Any) -> None:
        losses.append(float(tensors.detach()))
        backward(tensors, *args, **kwargs)

    def note(optimizer: torch.optim.Optimizer, *_: Any) -> None:
        digest = hashlib.sha256()
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                digest.update(parameter.detach().contiguous().numpy().tobytes())
        stream = hashlib.sha256(torch.get_rng_state().numpy().tobytes()).hexdigest()
        steps.append(
            {"loss": losses[-1].hex(), "weights": digest.hexdigest(), "random": stream}
        )  # fmt: skip

    hook = register_optimizer_step_post_hook(note)
    torch.autograd.backward = listen
    try:
        yield steps
    finally:
        torch.autograd.backward = backward
        hook.remove()


def train(settings: dict[str, str], folder: Path) -> list[dict[str, Any]]:
    """The steps of one recipe, by the command line."""
    from noisin.cli import main

    flags = [f"--{name}={value}" for name, value in (COMMON | settings).items()]
    silent = io.StringIO()
    with (
        watched() as steps,
        contextlib.redirect_stdout(silent),
        contextlib.redirect_stderr(silent),
        pytest.raises(SystemExit) as end,
    ):
        main(["train", "manual", f"--data.name={folder}", f"--out={folder / 'runs'}", *flags])
    assert end.value.code == 0, silent.getvalue()
    return steps


def record() -> dict[str, Any]:
    """The steps of all recipes."""
    found: dict[str, Any] = {}
    for name, settings in (RECIPES | CLOSE).items():
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64 if name in CLOSE else torch.float32)
        try:
            with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
                warnings.simplefilter("ignore")
                write_corpus(Path(folder))
                found[name] = train(settings, Path(folder))
        finally:
            torch.set_default_dtype(before)
        print(f"{name}: {len(found[name])} steps", file=sys.stderr)
    return found


def differences(before: dict[str, Any], now: dict[str, Any]) -> list[str]:
    """Where two recordings differ: the first step of each recipe that does."""
    found = [f"{name}: is missing" for name in before if name not in now]
    for name, steps in before.items():
        pairs = list(zip(steps, now.get(name, []), strict=False))
        if name in now and len(steps) != len(now[name]):
            found.append(f"{name}: has {len(now[name])} steps, had {len(steps)}")
        for i, (old, new) in enumerate(pairs):
            if name in CLOSE:
                a, b = float.fromhex(old["loss"]), float.fromhex(new["loss"])
                same = abs(a - b) <= 1e-12 * abs(a) and old["random"] == new["random"]
            else:
                same = old == new
            if not same:
                found.append(f"{name}: differs from step {i + 1} on: {old} and {new}")
                break
    return found


def main() -> int:
    """Record or compare."""
    action, path = sys.argv[1], Path(sys.argv[2])
    now = record()
    if action == "record":
        path.write_text(json.dumps(now), encoding="utf-8")
        return 0
    found = differences(json.loads(path.read_text(encoding="utf-8")), now)
    print("\n".join(found) if found else f"{len(now)} recipes agree in every step")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
