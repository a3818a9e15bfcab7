"""The recipe: what a step does, what an epoch measures, when a run ends."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import noisin
from noisin import analysis, objective
from noisin.data import Windows
from noisin.errors import InvalidValue
from noisin.models import detach
from noisin.tasks import Observation
from noisin.training import restore
from noisin.training.build import build_model, build_noise
from noisin.training.config import NoiseConfig
from noisin.training.predictors import Clean, evaluate
from tests.training import toy

TOY = Observation("categorical", toy.WORDS)


def scored(model: Any, ids: Any) -> dict[str, Any]:
    """What a record keeps of the clean model on a text."""
    score = evaluate(Clean(model), Windows(ids, 10, 70).epoch(0))
    return {"nats": score.nats, "count": score.count}


def own_loop(settings: Any) -> tuple[list[torch.Tensor], list[torch.Tensor], list[float]]:
    """The same run by a loop of one's own: last weights, their mean, and nats in training."""
    torch.manual_seed(settings.seed)
    text, train = toy.corpus(), settings.train
    model = build_model(settings, TOY)
    parameters, iterates, nats = list(model.parameters()), [], []
    optimizer = torch.optim.SGD(parameters, lr=train.lr)
    windows = Windows(text.train, train.batch_size, train.bptt)
    for epoch in range(train.epochs):
        state, total = None, 0.0
        for window in windows.epoch(epoch):
            loss = model.loss(window, detach(state))
            state = loss.state
            optimizer.zero_grad()
            loss.mean.backward()
            torch.nn.utils.clip_grad_norm_(parameters, train.clip)
            optimizer.step()
            iterates.append([p.detach().clone() for p in parameters])
            total += loss.mean.item() * window.count
        nats.append(total / windows.tokens)
    mean = [torch.stack(values).double().mean(0) for values in zip(*iterates, strict=True)]
    return iterates[-1], mean, nats


def test_a_run_is_what_a_loop_of_ones_own_does(tmp_path: Path) -> None:
    settings = toy.config(train={"lr_decay": 1.0, "epochs": 2})
    record = toy.train(settings, tmp_path / "run")
    last, mean, nats = own_loop(settings)
    raw = restore(record, "last", "raw").model
    averaged = restore(record, "last", "averaged").model
    for ours, theirs in zip(raw.parameters(), last, strict=True):
        torch.testing.assert_close(ours.detach(), theirs, rtol=1e-5, atol=1e-6)
    for ours, theirs in zip(averaged.parameters(), mean, strict=True):
        torch.testing.assert_close(ours.detach().double(), theirs, rtol=1e-4, atol=1e-5)
    assert [line["train"]["nats"] for line in record.metrics] == pytest.approx(nats, rel=1e-5)


def test_what_an_epoch_measures(tmp_path: Path) -> None:
    text = toy.corpus()
    record = toy.fit(tmp_path / "run", train={"epochs": 2, "clean_tokens": 500})
    line, summary = record.metrics[-1], record.summary

    def measured(ids: Any, *which: Any) -> dict[str, Any]:
        return scored(restore(record, *which).model, ids)

    assert line["valid"] == measured(text.valid, "last", "raw")
    assert line["valid_averaged"] == measured(text.valid, "last", "averaged")
    assert line["train_clean"] == measured(text.train[:501], "last", "raw")
    assert line["train_clean"]["nats"] < line["train"]["nats"], "noise and dropout are off"
    assert line["train"]["count"] == 99 * 8
    assert (line["epoch"], line["step"], line["tokens"]) == (2, 20, 2 * 99 * 8)
    assert (line["lr"], line["noise_std"], "terms" in line) == (5.0, 0.5, False)
    assert summary["last"] == line
    assert summary["parameters"] == sum(p.numel() for p in restore(record).model.parameters())
    assert summary["config"] == record.config.hash()


