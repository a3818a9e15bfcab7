"""Your own loop: a noisy LSTM on the built-in text in twenty lines, with nothing hidden.

``noisin train`` adds what a long run needs: checkpoints, schedules, averaging, records. When you
want something that it does not do, this is the whole of what a loop must do. About five seconds an
epoch.
"""

from __future__ import annotations

import torch

from noisin import data, models, noise
from noisin.tasks import PERPLEXITY
from noisin.training.predictors import Clean, evaluate


def main(num_epochs: int = 8) -> list[float]:
    torch.manual_seed(1111)
    corpus = data.load("manual")
    windows = data.Windows(corpus.train, batch_size=20, length=35)
    model = models.LanguageModel(len(corpus.vocab), hidden_size=100, noise=noise.Gaussian(0.5))
    optimizer = torch.optim.SGD(model.parameters(), lr=20.0)
    valid = []
    for epoch in range(num_epochs):
        state = None  # zero at an epoch's start, then carried from window to window
        for window in windows.epoch(epoch):
            loss = model.loss(window, models.detach(state))
            state = loss.state
            optimizer.zero_grad()
            loss.mean.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            optimizer.step()
        # Noise off, every word scored once, and the model back in train() afterwards.
        score = evaluate(Clean(model), data.Windows(corpus.valid, 10, 70).epoch(0))
        valid.append(PERPLEXITY.value(score.nats))
        print(f"epoch {epoch + 1:2d}: valid perplexity {valid[-1]:.1f}")
    print(" ".join(models.generate(model, corpus.vocab, "the value of", length=30)))
    return valid


if __name__ == "__main__":
    main()
