"""The calls of data, language models, training and kernels."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from noisin import data, likelihoods, models, training
from noisin.data import Batch, Vocabulary, Windows
from noisin.errors import Unavailable
from noisin.models import Dropouts, LanguageModel
from noisin.recurrent import kernels
from noisin.tasks import Text
from noisin.training import predictors
from tests.calls.call import Call
from tests.calls.modules import NOISE_SETTINGS, H, law

WORDS = ("<eos>", "<unk>", "tick", "tock")
O = len(WORDS)  # noqa: E741
NOWHERE = "/nonexistent/corpus"


def vocab() -> Vocabulary:
    return Vocabulary(WORDS)


def model(**settings: Any) -> LanguageModel:
    return LanguageModel(O, hidden_size=H, noise=law(), **settings)


def ids() -> Tensor:
    return torch.arange(10).remainder(O).reshape(5, 2)


def stream() -> Any:
    return np.arange(40, dtype=np.int32) % O


def state() -> Any:
    return ((torch.zeros(1, 2, H),) * 2,) * 2


def _refused_load(**a: Any) -> None:
    """All of it but reading a text: the right name leads nowhere."""
    with contextlib.suppress(Unavailable):
        data.load(**a)


def _data() -> list[Call]:
    def windows(**a: Any) -> list[Any]:
        return list(Windows(**a).epoch(0))

    def epoch(**a: Any) -> list[Any]:
        return list(Windows(stream(), 2, 5, variable=True).epoch(**a))

    return [
        Call("data.load", _refused_load, {"name": lambda: NOWHERE, "folder": lambda: None}),
        Call("data.load ptb", _refused_load, {"name": lambda: "ptb", "folder": lambda: NOWHERE}),
        Call(
            "Windows",
            windows,
            {
                "ids": stream,
                "batch_size": lambda: 2,
                "length": lambda: 5,
                "variable": lambda: False,
                "seed": lambda: 1,
            },
        ),
        Call("Windows.epoch", epoch, {"epoch": lambda: 1, "start": lambda: 0}),
        Call(
            "Vocabulary", lambda words: Vocabulary(words).encode(["tick"]), {"words": lambda: WORDS}
        ),
        Call("Vocabulary.id", lambda word: vocab().id(word), {"word": lambda: "tick"}),
        Call("in Vocabulary", lambda word: word in vocab(), {"word": lambda: "tick"}),
        Call("Vocabulary.encode", lambda words: vocab().encode(words), {"words": lambda: ["tick"]}),
        Call("Vocabulary.decode", lambda ids: vocab().decode(ids), {"ids": lambda: [0, 1]}),
        Call("Vocabulary.from_json", Vocabulary.from_json, {"text": vocab().to_json}),
        Call("overlap", data.overlap, {"train": stream, "other": stream, "n": lambda: 3}),
        Call("describe(corpus)", data.describe, {"corpus": _a_corpus}),
    ]


def _a_corpus() -> data.Corpus:
    return data.Corpus("toy", vocab(), stream(), stream(), stream(), "sha", "here")


def _called(method: str, **settings: Any) -> Callable[..., Any]:
    return lambda **a: getattr(model(**settings), method)(**a)


def _scored(method: str) -> Callable[..., Any]:
    return lambda x, target, state: getattr(model(), method)(Batch(x, target), state)


def _models() -> list[Call]:
    text = {"x": ids, "state": state}
    aimed = {**text, "target": ids}
    sizes = {
        "num_words": lambda: O,
        "embedding_size": lambda: H,
        "hidden_size": lambda: H,
        "num_layers": lambda: 2,
    }
    choices = {
        "cell": lambda: "gru",
        "tied": lambda: True,
        "noisy_layers": lambda: "all",
        "site": lambda: "read",
        "dropout": lambda: Dropouts(0.1, 0.1, 0.1, 0.1),
    }
    return [
        Call(
            "LanguageModel(...)",
            lambda **a: LanguageModel(**a)(torch.zeros(2, 1, dtype=torch.int64)),
            {**sizes, **choices, **NOISE_SETTINGS},
            patient=("num_layers",),
        ),
        Call(
            "LanguageModel(...) step by step",
            lambda **a: LanguageModel(O, hidden_size=H, **a)(torch.zeros(2, 1, dtype=torch.int64)),
            {
                "cell": lambda: "lstm",
                "zoneout": lambda: (0.1, 0.1),
                "gate_dropout": lambda: (0.5, 0.4),
                "noisy_layers": lambda: [0],
            },
        ),
        Call(
            "LanguageModel(...) of a cell with arguments",
            lambda **a: LanguageModel(O, hidden_size=H, **a)(torch.zeros(2, 1, dtype=torch.int64)),
            {"cell": lambda: "highway", "cell_arguments": lambda: {"depth": 2}},
        ),
        Call(
            "LanguageModel(...) with dropout of updates",
            lambda **a: LanguageModel(O, hidden_size=H, **a)(torch.zeros(2, 1, dtype=torch.int64)),
            {"cell": lambda: "lstm", "update_dropout": lambda: (0.1, True)},
        ),
        Call("LanguageModel", _called("forward"), text),
        Call(
            "LanguageModel with dropout", _called("forward", dropout=Dropouts(recurrent=0.1)), text
        ),
        Call("LanguageModel.encode", _called("encode"), text),
        Call("LanguageModel.log_prob", _scored("log_prob"), aimed),
        Call("LanguageModel.loss", _scored("loss"), aimed),
        Call("detach", models.detach, {"state": state}),
        Call(
            "SequenceModel Values Dense",
            lambda size, in_features, **a: (
                models.SequenceModel(
                    models.Values(size),
                    [torch.nn.Identity()],
                    models.Dense(in_features, **a),
                ).head
            ),
            {
                "size": lambda: 3,
                "in_features": lambda: 4,
                "out_features": lambda: 3,
                "likelihood": likelihoods.Bernoulli,
                "bias": lambda: torch.zeros(3),
            },
        ),
        *(
            Call(
                f"{kind.__name__}(...)",
                lambda kind=kind, **a: kind(**a).predict(torch.zeros(2, 1, 4)),
                {
                    "in_features": lambda: 4,
                    "out_features": lambda: 3,
                    "likelihood": likelihoods.Categorical,
                    "bias": lambda: torch.zeros(3),
                    "embedding": lambda: torch.nn.Parameter(torch.zeros(3, 4)),
                    "generator": torch.Generator,
                    **own,
                },
            )
            for kind, own in (
                (models.MixtureOfSoftmaxes, {"experts": lambda: 2, "dropout": lambda: 0.1}),
                (models.PointerSentinel, {"window": lambda: 5, "supervision": lambda: 0.5}),
            )
        ),
        Call(
            "Dropouts",
            Dropouts,
            {name: lambda: 0.1 for name in ("input", "between", "output", "recurrent")}
            | {"locked": lambda: True},
        ),
        Call(
            "Dropout(...)",
            lambda **a: models.Dropout(**a)(torch.ones(3, 1, 4)),
            {"p": lambda: 0.5, "locked": lambda: True, "generator": torch.Generator},
        ),
        Call("Dropout", lambda x: models.Dropout(0.5)(x), {"x": lambda: torch.ones(3, 1, 4)}),
        Call(
            "Dropout.mask",
            lambda **a: models.Dropout(0.5).mask(**a),
            {"like": lambda: torch.ones(3, 1, 4), "size": lambda: 2},
        ),
        Call(
            "generate",
            models.generate,
            {
                "model": model,
                "vocab": vocab,
                "prompt": lambda: "tick tock",
                "length": lambda: 2,
                "temperature": lambda: 0.5,
                "top_k": lambda: 2,
                "seed": lambda: 1,
                "exclude": lambda: ["<eos>"],
            },
            patient=("length",),
        ),
    ]


def _training() -> list[Call]:
    scored = {
        "model": model,
        "ids": stream,
        "batch_size": lambda: 2,
        "length": lambda: 5,
        "temperature": lambda: 1.0,
    }
    weights = {"parameters": lambda: [nn.Parameter(torch.ones(2))]}

    def evaluated(kind: Any) -> Callable[..., Any]:
        def score(ids: Any, batch_size: Any, length: Any, **options: Any) -> Any:
            batches = Windows(ids, batch_size, length).epoch(0)
            return predictors.evaluate(kind(**options), batches)

        return score

    def average(parameters: Any) -> None:
        average = training.Average(parameters)
        average.update()
        with average.applied():
            pass

    def average_state(state: Any) -> None:
        training.Average([torch.ones(2)]).load_state_dict(state)

    def optimized(make: Any, **a: Any) -> None:
        make(**a).step()

    return [
        Call("Clean", evaluated(predictors.Clean), scored),
        *(
            Call(kind.__name__, evaluated(kind), {**scored, "K": lambda: 2})
            for kind in (predictors.Marginal, predictors.Arithmetic, predictors.Geometric)
        ),
        Call(
            "MonteCarlo",
            evaluated(predictors.MonteCarlo),
            {**scored, "K": lambda: 2, "masks": lambda: "window", "power": lambda: 0.5},
        ),
        Call(
            "Cache",
            evaluated(predictors.Cache),
            {
                **{name: scored[name] for name in ("ids", "batch_size", "length")},
                "predictor": model,
                "window": lambda: 3,
                "theta": lambda: 0.5,
                "lambda_": lambda: 0.5,
            },
        ),
        Call(
            "Dynamic",
            evaluated(predictors.Dynamic),
            {
                **{name: scored[name] for name in ("ids", "batch_size", "length")},
                "predictor": model,
                "rates": lambda: predictors.SGD,
                "segment": lambda: 5,
            },
        ),
        Call(
            "Rates",
            predictors.Rates,
            {
                "lr": lambda: 0.1,
                "decay": lambda: 0.1,
                "epsilon": lambda: 0.1,
                "normalisation": lambda: "krause",
            },
        ),
        Call(
            "gradient_statistics",
            lambda ids, **a: predictors.gradient_statistics(
                batches=Windows(ids, 2, 5).epoch(0), **a
            ),
            {"model": model, "ids": stream, "segment": lambda: 5},
        ),
        Call("Average", average, weights),
        Call(
            "Average.load_state_dict",
            average_state,
            {"state": lambda: {"count": 1, "means": [torch.ones(2)]}},
        ),
        Call(
            "sgd",
            lambda **a: optimized(training.sgd, **a),
            {**weights, "lr": lambda: 0.1, "weight_decay": lambda: 0.1},
            torch=lambda parameters, **a: torch.optim.SGD(parameters, **a),
        ),
        Call(
            "adamw",
            lambda **a: optimized(training.adamw, **a),
            {**weights, "lr": lambda: 0.1, "weight_decay": lambda: 0.1},
            torch=lambda parameters, **a: torch.optim.AdamW(parameters, **a),
        ),
        Call(
            "RunConfig",
            training.RunConfig,
            {
                "data": lambda: {"name": "manual"},
                "model": lambda: {"hidden_size": 4},
                "noise": lambda: {"gamma": 0.5},
                "train": lambda: {"epochs": 1},
                "seed": lambda: 1,
                "threads": lambda: 1,
                "device": lambda: "cpu",
            },
        ),
        Call(
            "RunRecord", lambda folder: training.RunRecord(folder).exists, {"folder": lambda: "x"}
        ),
        Call(
            "RunConfig.from_toml",
            lambda path: _expected_missing(training.RunConfig.from_toml, path),
            {"path": lambda: Path(NOWHERE)},
        ),
        Call(
            "RunConfig.parse",
            training.RunConfig.parse,
            {"values": lambda: {"seed": 1}, "source": lambda: "here"},
        ),
        Call("TrainConfig", training.TrainConfig, {"epochs": lambda: 3, "lr": lambda: 0.1}),
        Call(
            "Trainer",
            lambda train: training.Trainer(train, NOWHERE),
            {"train": training.TrainConfig},
        ),
        Call(
            "Text",
            lambda **a: next(iter(Text(**a).batches("train"))),
            {
                "corpus": _a_corpus,
                "batch_size": lambda: 2,
                "bptt": lambda: 5,
                "variable_length": lambda: True,
                "eval_batch_size": lambda: 2,
                "clean_tokens": lambda: 10,
                "seed": lambda: 1,
            },
        ),
        Call(
            "restore",
            lambda **a: _expected_missing(training.restore, **a),
            {
                "record": lambda: training.RunRecord(NOWHERE),
                "when": lambda: "best",
                "weights": lambda: "raw",
            },
        ),
    ]


def _expected_missing(function: Any, *args: Any, **kwargs: Any) -> None:
    """Right arguments name a file that is not there, which is refused in its own words."""
    try:
        function(*args, **kwargs)
    except ValueError as error:
        if NOWHERE not in str(error):
            raise


def _using(kernel: Any) -> None:
    with kernels.using(kernel):
        pass


CALLS = [
    *_data(),
    *_models(),
    *_training(),
    Call("kernels.using", _using, {"kernel": lambda: "eager"}),
]