@pytest.mark.parametrize("averaging", ["none", "from_start", "nt"])
def test_raw_and_averaged_weights_are_scored_each_at_its_best(
    averaging: str, tmp_path: Path
) -> None:
    text = toy.corpus()
    lr = 10.0 if averaging == "from_start" else 20.0  # early best average; late trigger
    settings = {"averaging": averaging, "nt_window": 1, "lr": lr, "epochs": 8}
    record = toy.fit(tmp_path / "run", train=settings | {"clean_tokens": 500})
    summary, lines = record.summary, record.metrics
    assert summary is not None
    lowest = {}
    for weights, name in (("raw", "valid"), ("averaged", "valid_averaged")):
        values = [math.inf if line[name] is None else line[name]["nats"] for line in lines]
        best = summary[weights]
        if averaging == "none" and weights == "averaged":
            assert best is None
            continue
        lowest[weights] = min(values)
        assert (best["weights"], best["epoch"]) == (weights, 1 + values.index(min(values)))
        model = restore(record, "best", weights).model
        for split, key in (
            (text.valid, name),
            (text.test, "test"),
            (text.train[:501], "train_clean"),
        ):
            assert best[key] == scored(model, split)
    better = min(lowest, key=lowest.__getitem__)
    assert summary["best"] == summary[better]
    assert restore(record).weights == better
    if averaging == "from_start":
        epochs = {summary["raw"]["epoch"], summary["averaged"]["epoch"]}
        assert len(epochs) == 2, "the case is one of different epochs"


def test_the_same_seed_starts_from_the_same_weights(tmp_path: Path) -> None:
    """Whatever the noise and the dropout, so that runs can be compared."""
    variants: dict[str, Any] = {
        "plain": {"noise": None, "model": {"dropout": {}}},
        "noise": {"model": {"dropout": {}}},
        "dropout": {"noise": None},
        "other": {"seed": 2},
    }
    weights = {}
    for name, changes in variants.items():
        record = toy.fit(tmp_path / name, train={"tokens": 1, "lr": 1e-30}, **changes)
        model = restore(record).model
        matrices = [p.flatten() for p in model.parameters() if p.dim() > 1]  # biases are zero
        weights[name] = torch.cat(matrices)
    assert torch.equal(weights["plain"], weights["noise"])
    assert torch.equal(weights["plain"], weights["dropout"])
    assert not torch.equal(weights["plain"], weights["other"])


def test_the_step_size_falls_when_validation_does_not(tmp_path: Path) -> None:
    record = toy.fit(tmp_path / "run", train={"lr": 40.0, "lr_decay": 2.0, "epochs": 8})
    best, lr = math.inf, 40.0
    for line in record.metrics:
        assert line["lr"] == lr
        lr = lr if line["valid"]["nats"] < best else lr / 2
        best = min(best, line["valid"]["nats"])
    assert lr < 40
    assert record.summary["best"]["valid"]["nats"] == best


def test_the_non_monotone_trigger(tmp_path: Path) -> None:
    """Averaging begins after the first epoch that is worse than all but the last n."""
    settings = {"averaging": "nt", "nt_window": 2, "lr": 40.0, "epochs": 14}
    record = toy.fit(tmp_path / "run", train=settings)
    history = [line["valid"]["nats"] for line in record.metrics]
    first = next(k for k in range(len(history)) if k > 2 and history[k] > min(history[: k - 2]))
    averaged = [line["valid_averaged"] is not None for line in record.metrics]
    assert averaged == [False] * (first + 1) + [True] * (13 - first)
    assert any(averaged)
    counted = [(line["valid_averaged"] or line["valid"])["nats"] for line in record.metrics]
    best = record.summary["best"]
    assert (best["epoch"], best["weights"]) == (1 + int(np.argmin(counted)), "averaged")
    assert scored(restore(record).model, toy.corpus().valid)["nats"] == min(counted)


def test_variable_lengths_scale_the_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[tuple[int, float]] = []
    step = torch.optim.SGD.step

    def spy(self: Any, *args: Any) -> Any:
        steps.append((lengths[len(steps)], self.param_groups[0]["lr"]))
        return step(self, *args)

    windows = Windows(toy.corpus().train, 8, 10, variable=True, seed=1111)
    lengths = [len(window.x) for window in windows.epoch(0)]
    monkeypatch.setattr(torch.optim.SGD, "step", spy)
    toy.fit(tmp_path / "run", train={"variable_length": True, "epochs": 1})
    assert steps == [(T, 5.0 * T / 10) for T in lengths]
    assert len(set(lengths)) > 2


