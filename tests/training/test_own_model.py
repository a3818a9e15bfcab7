"""A model and a task of the user's own: trained, killed, continued, refused, reported."""

from __future__ import annotations

import json
import runpy
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from noisin import tasks, training
from noisin.cli import main
from noisin.data import Batch
from noisin.errors import InvalidType, InvalidValue, Unsupported
from noisin.experiments import words
from noisin.experiments.collection import collect
from noisin.models import LanguageModel, Loss
from noisin.noise import Gaussian
from noisin.regularizers import BatchNormLSTMCell
from noisin.training.identity import identity_of
from noisin.training.predictors import Clean, evaluate
from noisin.training.state import weights_of
from tests.training import toy

EXAMPLE = Path(__file__).parents[2] / "examples" / "own_model.py"


class Line(nn.Module):
    """A linear autoregression with Gaussian errors of unit variance."""

    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = scale
        self.weight = nn.Parameter(torch.zeros(1))

    def log_prob(self, batch: Batch, state: Any = None) -> tuple[Tensor, Any]:
        error = batch.target - self.scale * self.weight * batch.x
        return -(error**2).sum(-1) / 2, state

    def loss(self, batch: Batch, state: Any = None) -> Loss:
        log_p, state = self.log_prob(batch, state)
        return Loss(-log_p.mean(), batch.count, state=state)


