"""The hash of batches, which identifies the data of a run."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from noisin.data.batch import Batch


def batches_sha256(splits: Iterable[Iterable[Batch]]) -> str:
    """The sha256 of all tensors of some batches, with their shapes and dtypes."""
    digest = hashlib.sha256()
    for batches in splits:
        digest.update(b"split")
        for batch in batches:
            for part in (batch.x, batch.target, batch.scored):
                if part is not None:
                    digest.update(f"{tuple(part.shape)} {part.dtype}".encode())
                    digest.update(part.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()