# Objectives


def window() -> Any:
    return next(iter(Windows(toy.corpus().train, 8, 10).epoch(0)))


@pytest.mark.parametrize("K", [1, 3])
def test_noise_samples(K: int) -> None:
    """The loss is minus the objective per word, of which objective.estimate is the reference."""
    settings = toy.config(train={"K": K}, model={"dropout": {}})
    model, w = build_model(settings, TOY), window()
    torch.manual_seed(3)
    loss = model.loss(w.repeat(K))
    torch.manual_seed(3)
    estimate = objective.estimate(model, objective.Window(w.x, w.target), K)
    torch.testing.assert_close(loss.mean, -estimate.bound / w.count)
    assert loss.terms == {}
    assert loss.objective is loss.mean
    assert loss.state[0][0].shape == (1, K * 8, 6)


def test_biased_noise_trains_alike_and_is_evaluated_with_its_mean_or_without(
    tmp_path: Path,
) -> None:
    """The bias in evaluation is all that a run without rescaling differs by."""
    scores = {}
    for rescaled in (True, False):
        settings = toy.config(noise={"mean": 0.5, "rescaled": rescaled}, train={"epochs": 1})
        scores[rescaled] = toy.train(settings, tmp_path / str(rescaled)).metrics[-1]
    with_mean, without = scores[True], scores[False]
    assert with_mean["train"] == without["train"]
    assert with_mean["valid"] != without["valid"]
    assert with_mean["noise_std"] == pytest.approx(0.5 * 0.5)


def test_the_penalty_is_the_explicit_regularizer(tmp_path: Path) -> None:
    strong = {"gamma": 0.7, "mode": "additive", "feedback": False, "noisy_layers": "last"}
    settings = toy.config(
        noise=strong, train={"objective": "penalty", "epochs": 1}, model={"dropout": {}}
    )
    model, w = build_model(settings, TOY), window()
    loss = model.loss(w)
    h, _ = model.encode(w.x)
    regularizer = analysis.explicit_regularizer(
        model.likelihood, model.V, h, noisin.noise.Gaussian(0.7), "additive", K=1, bias=model.bias
    )
    penalty = regularizer.closed_form / w.count
    torch.testing.assert_close(loss.terms["penalty"], penalty)
    torch.testing.assert_close(loss.objective, loss.mean + penalty)
    torch.testing.assert_close(loss.mean, -model.log_prob(w)[0].mean())
    (line,) = toy.train(settings, tmp_path / "run").metrics
    assert line["terms"]["penalty"] > 0
    assert line["noise_std"] == 0.7


def test_gamma_schedules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    noises = []
    set_noise = noisin.set_noise
    monkeypatch.setattr(
        "noisin.training.noise_schedule.set_noise",
        lambda model, noise: (noises.append(noise), set_noise(model, noise)),
    )
    noise = {"family": "bernoulli", "gamma": 0.5, "schedule": {"kind": "cosine", "epochs": 2}}
    record = toy.fit(tmp_path / "run", noise=noise)
    assert [noise.std for noise in noises] == pytest.approx([0.0, 0.5, 1.0])
    assert noises[-1] == noisin.noise.Bernoulli(0.5)
    assert [line["noise_std"] for line in record.metrics] == pytest.approx([0.0, 0.5, 1.0])


@pytest.mark.parametrize("family", noisin.noise.FAMILIES)
def test_every_family_can_be_built(family: str) -> None:
    noise: Any = build_noise(NoiseConfig(family=family, std=0.5))
    assert noise is not None
    assert noise.std == pytest.approx(0.5)
    half = NoiseConfig(family=family, gamma=noise.gamma, schedule={"kind": "linear", "epochs": 2})
    assert build_noise(half, epoch=1).std == pytest.approx(0.25)
    assert build_noise(half, epoch=0).std == 0
    assert build_noise(half, epoch=9) == noise


# Limits


