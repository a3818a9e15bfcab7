"""Statistics of gradients, kept in the folder of a run: they take as long as an epoch or less.

The file is named by a hash of all that they depend on, so that those of other weights are never
used, and contains a hash of its tensors, so that a damaged one is computed again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import safetensors.torch
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from noisin._util.files import write_atomically
from noisin._util.regular import read_regular
from noisin.data import Batch
from noisin.errors import Unavailable
from noisin.training.predictors.statistics import (
    Statistics,
    adapted_parameters,
    gradient_statistics,
)

LARGEST_FILE = 2**36  # bytes


def saved_statistics(
    folder: Path,
    model: nn.Module,
    batches: Callable[[], Iterable[Batch]],
    segment: int = 5,
    *,
    about: Sequence[object] = (),
    note: Callable[[str], None] = lambda _: None,
    progress: Callable[[Batch], None] = lambda _: None,
) -> Statistics:
    """The statistics of a model: from their file in ``folder``, or computed and saved there.

    Args:
        folder: the folder of the run.
        model: the trained model.
        batches: called for the training data where they are needed.
        segment: the rows of a segment.
        about: what the statistics depend on beside weights and segment: the data, its columns.
        note: called with a message if a file cannot be used or written.
        progress: called with each segment after it.
    """
    weights = [p.detach() for p in adapted_parameters(model)]
    key = _sha256([*weights], json.dumps([segment, *map(str, about)]))
    path = folder / f"gradients-{key[:16]}.safetensors"
    found = _read(path, weights, note)
    if found is None:
        found = gradient_statistics(model, batches(), segment, progress)
        try:
            write_atomically(path, _content(found))
        except Unavailable as error:
            note(f"The statistics of the gradients are not saved: {error}")
    return found


def _content(found: Statistics) -> bytes:
    tensors = {str(i): total.cpu().contiguous() for i, total in enumerate(found.sums)}
    tensors["n"] = torch.tensor(found.n)
    sha256 = _sha256([*tensors.values()])
    tensors["sha256"] = torch.frombuffer(bytearray.fromhex(sha256), dtype=torch.uint8)
    return safetensors.torch.save(tensors)


def _read(path: Path, weights: list[Tensor], note: Callable[[str], None]) -> Statistics | None:
    try:
        tensors = safetensors.torch.load(read_regular(path, LARGEST_FILE))
        sha256 = bytes(tensors.pop("sha256").tolist()).hex()
        names = [*map(str, range(len(weights))), "n"]
        if tensors.keys() != {*names} or sha256 != _sha256([tensors[name] for name in names]):
            raise ValueError("its hash does not match")
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        note(f"{path}: cannot be used and is computed again: {error}.")
        return None
    n = int(tensors.pop("n"))
    sums = [tensors[name].to(w.device) for name, w in zip(names[:-1], weights, strict=True)]
    return Statistics(sums, n)


def _sha256(tensors: Sequence[Tensor], text: str = "") -> str:
    """A hash of tensors with their shapes, and of a text."""
    digest = hashlib.sha256(text.encode())
    for tensor in tensors:
        digest.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
        content = tensor.detach().cpu().contiguous().view(-1).view(torch.uint8)
        digest.update(content.numpy().data)
    return digest.hexdigest()