class Doubling:
    """Each value is twice the one before, up to an error."""

    unit = tasks.NATS_PER_STEP
    name = "doubling"

    def __init__(self, error: float = 0.1) -> None:
        self.error = error

    def batches(self, split: str, *, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
        random = torch.Generator().manual_seed({"train": 0, "valid": 1, "test": 2}[split])
        for k in range(start, 6):
            x = torch.randn(5, 4, 1, generator=torch.Generator().manual_seed(k))
            noise = torch.randn(5, 4, 1, generator=random) * self.error
            yield Batch(x, 2 * x + noise, start=k, stop=k + 1, carries=False)


def settings(**changes: Any) -> training.TrainConfig:
    plain = {"lr": 0.2, "averaging": "none", "clip": 0, "epochs": 4}
    return training.TrainConfig(**(plain | changes))


def fit(out: Path, model: nn.Module | None = None, task: Any = None, **changes: Any) -> Any:
    torch.manual_seed(0)
    trainer = training.Trainer(settings(**changes), out, threads=1)
    return trainer.fit(Line() if model is None else model, Doubling() if task is None else task)


def test_it_learns_and_is_recorded(tmp_path: Path) -> None:
    model = Line()
    record = fit(tmp_path / "run", model)
    assert record.environment["unit"] == {"name": "nats", "per": "step"}
    assert record.environment["data"]["name"] == "doubling"
    best = record.summary["best"]
    assert best["test"]["nats"] < 0.02 < record.metrics[0]["train"]["nats"]
    own = record.config.own
    assert own.model["class"].endswith("test_own_model:Line")
    assert own.model["arguments"] == {"scale": 1.0}
    restored = training.restore(record, model=Line())
    score = evaluate(Clean(restored.model), Doubling().batches("test"))
    assert score.nats == best["test"]["nats"]
    assert restored.vocab is None
    with pytest.raises(InvalidValue, match=r"a run of Line, .* restore\(record, model=model\)"):
        training.restore(record)


def test_it_continues_where_it_ended(tmp_path: Path) -> None:
    whole = fit(tmp_path / "whole", epochs=4)
    fit(tmp_path / "run", epochs=2)
    continued = fit(tmp_path / "run", epochs=4)
    lines = [[toy.without_times(line) for line in r.metrics] for r in (whole, continued)]
    assert lines[0] == lines[1]


class Normalised(Line):
    """With statistics of batches, which are saved and which no optimizer updates."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(1)

    def log_prob(self, batch: Batch, state: Any = None) -> tuple[Tensor, Any]:
        x = self.norm(batch.x.flatten(0, 1)).view_as(batch.x)
        return super().log_prob(replace(batch, x=x), state)


@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_statistics_of_batches_continue_too(optimizer: str, tmp_path: Path) -> None:
    whole, model = Normalised(), Normalised()
    fit(tmp_path / "whole", whole, epochs=4, optimizer=optimizer)
    fit(tmp_path / "run", Normalised(), epochs=2, optimizer=optimizer)
    fit(tmp_path / "run", model, epochs=4, optimizer=optimizer)
    assert model.norm.running_mean.any()
    for name, weight in weights_of(whole).items():
        assert torch.equal(weights_of(model)[name], weight)


class Partial(Line):
    """With a parameter that is frozen, and one that is not used."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Parameter(torch.ones(2), requires_grad=False)
        self.unused = nn.Parameter(torch.ones(3))


@pytest.mark.parametrize("averaging", ["none", "from_start", "two_tailed"])
@pytest.mark.parametrize("optimizer", ["sgd", "adam", "adamw"])
def test_parameters_without_a_gradient_are_left_as_they_are(
    optimizer: str, averaging: str, tmp_path: Path
) -> None:
    """Of which Adam has no moments."""
    given: Any = {"optimizer": optimizer, "averaging": averaging}
    whole, model = Partial(), Partial()
    fit(tmp_path / "whole", whole, epochs=4, **given)
    fit(tmp_path / "run", Partial(), epochs=2, **given)
    fit(tmp_path / "run", model, epochs=4, **given)
    assert model.weight != 0
    assert model.frozen.eq(1).all()
    for name, weight in weights_of(whole).items():
        assert torch.equal(weights_of(model)[name], weight)


class Other(Line):
    """Another class with the same weights."""


@pytest.mark.parametrize(
    ("model", "task", "message"),
    [
        (Line(2.0), Doubling(), r"own.model.arguments.scale = 1.0 and 2.0"),
        (Other(), Doubling(), "own.model.class"),
        (Line(), Doubling(0.2), "own.task"),
    ],
    ids=["arguments", "class", "data"],
)
def test_another_model_or_task_is_refused(
    model: nn.Module, task: Any, message: str, tmp_path: Path
) -> None:
    fit(tmp_path / "run", epochs=1)
    before = toy.result(tmp_path / "run")
    with pytest.raises(InvalidValue, match=message):
        fit(tmp_path / "run", model, task, epochs=2)
    assert toy.result(tmp_path / "run") == before


def test_a_name_and_a_version_may_be_given(tmp_path: Path) -> None:
    class Versioned(Line):
        def __init__(self, table: dict[str, object], version: int = 1) -> None:
            super().__init__()
            self.identity = {"name": "versioned", "version": version}

    fit(tmp_path / "run", Versioned({}), epochs=1)
    fit(tmp_path / "run", Versioned({"a": object()}), epochs=2)
    with pytest.raises(InvalidValue, match="own.model.version = 1 and 2"):
        fit(tmp_path / "run", Versioned({}, version=2), epochs=3)


def test_a_language_model_is_known_by_its_parts_and_a_text_by_its_sizes(tmp_path: Path) -> None:
    def fit_words(hidden_size: int = 4, bptt: int = 10, **changes: Any) -> Any:
        torch.manual_seed(0)
        lm = LanguageModel(toy.WORDS, hidden_size=hidden_size, noise=Gaussian(0.5))
        text = tasks.Text(toy.corpus(), batch_size=8, bptt=bptt)
        return training.Trainer(settings(**changes), tmp_path / "run", threads=1).fit(lm, text)

    assert len(fit_words(epochs=1).metrics) == 1
    assert len(fit_words(epochs=2).metrics) == 2
    with pytest.raises(InvalidValue, match="own.task.bptt = 10 and 5"):
        fit_words(bptt=5, epochs=3)
    with pytest.raises(InvalidValue, match="own.model.parts"):
        fit_words(hidden_size=5, epochs=3)


def test_what_does_not_identify_itself_is_refused() -> None:
    class Silent(nn.Module):
        def __init__(self, size: int) -> None:
            super().__init__()

    with pytest.raises(InvalidValue, match=r"argument 'size' is not an attribute.*identity = \{"):
        identity_of(Silent(3))

    class Wrong(Line):
        identity = "mine"

    with pytest.raises(InvalidType, match="identity must be a dict"):
        identity_of(Wrong())


def test_arguments_are_known_by_value_and_not_by_address() -> None:
    class Holder:
        def __init__(self, values: Tensor, kind: type, part: object) -> None:
            self.values, self.kind, self.part = values, kind, part

    def identity(value: float) -> dict[str, Any]:
        return identity_of(Holder(torch.full((3,), value), Line, object()))

    assert identity(1.0) == identity(1.0)
    assert identity(1.0) != identity(2.0)


@pytest.mark.parametrize(
    ("model", "task", "message"),
    [
        (nn.Linear(1, 1), Doubling(), "Module with loss.* got Linear"),
        (object(), Doubling(), "got object"),
        (Line(), [1, 2], "task with unit and batches.* got list"),
    ],
)
def test_what_cannot_be_trained(model: Any, task: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidType, match=message):
        fit(tmp_path / "run", model, task)
    assert not (tmp_path / "run").exists()


def test_a_task_without_batches_is_refused(tmp_path: Path) -> None:
    class Empty(Doubling):
        def batches(self, split: str, *, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
            return iter(())

    with pytest.raises(InvalidValue, match="yields nothing to train on"):
        fit(tmp_path / "run", task=Empty())


def test_padding_that_statistics_would_contain_is_refused(tmp_path: Path) -> None:
    """Before a folder is created, though the first batch has no padding yet."""

    class Padded(Doubling):
        def batches(self, split: str, *, epoch: int = 0, start: int = 0) -> Iterator[Batch]:
            for batch in super().batches(split, epoch=epoch, start=start):
                yield replace(batch, padded=True)

    class Cell(Line):
        def __init__(self) -> None:
            super().__init__()
            self.cell = BatchNormLSTMCell(1, 2)

    with pytest.raises(Unsupported, match="Use cell = 'layer-norm-lstm', or train on sequences of"):
        fit(tmp_path / "run", Cell(), Padded())
    assert not (tmp_path / "run").exists()


def test_it_is_in_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fit(tmp_path / "run")
    (run,) = collect(tmp_path)
    assert words.task(run.config) == "doubling, Line"
    with pytest.raises(SystemExit) as end:
        main(["report", str(tmp_path)])
    assert end.value.code == 0, capsys.readouterr().err
    page = (tmp_path / "report.html").read_text()
    assert "doubling, Line" in page
    assert "nats per step" in page


@pytest.mark.long
def test_the_example_survives_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed in the middle and started again, it ends in the same bits."""
    killed = subprocess.Popen([sys.executable, str(EXAMPLE), str(tmp_path / "killed")])
    toy.wait_for(lambda: (tmp_path / "killed" / "checkpoints" / "000003").exists())
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert not (tmp_path / "killed" / "summary.json").exists()
    for name in ("killed", "whole"):  # in this process, which has torch loaded
        monkeypatch.setattr(sys, "argv", [str(EXAMPLE), str(tmp_path / name)])
        runpy.run_path(str(EXAMPLE), run_name="__main__")
        assert "nats per hour" in capsys.readouterr().out
    assert toy.result(tmp_path / "killed") == toy.result(tmp_path / "whole")
    summary = json.loads((tmp_path / "whole" / "summary.json").read_text())
    assert summary["best"]["test"]["nats"] < 2.6
