"""Quick start: the same LSTM without and with noise, on a small sequence task built in code.

A random source emits symbols, each depending on the two before. Its law is known, so the best
possible perplexity is too. The training text is short: a plain LSTM soon memorises it, and the one
with noise does not. About a minute on one core:

    python examples/quickstart.py                           # prints
    python examples/quickstart.py curves.svg                # draws the learning curves too
"""

from __future__ import annotations

import math
import sys
import time
from dataclasses import dataclass

import torch
from torch import Tensor, nn

import noisin
from noisin import likelihoods, noise

SYMBOLS, HIDDEN, BATCH, WINDOW = 12, 128, 20, 25
TRAIN_TOKENS, OTHER_TOKENS = 3_000, 6_000
SEEDS = (1111, 1112, 1113)
GAMMA = 1.0


class Source:
    """Symbols whose law depends on the two before, with its best possible perplexity."""

    def __init__(self, generator: torch.Generator) -> None:
        logits = 2.0 * torch.randn(SYMBOLS, SYMBOLS, SYMBOLS, generator=generator)
        self.p = logits.softmax(-1)
        self.generator = generator

    def text(self, length: int) -> Tensor:
        symbols = [0, 1]
        u = torch.rand(length, generator=self.generator)
        cumulative = self.p.cumsum(-1)
        for t in range(length):
            symbols.append(
                min(int((cumulative[symbols[-2], symbols[-1]] < u[t]).sum()), SYMBOLS - 1)
            )
        return torch.tensor(symbols[2:])

    def best_perplexity(self, text: Tensor) -> float:
        return self.p[text[:-2], text[1:-1], text[2:]].log().mean().neg().exp().item()


class Model(nn.Module):
    """Embedding, LSTM, prediction: the only change for noise is one argument of the LSTM."""

    def __init__(self, law: noise.Noise | None) -> None:
        super().__init__()
        self.embedding = nn.Embedding(SYMBOLS, HIDDEN)
        self.rnn = noisin.LSTM(HIDDEN, HIDDEN, noise=law)
        self.V = nn.Linear(HIDDEN, SYMBOLS)

    def forward(self, x: Tensor, state: object = None) -> tuple[Tensor, object]:
        z, state = self.rnn(self.embedding(x), state)
        return self.V(z), state


def columns(text: Tensor) -> Tensor:
    """One column per row of the batch: (steps, BATCH)."""
    steps = len(text) // BATCH
    return text[: steps * BATCH].view(BATCH, steps).t()


def run_epoch(model: Model, text: Tensor, optimizer: torch.optim.Optimizer | None) -> float:
    """Perplexity over a text, training on the way if there is an optimizer."""
    model.train(optimizer is not None)
    state, total, count = None, 0.0, 0
    with torch.set_grad_enabled(optimizer is not None):
        for start in range(0, len(text) - 1, WINDOW):
            x, target = text[start : start + WINDOW], text[start + 1 : start + WINDOW + 1]
            s, state = model(x[: len(target)], state)
            nll = likelihoods.Categorical().nll(s=s, x=target)
            if optimizer is not None:
                optimizer.zero_grad()
                nll.mean().backward()
                optimizer.step()
            state = tuple(part.detach() for part in state)
            total, count = total + nll.sum().item(), count + nll.numel()
    return math.exp(total / count)


@dataclass(frozen=True)
class Run:
    """Perplexities after each epoch, all with the noise off, and those of the best epoch."""

    train: list[float]
    valid: list[float]
    test: list[float]

    @property
    def best(self) -> int:
        """The epoch with the best validation perplexity, counted from 0."""
        return self.valid.index(min(self.valid))


def train(law: noise.Noise | None, texts: dict[str, Tensor], num_epochs: int, seed: int) -> Run:
    torch.manual_seed(seed)
    model = Model(law)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    run = Run([], [], [])
    for _ in range(num_epochs):
        run_epoch(model, texts["train"], optimizer)
        # In eval() there is no noise, on the training text either: the gap is no artefact.
        for split, text in texts.items():
            getattr(run, split).append(run_epoch(model, text, None))
    b = run.best
    print(
        f"  seed {seed}: best at epoch {b + 1:2d} with train {run.train[b]:5.2f}, valid "
        f"{run.valid[b]:5.2f}, test {run.test[b]:5.2f}; after {num_epochs}, test {run.test[-1]:.2f}"
    )
    return run


def summary(values: list[float]) -> str:
    """Mean over the seeds, and half their range."""
    return f"{sum(values) / len(values):.2f} ± {(max(values) - min(values)) / 2:.2f}"


def plot(results: dict[str, list[Run]], best_possible: float, path: str) -> None:
    """The learning curves, mean and range over the seeds; needs matplotlib."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
    for (name, runs), colour in zip(results.items(), ("#b5442e", "#1f6f8b"), strict=True):
        for split, style in (("valid", "-"), ("train", "--")):
            curves = torch.tensor([getattr(run, split) for run in runs])
            epochs = range(1, curves.shape[1] + 1)
            axes.plot(epochs, curves.mean(0), style, color=colour, label=f"{split}, {name}")
            low, high = curves.amin(0), curves.amax(0)
            axes.fill_between(epochs, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.axhline(best_possible, color="grey", linewidth=0.8, linestyle=":")
    axes.text(1, best_possible, " perfect", color="grey", va="bottom")
    axes.set(xlabel="epoch", ylabel="perplexity, noise off", ylim=(1, 14))
    axes.legend(frameon=False, fontsize="small")
    figure.savefig(path)
    print(f"\nThe learning curves are in {path}.")


def main(num_epochs: int = 40, picture: str | None = None) -> dict[str, list[Run]]:
    torch.set_num_threads(1)  # the fastest for so small a model
    started = time.perf_counter()
    source = Source(torch.Generator().manual_seed(SEEDS[0]))
    sizes = {"train": TRAIN_TOKENS, "valid": OTHER_TOKENS, "test": OTHER_TOKENS}
    raw = {split: source.text(size) for split, size in sizes.items()}
    texts = {split: columns(text) for split, text in raw.items()}
    best_possible = source.best_perplexity(raw["test"])
    print(
        f"A random source of {SYMBOLS} symbols, each depending on the two before, and "
        f"{TRAIN_TOKENS:,} of them to learn from.\n"
        f"Its law is known: no model can have a test perplexity below {best_possible:.2f}.\n"
    )
    laws = {"no noise": None, f"Gaussian noise, gamma {GAMMA}": noise.Gaussian(GAMMA)}
    results = {}
    for name, law in laws.items():
        print(f"An LSTM with {name}: noisin.LSTM({HIDDEN}, {HIDDEN}, noise={law})")
        results[name] = [train(law, texts, num_epochs, seed) for seed in SEEDS]

    print(
        f"\nPerplexity, mean ± half range of {len(SEEDS)} seeds ({best_possible:.2f} is perfect):\n"
    )
    heads = ("test, best epoch", f"test, epoch {num_epochs}", "train, best epoch")
    print(f"{'':26}" + "".join(f"{head:>19}" for head in heads))
    for name, runs in results.items():
        test, last = [run.test[run.best] for run in runs], [run.test[-1] for run in runs]
        cells = (test, last, [run.train[run.best] for run in runs])
        print(f"{name:26}" + "".join(f"{summary(cell):>19}" for cell in cells))
    print(f"\n{time.perf_counter() - started:.0f} seconds. Next: README.md and the other examples.")
    if picture is not None:
        plot(results, best_possible, picture)
    return results


if __name__ == "__main__":
    main(picture=sys.argv[1] if len(sys.argv) > 1 else None)
