"""Processes that share an evaluation: the score of one process, and a part of its work for each."""

from __future__ import annotations

import multiprocessing
import os
import socket
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from noisin.data import Batch, Windows
from noisin.models import LanguageModel
from noisin.noise import Gaussian
from noisin.noise.sampling import Stochastic
from noisin.tasks import Text
from noisin.tasks.base import observation_of
from noisin.training import RunConfig, TrainConfig, Trainer
from noisin.training.build import build_model, build_task
from noisin.training.predictors import Clean, evaluate, tally
from noisin.training.runtime.distributed import connected
from noisin.training.runtime.workers import Workers
from tests.training import toy, toy_music


def together(count: int, work: Callable[[Workers], Any]) -> list[Any]:
    """What ``work`` returns in each of several processes, connected as torchrun connects them."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    context = multiprocessing.get_context("fork")
    pipes = [context.Pipe(duplex=False) for _ in range(count)]

    def join(rank: int) -> None:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count)}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        with connected() as workers:
            pipes[rank][1].send(work(workers))

    processes = [context.Process(target=join, args=(rank,)) for rank in range(count)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of fork in newer Pythons
        for process in processes:
            process.start()
    try:
        results = [receive.recv() if receive.poll(120) else None for receive, _ in pipes]
    finally:
        for process in processes:
            process.join(10)
            process.kill()
    assert [process.exitcode for process in processes] == [0] * count
    return results


def text(columns: int) -> tuple[nn.Module, list[Batch]]:
    """Windows whose state is carried along columns."""
    windows = Windows(toy.corpus().valid, columns, 7)
    return LanguageModel(toy.WORDS, hidden_size=4, noise=Gaussian(0.5)), list(windows.epoch(0))


def pieces(**model: Any) -> tuple[nn.Module, list[Batch]]:
    """Padded batches of three, three and one piece, each from a zero state."""
    settings = {**toy_music.SETTINGS, "model": {"hidden_size": 4, "tied": False, **model}}
    config = RunConfig.parse(settings)
    task = build_task(config)
    return build_model(config, observation_of(task)), [
        *task.batches("valid"),
        *task.batches("train_clean"),
    ]


KINDS: dict[str, Callable[[], tuple[nn.Module, list[Batch]]]] = {
    "columns": lambda: text(8),
    "an uneven number of columns": lambda: text(5),
    "fewer columns than processes": lambda: text(1),
    "padded pieces": pieces,
    "latent variables": lambda: pieces(latent={"kind": "vrnn", "z_size": 3}),
}


@pytest.fixture(autouse=True)
def _in_double_precision() -> Any:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("count", [2, 3])
def test_the_score_is_that_of_one_process(count: int) -> None:
    given = {name: make() for name, make in KINDS.items()}

    def score(workers: Workers, name: str) -> list[float]:
        model, batches = given[name]
        torch.manual_seed(3)
        own = tally(Clean(model), workers.shares(model, batches))
        assert all(m.shard is None for m in model.modules() if isinstance(m, Stochastic))
        return [*workers.sum([own.log_p, own.count]), own.count]

    def work(workers: Workers) -> dict[str, list[list[float]]]:
        return {name: [score(workers, name) for _ in range(2)] for name in given}

    results = together(count, work)
    for name, (model, batches) in given.items():
        torch.manual_seed(3)
        expected = evaluate(Clean(model), batches)
        first, again = zip(*(result[name] for result in results), strict=True)
        assert first == again, name
        assert len({tuple(total) for *total, _ in first}) == 1, "the same bits in all processes"
        log_p, total, _ = first[0]
        assert -log_p / total == pytest.approx(expected.nats, rel=1e-12), name
        own = [part for *_, part in first]
        assert sum(own) == total == expected.count, name
        if name == "columns":
            assert max(own) <= -(-8 // count) * total / 8, "each has about its share"
        elif name == "fewer columns than processes":
            assert sorted(own) == [0] * (count - 1) + [total]


class Counting(LanguageModel):
    """A model that counts the targets that it scores without noise."""

    counted = 0

    def log_prob(self, batch: Batch, state: Any = None, **options: Any) -> Any:
        self.counted += batch.count
        return super().log_prob(batch, state, **options)


def test_the_trainer_lets_each_process_score_half(tmp_path: Path) -> None:
    """After every epoch and at the end: valid, train without noise, and test."""

    def fit(workers: Workers, out: Path) -> int:
        torch.manual_seed(1)
        model = Counting(toy.WORDS, hidden_size=4, noise=Gaussian(0.5))
        task = Text(toy.corpus(), batch_size=8, eval_batch_size=4, bptt=10, clean_tokens=100)
        Trainer(TrainConfig(epochs=2, lr=1.0), out, workers=workers).fit(model, task)
        return model.counted

    first_step = 8  # of a batch, of which every process learns the shape of the state
    alone = fit(Workers(), tmp_path / "alone") - first_step
    counted = together(2, lambda workers: fit(workers, tmp_path / "both"))
    assert [count - first_step for count in counted] == [alone // 2] * 2
