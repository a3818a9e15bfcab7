"""The conventions by which the score of several sequences is reported."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from noisin.data import Batch


class Conventions:
    """Scores of whole sequences by three conventions, gathered while they are evaluated.

    The headline divides the total nats by the total number of steps, so that a long sequence counts
    more than a short one. Two others are in use: without the first step of every sequence, which is
    predicted from nothing (Bai et al., 2018), and the mean over the sequences of their own means,
    which count equally.

    Pass :meth:`add` to :func:`~noisin.training.predictors.evaluate` as ``each``. Data whose state
    is carried from its beginning on, such as text, is one stream and has no such sequences.

    >>> found = Conventions()
    >>> log_p = torch.tensor([[-3.0, -1.0], [-2.0, 9.0]])
    >>> scored = torch.tensor([[True, True], [True, False]])
    >>> x = torch.zeros(2, 2)
    >>> found.add(Batch(x, x, scored, carries=False), log_p)
    >>> found.to_json()
    {'sequences': 2, 'mean': 1.75, 'after_first': {'nats': 2.0, 'count': 1}}
    """

    def __init__(self) -> None:
        self._done: list[Tensor] = []  # (3, N): nats, steps, and the nats of the first step
        self._open: Tensor | None = None

    def add(self, batch: Batch, log_p: Tensor) -> None:
        """Count the targets of a batch, with ``log p`` of each, ``(T, N)``."""
        if not batch.carries:
            self._close()
            self._open = torch.zeros(3, batch.x.shape[1], dtype=torch.float64)
        if self._open is None:
            return
        nll = -log_p.detach().double().cpu()
        scored = torch.ones_like(nll, dtype=torch.bool) if batch.scored is None else batch.scored
        nll = nll.where(scored.cpu(), 0.0)
        place = scored.cpu().cumsum(0) + self._open[1]
        first = nll.where(place == 1, 0.0)
        self._open += torch.stack([nll.sum(0), scored.cpu().sum(0), first.sum(0)])

    def _close(self) -> None:
        if self._open is not None:
            self._done.append(self._open[:, self._open[1] > 0])
            self._open = None

    def to_json(self) -> dict[str, Any] | None:
        """The scores in nats; None unless there are several sequences with several steps."""
        self._close()
        nats, steps, first = torch.cat([torch.zeros(3, 0), *self._done], 1)
        left = int(steps.sum()) - steps.numel()
        if steps.numel() < 2 or not left:
            return None
        return {
            "sequences": steps.numel(),
            "mean": float((nats / steps).mean()),
            "after_first": {"nats": float((nats - first).sum()) / left, "count": left},
        }
