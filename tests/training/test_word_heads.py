"""Heads and structures from settings: trained, killed, continued, evaluated, made to speak."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from noisin.errors import InvalidValue
from noisin.models import LanguageModel, MixtureOfSoftmaxes, PointerSentinel
from noisin.models.projection import DownProjection
from noisin.tasks import Observation
from noisin.training import RunConfig, RunRecord, restore
from noisin.training.build import build_model
from tests.cli.run import in_process
from tests.training import toy

MIXTURE = {"kind": "mixture-of-softmaxes", "experts": 3, "dropout": 0.3}
POINTER = {"kind": "pointer-sentinel", "window": 7}
OFTEN = {"epochs": 2, "save_steps": 3}
SETTINGS: dict[str, dict[str, Any]] = {
    "mixture": {
        "model": {"embedding_size": 4, "last_size": 5, "num_layers": 3, "head": MIXTURE},
        "train": OFTEN,
    },
    "pointer": {"model": {"tied": False, "head": POINTER}, "train": {"K": 2, **OFTEN}},
    "skip, projection, augmented loss": {
        "model": {"embedding_size": 4, "skip": True, "projection": {"dropout": 0.2}}
        | {"output_bias": False},
        "train": {"augmented_loss": {"gamma": 0.5, "temperature": 5.0}, **OFTEN},
    },
}


def built(name: str, **more: Any) -> LanguageModel:
    found = build_model(toy.config(**SETTINGS[name], **more), Observation("categorical", 12))
    assert isinstance(found, LanguageModel)
    return found


def test_the_settings_reach_the_model() -> None:
    mixture, pointer, skip = (built(name) for name in SETTINGS)
    assert isinstance(mixture.head, MixtureOfSoftmaxes)
    assert (mixture.head.experts, mixture.head.dropout.p) == (3, 0.3)
    assert mixture.head.weight is mixture.embedding.weight
    assert [layer.rnn.hidden_size for layer in mixture.layers] == [6, 6, 5]
    assert isinstance(pointer.head, PointerSentinel)
    assert pointer.head.window == 7
    assert pointer.head.weight is not pointer.embedding.weight
    assert skip.skip
    assert isinstance(skip.projection, DownProjection)
    assert skip.projection.dropout.p == 0.2
    assert [term.weight for term in skip.terms] == [2.5]  # type: ignore[attr-defined]
    assert not isinstance(skip.bias, torch.nn.Parameter)


@pytest.mark.long
@pytest.mark.parametrize("name", SETTINGS)
def test_killed_and_continued(name: str, tmp_path: Path) -> None:
    """In the middle of an epoch, so that the memory of the head is saved and read."""
    settings = toy.config(**SETTINGS[name])
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert toy.run(whole, settings=settings) == toy.Outcome(0, "", [])
    before = toy.signal_at(killed, 45, signal.SIGKILL)
    assert toy.run(killed, settings=settings, before=before).code == -signal.SIGKILL
    assert len(toy.numbers(killed)) > 0
    assert toy.run(killed, settings=settings) == toy.Outcome(0, "", [])
    assert toy.result(killed) == toy.result(whole)
    lines = RunRecord(whole).metrics
    assert lines[-1]["train"]["nats"] < lines[0]["train"]["nats"]
    expected = {"pointer": {"pointer"}, "mixture": set()}.get(name, {"augmented"})
    assert set(lines[-1].get("terms", {})) == expected
    assert isinstance(restore(RunRecord(whole)).model, LanguageModel)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("text")
    for split in ("train", "valid", "test"):
        (folder / f"{split}.txt").write_text("a b c d a c\nb d\n" * 20)
    return folder


@pytest.mark.parametrize("head", [MIXTURE, POINTER], ids=lambda head: str(head["kind"]))
def test_from_the_command_line(head: Any, text: Path, tmp_path: Path, capsys: Any) -> None:
    """Flags, an evaluation with a temperature, generated text, and the words of the report."""
    flags = [f"--model.head.{name}={value}" for name, value in head.items()]
    small = "--model.hidden_size=6 --train.batch_size=4 --train.lr=5 --train.epochs=1 --threads=1"
    train = ["train", "ptb-small", f"--data.name={text}", *flags, *small.split()]
    assert in_process(*train, "--out", str(tmp_path / "runs")) == 0, capsys.readouterr().err
    (run,) = (tmp_path / "runs").glob("ptb-small-*")
    capsys.readouterr()
    found = []
    for temperature in ("1", "1.5"):
        assert in_process("evaluate", str(run), "--temperature", temperature, "--json") == 0
        found.append(json.loads(capsys.readouterr().out)["nats"])
    assert found[0] == pytest.approx(RunRecord(run).summary["best"]["test"]["nats"])
    assert found[0] != found[1]
    assert in_process("generate", str(run), "--prompt", "a b", "--length", "5") == 0
    assert capsys.readouterr().out.startswith("a b")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["kind=mixture-of-softmaxes", "experts=0"], "experts must be a whole number, 1 or more"),
        (["kind=mixture-of-softmaxes", "expert=3"], "unexpected keyword argument 'expert'"),
        (["kind=mixture-of-softmaxes", "dropout=1.0"], "must lie in [0, 1), got 1.0"),
        (["kind=pointer-sentinel", "window=-1"], "window must be a whole number of words, 1 or"),
        (
            ["kind=mixture"],
            "mixture-of-softmaxes, pointer-sentinel, autoregressive or package",
        ),
    ],
)
def test_bad_flags(flags: list[str], message: str, text: Path, tmp_path: Path, capsys: Any) -> None:
    given = [f"--model.head.{flag}" for flag in flags]
    given += [f"--data.name={text}", "--train.batch_size=4", "--out", str(tmp_path)]
    assert in_process("train", "ptb-small", *given) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_tied_head_must_take_the_embedding() -> None:
    given = {"model": {"head": {"kind": "linear", "generator": None}, "hidden_size": 4}}
    with pytest.raises(InvalidValue, match="model.tied must be false .* no argument embedding"):
        build_model(RunConfig.parse(given), Observation("categorical", 5))
    model = RunConfig.parse({"model": given["model"] | {"tied": False}})
    assert build_model(model, Observation("categorical", 5)).head_at(2.0)
    with pytest.raises(InvalidValue, match="projection left out unless the inputs are words"):
        build_model(RunConfig.parse({}), Observation("bernoulli", 5))
