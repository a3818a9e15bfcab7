"""Stochastic RNNs from settings: trained, annealed, killed, continued and scored."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from noisin.data import Batch
from noisin.errors import NoisinError
from noisin.models.latent import LatentModel, particle_bound
from noisin.tasks import Observation
from noisin.training import RunConfig, Trainer
from noisin.training.build import build_model
from noisin.training.config import TrainConfig
from noisin.training.load import restore
from noisin.training.predictors import ELBO, FIVO, IWAE, Clean, evaluate
from tests.cli.run import in_process
from tests.training import toy, toy_music

LATENT: dict[str, Any] = {
    "storn": {},
    "vrnn": {"res_q": True},
    "srnn": {"smoothing": True, "mlp_size": 5},
    "srnn-independent": {},
    "z-forcing": {"auxiliary": 0.1, "backward": 0.1},
}


def settings(kind: str, train: Any = None, **more: Any) -> RunConfig:
    latent = {"kind": kind, "z_size": 3, **LATENT[kind], **more}
    changes = toy_music.SETTINGS | {
        "model": {**toy_music.SETTINGS["model"], "latent": latent},  # type: ignore[dict-item]
        "train": {**toy_music.TRAIN, "epochs": 2, "averaging": "none", **(train or {})},
    }
    return toy.config(**changes)


@pytest.mark.parametrize("kind", LATENT)
def test_each_kind_trains_and_is_restored(kind: str, tmp_path: Path) -> None:
    record = toy.train(settings(kind, {"epochs": 1}), tmp_path / "run")
    (line,) = record.metrics
    assert line["measured"]["kl"] > 0
    assert line["noise_std"] == 0.5
    restored = restore(record)
    task = toy_music.ToyMusic.from_config(restored.config)
    torch.manual_seed(restored.config.seed)
    score = evaluate(Clean(restored.model), task.batches("valid"))
    assert score.nats == pytest.approx(line["valid"]["nats"], rel=1e-6)


def test_a_run_that_was_killed_goes_on_in_the_same_bits(tmp_path: Path) -> None:
    annealed = settings("vrnn", {"save_steps": 1, "epochs": 3, "annealing": {"steps": 4}})
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert toy.run(whole, settings=annealed).code == 0
    kill = toy.signal_at(killed, 60, signal.SIGKILL)
    assert toy.run(killed, settings=annealed, before=kill).code == -signal.SIGKILL
    assert len(toy.numbers(killed)) > 0
    assert toy.run(killed, settings=annealed).code == 0
    assert toy.result(killed) == toy.result(whole)


def test_the_weight_of_the_divergence_is_that_of_the_epoch(tmp_path: Path) -> None:
    annealed = settings("srnn", {"epochs": 4, "annealing": {"start": 0.1, "epochs": 3}})
    lines = toy.train(annealed, tmp_path / "run").metrics
    for line, weight in zip(lines, (0.1, 0.4, 0.7), strict=False):
        assert line["terms"]["annealing"] == pytest.approx((weight - 1) * line["measured"]["kl"])
    assert "terms" not in lines[3], "it is the bound itself at the end"


def test_an_evaluation_does_not_change_the_training(tmp_path: Path) -> None:
    """It draws latent variables, but from a stream of its own, the same after every epoch."""

    class Unscored(toy_music.ToyMusic):
        splits = ("train", "valid")

    found = []
    for kind in (toy_music.ToyMusic, Unscored):
        config = settings("vrnn", {"epochs": 2})
        torch.manual_seed(7)
        model = build_model(config, Observation("bernoulli", 88))
        out = tmp_path / kind.__name__
        torch.manual_seed(8)
        Trainer(config.train, out).fit(model, kind.from_config(config))
        found.append(toy.result(out)["weights"])
    assert found[0] == found[1]


def test_bounds_of_whole_pieces() -> None:
    """The score is total nats over total frames; padding is not among them."""
    config = settings("vrnn")
    torch.manual_seed(0)
    model: LatentModel = build_model(config, Observation("bernoulli", 88))
    task = toy_music.ToyMusic.from_config(config)
    K, total, frames = 4, 0.0, 0
    model.eval()
    torch.manual_seed(1)
    for batch in task.batches("test"):
        parts, _ = particle_bound(model, batch, K=K, threshold=0.5)
        total, frames = total - float(parts.detach().sum()), frames + batch.count
    model.train()
    torch.manual_seed(1)
    score = evaluate(FIVO(model, K), task.batches("test"))
    assert (score.nats, score.count) == (pytest.approx(total / frames), 3 + 5)
    assert model.training
    for bound in (ELBO(model, K), IWAE(model, K)):
        assert evaluate(bound, task.batches("test")).count == 3 + 5
    with pytest.raises(NoisinError, match="whose likelihood is exact. Use Clean"):
        IWAE(build_model(toy.config(), Observation("categorical", 9)), 4)
    with pytest.raises(NoisinError, match="a temperature needs a SequenceModel"):
        IWAE(model, 4, temperature=2.0)


def test_the_command_line(tmp_path: Path, capsys: Any) -> None:
    run = tmp_path / "run"
    toy.train(settings("vrnn", {"epochs": 1}), run)
    shown = []
    for given in ([], ["--method", "iwae", "--samples", "5"], ["--method", "fivo"]):
        assert in_process("evaluate", str(run), "--json", *given) == 0
        shown.append(json.loads(capsys.readouterr().out))
    assert [(found["method"], found["K"]) for found in shown] == [
        ("elbo", 1),
        ("iwae", 5),
        ("fivo", 10),
    ]
    assert [found["count"] for found in shown] == [8, 8, 8]
    assert in_process("evaluate", str(run), "--method", "iwae", "--samples", "5") == 0
    assert "(iwae, 5 samples; raw weights after epoch 1; " in capsys.readouterr().out
    for given, message in (
        (["--method", "exact"], "--method must be one of elbo, iwae, fivo"),
        (["--method", "arithmetic"], "--method must be one of elbo, iwae, fivo"),
        (["--tune"], "need an exact likelihood"),
    ):
        assert in_process("evaluate", str(run), *given) == 2
        assert message in " ".join(capsys.readouterr().err.split())
    plain = tmp_path / "plain"
    toy.fit(plain, **toy_music.SETTINGS | {"train": {**toy_music.TRAIN, "epochs": 1}})
    assert in_process("evaluate", str(plain), "--method", "iwae") == 2
    assert "--method must be none of elbo" in " ".join(capsys.readouterr().err.split())


def test_a_head_that_is_autoregressive(tmp_path: Path) -> None:
    head = {"kind": "autoregressive", "hidden": 4}
    for latent in (None, {"kind": "vrnn", "z_size": 3}):
        model = {**toy_music.SETTINGS["model"], "head": head, "latent": latent}  # type: ignore[dict-item]
        train = {**toy_music.TRAIN, "epochs": 1}
        record = toy.fit(
            tmp_path / str(latent is None),
            **toy_music.SETTINGS | {"model": model, "train": train},
        )
        assert record.metrics[-1]["valid"]["nats"] > 0


VRNN = {"model": {"tied": False, "latent": {"kind": "vrnn"}}, "data": {"name": "jsb"}}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"kind": "vnn"}, "model.latent.kind must be storn, vrnn, .* Did you mean vrnn?"),
        ({"z_size": 4}, "model.latent.kind is missing"),
        (
            {"kind": "storn", "res_q": True},
            "model.latent.res_q must be left out for kind = 'storn'",
        ),
        ({"kind": "vrnn", "z_size": 0}, "model.latent.z_size must be 1 or more, got 0"),
        ({"kind": "z-forcing", "auxiliary": -1}, "model.latent.auxiliary must be 0 or more"),
    ],
)
def test_settings_that_are_wrong(given: Any, message: str) -> None:
    with pytest.raises(NoisinError, match=message):
        RunConfig.parse(VRNN | {"model": {"tied": False, "latent": given}})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": {"cell": "highway"}}, "model.cell must be one of lstm, gru, .* got 'highway'"),
        ({"model": {"zoneout": {"p_h": 0.1}}}, "model.zoneout must be left out with model.latent"),
        ({"model": {"dropout": {"recurrent": 0.1}}}, "model.dropout.recurrent must be 0 with"),
        ({"data": {"name": "manual"}}, "model.latent must be left out for 'manual'"),
        ({"data": {"name": "ett"}}, "data.likelihood must be gaussian with model.latent"),
        ({"train": {"objective": "fraternal"}}, "train.objective must be noise with model.latent"),
        ({"train": {"terms": {"ar": 1}}}, "train.terms must be left out with model.latent"),
        ({"train": {"annealing": {}}}, "needs epochs or steps, exactly one of them, got neither"),
        ({"model": {"latent": None}, "train": {"annealing": {"steps": 9}}},
         "train.annealing must be left out without model.latent"),
    ],
)  # fmt: skip
def test_settings_that_do_not_go_together(changes: Any, message: str) -> None:
    model = {**VRNN["model"], **changes.get("model", {})}  # type: ignore[dict-item]
    with pytest.raises(NoisinError, match=message):
        RunConfig.parse({**VRNN, **changes, "model": model})


def test_annealing_needs_a_divergence(tmp_path: Path) -> None:
    train = TrainConfig(annealing={"steps": 3})
    model = build_model(toy.config(), Observation("categorical", 9))
    with pytest.raises(NoisinError, match="LanguageModel has none. Leave train.annealing out"):
        Trainer(train, tmp_path / "run").fit(model, toy_music.ToyMusic.from_config(toy.config()))
    assert not (tmp_path / "run").exists()


def test_a_batch_of_one_frame() -> None:
    model: LatentModel = build_model(settings("srnn"), Observation("bernoulli", 88))
    x = torch.zeros(1, 2, 88)
    assert model.loss(Batch(x, x)).mean.isfinite()