@pytest.mark.parametrize(
    ("limits", "ended", "epochs"),
    [
        ({"epochs": 2}, "epochs", 2),
        ({"tokens": 1000}, "tokens", 2),
        ({"tokens": 792}, "tokens", 1),
        ({"minutes": 1e-9}, "minutes", 1),
        ({"patience": 2, "epochs": 50, "lr": 1e-30}, "patience", 3),
    ],
)
def test_limits(limits: dict[str, Any], ended: str, epochs: int, tmp_path: Path) -> None:
    record = toy.fit(tmp_path / "run", train=limits)
    assert record.summary["ended"] == ended
    assert len(record.metrics) == epochs
    if "tokens" in limits:
        assert limits["tokens"] <= record.summary["tokens"] < limits["tokens"] + 80


# Manners


def test_the_callers_random_stream_is_left_alone(tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    toy.fit(tmp_path / "run", train={"epochs": 1})
    assert torch.equal(torch.rand(1), expected)


def test_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noisin.training.runtime.clock.REPORT_EVERY", 0.0)
    seen = toy.Seen()
    record = toy.fit(tmp_path / "run", seen, train={"epochs": 2})
    assert seen.titles == ["run"]
    assert seen.ended == 1
    assert seen.epochs == record.metrics
    training = [status for status in seen.statuses if status.scoring is None]
    assert [status.epoch for status in training] == [1] * 10 + [2] * 10
    done = [status.done for status in seen.statuses]
    assert done == sorted(done)
    assert training[9].done == pytest.approx(0.5)
    assert training[-1].seconds_left == pytest.approx(0, abs=1e-6)
    assert all(status.tokens_per_second > 0 for status in seen.statuses)
    assert training[-1].nats == record.metrics[-1]["train"]["nats"]


def test_progress_while_a_split_is_scored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("noisin.training.runtime.clock.REPORT_EVERY", 0.0)
    seen = toy.Seen()
    record = toy.fit(tmp_path / "run", seen, train={"epochs": 1, "averaging": "none"})
    scored = {status.scoring: status for status in seen.statuses if status.scoring}
    assert list(scored) == ["valid", "train_clean", "test"]
    assert {status.epoch for status in scored.values()} == {1}
    assert all(status.done == 1 and status.seconds_left == 0 for status in scored.values())
    assert scored["valid"].nats == record.metrics[0]["valid"]["nats"]
    assert scored["test"].nats == record.summary["best"]["test"]["nats"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"train": {"batch_size": 500}}, "too few for 500 columns"),
        ({"train": {"eval_batch_size": 150}}, "too few for 150 columns"),
        ({"train": {"clean_tokens": 5}}, "6 tokens are too few for 10 columns"),
        ({"threads": 1000}, "choose \\d+ or fewer"),
        ({"device": "cuda"}, "torch finds no CUDA device"),
        ({"train": {"tensorboard": True}}, "pip install 'noisin\\[tensorboard\\]'"),
        ({"train": {"tracker": "mlflow"}}, "pip install 'noisin\\[mlflow\\]'"),
        ({"train": {"tracker": "no.such:Tracker"}}, "there is no module no"),
    ],
)
def test_what_cannot_be_trained_leaves_the_folder_usable(
    changes: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr("noisin.training.runtime.tracking.find_spec", lambda _: None)
    seen = toy.Seen()
    with pytest.raises(InvalidValue, match=message):
        toy.fit(tmp_path / "run", seen, **changes)
    assert seen.titles == [], "before anything was trained"
    assert toy.fit(tmp_path / "run", train={"epochs": 1}).summary


def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    record = toy.fit(tmp_path / "run", train={"tensorboard": True})
    events = EventAccumulator(str(tmp_path / "run" / "tensorboard")).Reload()
    written = [(event.step, event.value) for event in events.Scalars("valid")]
    assert written == [
        (line["epoch"], pytest.approx(toy.perplexity(line["valid"]), rel=1e-6))
        for line in record.metrics
    ]


@pytest.mark.long
def test_the_code_in_the_docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "training.md").read_text()
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec("\n".join(re.findall(r"```python\n(.*?)```", page, re.DOTALL)), names)
    assert names["restored"].weights == "averaged"
    assert len(names["record"].metrics) == 2
