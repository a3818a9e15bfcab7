"""Padding: layers leave it out where that is faster, and refuse it where it would be learnt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from noisin.data.batch import Batch
from noisin.errors import Unsupported
from noisin.recurrent import kernels
from noisin.regularizers.batch_norm import BatchNormLSTMCell

# Of a batch. Less of it costs less than to pack the rest: parts of a series that differ by one step
# have 0.5 %, batches of music about 40 %.
LEAST = 0.2


def require_none(model: nn.Module, batch: Batch) -> None:
    """Raise if padding would be among the rows whose statistics a model is trained with.

    Without it, the last steps of a batch of several lengths would have the statistics of one row.
    """
    if batch.padded and any(isinstance(m, BatchNormLSTMCell) for m in model.modules()):
        raise Unsupported(
            "BatchNormLSTMCell: the statistics of a batch would contain its padding, and this data "
            "has sequences of several lengths, padded to one. Use cell = 'layer-norm-lstm', or "
            "train on sequences of one length, in batches with padded=False."
        )


def worth_leaving_out(batch: Batch) -> Tensor | None:
    """The lengths of a batch, ``(N,)``, if its layers should leave out what follows; else None.

    Only our kernels are faster without it: torch's take long for packed sequences.
    """
    if not kernels.replaces_torch(fused=False):
        return None
    lengths = batch.lengths
    if lengths is None:
        return None
    T, N = batch.x.shape[:2]
    return lengths if int(lengths.sum()) <= (1 - LEAST) * T * N else None


def without_padding(
    rnn: Any, x: Tensor, state: Any, lengths: Tensor, given: Mapping[str, Any]
) -> tuple[Tensor, Any]:
    """Run a stack on what is not padding, with the noise that it would have there otherwise.

    So the noise does not depend on the lengths, and processes that share a batch draw it alike.
    """
    eps = None if rnn.is_certain() else rnn.sample_eps(x)
    lengths = lengths.cpu().clone()
    lengths[lengths.argmax()] = len(x)  # as noise and masks have it; a share may have none so long
    rows = pack_padded_sequence(x, lengths, enforce_sorted=False)
    z, state = rnn(rows, state, eps=eps, **given)
    return pad_packed_sequence(z, total_length=len(x))[0], state
