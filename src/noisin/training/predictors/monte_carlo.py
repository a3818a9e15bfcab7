r"""Monte Carlo dropout (Gal and Ghahramani, 2016): K passes with noise and dropout on, mixed.

The mean of the passes is a power mean (Melis, Blundell, Kočiský, Hermann, Dyer and Blunsom, 2018,
"Pushing the bounds of dropout"), normalised over the vocabulary, at a temperature τ:

.. math:: p(w) \propto \Big(\tfrac1K \sum_k p_k(w)^a\Big)^{1/(a τ)}

with the arithmetic mean at a = 1 and the geometric one at a = 0, the limit.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from noisin._util import arguments, checks
from noisin.data import Batch
from noisin.errors import InvalidType, InvalidValue, Unsupported
from noisin.models import SequenceModel
from noisin.models.base import State
from noisin.noise.sampling import Stochastic, held_masks
from noisin.recurrent.injection import Injected, as_training
from noisin.regularizers.batch_norm import fixed_statistics
from noisin.regularizers.sequences import WordDropout
from noisin.training import samples
from noisin.training.predictors.base import device_of
from noisin.training.predictors.ensembles import Mixture, log_mean_exp

LARGEST = 2**24  # probabilities to hold at a time

Masks = Literal["window", "pass"]


@dataclass(frozen=True)
class MonteCarlo(Mixture):
    """The mean of K passes with dropout and noise on. Normalisations of batches are as in eval().

    Args:
        model: the model.
        K: the number of passes.
        temperature: τ, of the result; the other ensembles apply theirs to each sample.
        masks: ``"window"``: masks are drawn for every batch, as in training. ``"pass"``: one set of
            masks for all batches of a pass, as Gal evaluates, without dropout of word types; the
            masks must be locked. Noise is drawn afresh for every step in both.
        power: the exponent a in [0, 1] of the mean: 1 is arithmetic, 0 geometric.

    Exponents and temperatures other than 1 need the probabilities of all words, and the model to be
    a SequenceModel of words whose head has no memory.
    """

    masks: Masks = "window"
    power: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        checks.one_of("MonteCarlo: masks", self.masks, get_args(Masks))
        if arguments.finite("MonteCarlo: power", self.power, least=0) > 1:
            raise InvalidValue(f"MonteCarlo: power must lie in [0, 1], got {self.power!r:.60}.")
        if not self._plain and not isinstance(self.model, SequenceModel):
            raise InvalidType(
                f"MonteCarlo: a power or temperature other than 1 needs a SequenceModel, got "
                f"{type(self.model).__name__}."
            )

    @property
    def _plain(self) -> bool:
        """Whether the targets' own probabilities suffice."""
        return self.power == 1 and self.temperature == 1

    def __call__(self, batch: Batch, state: State = None) -> tuple[Tensor, State]:
        """Score a batch."""
        if self.masks == "window":
            return super().__call__(batch, state)
        with held_masks(self.model, None if state is None else state.masks) as masks:
            log_p, mixed = super().__call__(batch, state)
        return log_p, mixed._replace(masks=masks)

    def _mix(self, batch: Batch, state: State) -> tuple[Tensor, Tensor, State]:
        if self._plain:
            log_p, state = self._sampled(batch, state)
            return log_mean_exp(log_p), (self.K * log_p.softmax(0)).sum(1), state
        model = self.model
        assert isinstance(model, SequenceModel)
        batch = batch.to(device_of(model))
        z, state = samples.encode(model, batch, state, self.K)
        self._require_words(model, z, batch)
        N = batch.x.shape[1]
        log_p = torch.empty(batch.x.shape[:2], dtype=torch.double, device=z.device)
        contributions = log_p.new_zeros(self.K, N)
        rows = max(1, LARGEST // (self.K * N * self._words(model, z)))
        with self._held_by(model.head) if rows < len(z) else nullcontext():
            for first in range(0, len(z), rows):
                own = slice(first, first + rows)
                log_p[own], added = self._mixed(model, z[own], batch.rows(own))
                contributions += added
        return log_p, contributions, state

    def _held_by(self, head: Any) -> AbstractContextManager[Any]:
        """Let locked masks of a head be those of the window, which it reads in parts."""
        modules = head.modules() if isinstance(head, nn.Module) else ()
        drawing = [m for m in modules if isinstance(m, Stochastic) and _acts(m)]
        locked = all(map(_is_locked, drawing)) and self.masks == "window"
        return held_masks(head) if drawing and locked else nullcontext()

    def _mixed(self, model: SequenceModel, z: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """``log p`` of the targets, and to first order what each sample contributes to it."""
        a, tau = self.power, self.temperature
        log_k = model.head.predict(z).double().log_softmax(-1)
        log_k = log_k.view(len(z), self.K, -1, log_k.shape[-1]).transpose(0, 1)
        mean = log_mean_exp(a * log_k) / a if a else log_k.mean(0)
        log_q = (mean / tau).log_softmax(-1)
        target = batch.target.long().unsqueeze(-1)
        # The derivative of the mean with respect to the weight of each sample.
        each = (a * (log_k - mean)).exp().div_(a * tau) if a else log_k / tau
        own = each.gather(-1, target.expand(self.K, *target.shape)).squeeze(-1)
        change = own - torch.einsum("tnv,ktnv->ktn", log_q.exp(), each)
        if batch.scored is not None:
            change = change.where(batch.scored, 0.0)
        return log_q.gather(-1, target).squeeze(-1), change.sum(1)

    def _words(self, model: SequenceModel, z: Tensor) -> int:
        return model.head.predict(z[:1, :1]).shape[-1]

    def _require_words(self, model: SequenceModel, z: Tensor, batch: Batch) -> None:
        what = "MonteCarlo: a power or temperature other than 1"
        if batch.target.dim() != 2 or batch.target.is_floating_point():
            raise Unsupported(
                f"{what} needs words to predict, (T, N), got targets of shape "
                f"{tuple(batch.target.shape)} and {batch.target.dtype}."
            )
        _, memory = model.head.nll(z[:1, : batch.x.shape[1]], batch.rows(slice(0, 1)))
        if memory is not None:
            raise Unsupported(f"{what} needs a head without a memory.")

    @contextmanager
    def _sampling(self) -> Iterator[None]:
        with as_training(self.model), fixed_statistics(self.model), torch.no_grad():
            if self.masks == "pass":
                for module in self.model.modules():
                    if isinstance(module, WordDropout):
                        module.training = False
            acting = [m for m in self.model.modules() if isinstance(m, Stochastic) and _acts(m)]
            if not acting:
                raise InvalidValue(
                    "MonteCarlo: expected a model with noise or dropout, got one with neither, "
                    "whose passes are all the same. Use Clean(model), or --method exact."
                )
            fresh = [m for m in acting if not isinstance(m, Injected) and not _is_locked(m)]
            if self.masks == "pass" and fresh:
                raise Unsupported(
                    f"MonteCarlo: masks='pass' holds one mask for all steps, and "
                    f"{type(fresh[0]).__name__} draws a new one for each step or window. Use "
                    f"masks='window', or a model with locked masks (dropout.locked = true)."
                )
            yield


def _acts(module: Any) -> bool:
    if isinstance(module, Injected):
        return module._noise_acts()
    return bool(getattr(module, "acts", True))


def _is_locked(module: Any) -> bool:
    return bool(getattr(module, "locked", False))
