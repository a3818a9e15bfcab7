"""Checkpoints: whole or absent, checked by hash before use, and without code in them.

One is a folder, ``000042`` for the 42nd save of a run::

    manifest.json           step, epoch, whose run it is, which are the best, hashes of the rest
    weights.safetensors     the weights
    average.safetensors     their average over the steps, where there is one
    state.pt                all else that the run needs to go on, as plain types

A new one is written under another name, forced to the disk and renamed. The last two are kept, and
the best that each of them knows of: for the raw weights, and for their average. Loading verifies
every hash first (torch and safetensors both take a flipped bit for a weight) and never unpickles
more than tensors and plain types.
"""

from __future__ import annotations

import contextlib
import io
import json
import pickle
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

import safetensors.torch
import torch
from pydantic import TypeAdapter
from torch import Tensor

from noisin._util.files import sha256, sync_folder, write_synced, writing
from noisin._util.regular import read_regular
from noisin.errors import InvalidValue
from noisin.training.contents import Pattern, problem, upgraded
from noisin.training.reading import LARGEST_FILE, parse_json
from noisin.training.schedule import Weights as Kind

FORMAT = 3
FORMATS = (1, 2, FORMAT)  # that can be read; before 3, scores were perplexities
MANIFEST, WEIGHTS, AVERAGE, STATE = (
    *("manifest.json", "weights.safetensors", "average.safetensors", "state.pt"),
)

Weights = Mapping[str, Tensor]


class Damaged(Exception):
    """A checkpoint cannot be used; the message says why."""


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint is, and the hashes that it is known by.

    Attributes:
        run: the hashes of the config (but for its limits), the data and the vocabulary.
        best: the number of the checkpoint with the best raw weights so far, and of that with the
            best average.
        files: the sha256 of each file.
    """

    number: int
    step: int
    epoch: int
    best: Mapping[Kind, int]
    run: Mapping[str, str]
    files: Mapping[str, str]
    format: int = FORMAT

    def to_json(self) -> bytes:
        """With a hash of its own."""
        body = asdict(self)
        return json.dumps({**body, "sha256": _hash_of(body)}, indent=2).encode() + b"\n"

    @classmethod
    def from_json(cls, content: bytes) -> Self:
        """Read one back, or say what is wrong with it."""
        try:
            body = parse_json(content)
            own_hash = body.pop("sha256")
            if own_hash != _hash_of(body):
                raise Damaged("its manifest does not match its own hash")
            if body["format"] == 1:  # of noisin 0.1, which kept one best checkpoint for both
                best = {"raw": body["best"], "averaged": body["best"]} if body["best"] else {}
                body |= {"best": best}
            if body["format"] not in FORMATS:
                known = " and ".join(map(str, FORMATS))
                raise Damaged(f"it has format {body['format']}, and this noisin knows {known}")
            cls(**body)  # neither more nor less than its fields
            return TypeAdapter(cls).validate_python(body)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise Damaged("its manifest cannot be understood") from None


@dataclass(frozen=True)
class Checkpoint:
    """What was saved."""

    manifest: Manifest
    weights: Weights
    average: Weights | None
    state: Mapping[str, Any]


class Checkpoints:
    """The checkpoints of one run, in a folder.

    Args:
        folder: where they are.
        run: whose they are, as in a manifest.
        pattern: what they must be like to be loaded, beside having the hashes of their manifests.
    """

    def __init__(
        self, folder: Path, run: Mapping[str, str], pattern: Pattern | None = None
    ) -> None:
        self.folder = folder
        self.run = run
        self.pattern = pattern

    def numbers(self) -> list[int]:
        """The checkpoints there are, good or not, oldest first."""
        if not self.folder.is_dir():
            return []
        named = (entry for entry in self.folder.iterdir() if re.fullmatch("[0-9]+", entry.name))
        return sorted(int(e.name) for e in named if e.is_dir() and e == self.path(int(e.name)))

    def path(self, number: int) -> Path:
        """The folder of a checkpoint."""
        return self.folder / f"{number:06d}"

    # Reading

    def load(self, number: int) -> Checkpoint:
        """Verify and load one, or raise :class:`Damaged`."""
        try:
            return self._load(number)
        except Damaged:
            raise
        except pickle.UnpicklingError:
            raise Damaged(f"its {STATE} holds more than plain types, and may be code") from None
        except Exception as error:  # whatever is wrong with it, it is of no use
            raise Damaged(f"it cannot be loaded: {type(error).__name__}: {error}") from None

    def _load(self, number: int) -> Checkpoint:
        manifest = self._manifest(number)
        if dict(manifest.run) != dict(self.run):
            raise Damaged("it belongs to another run")
        contents = {name: self._verified(number, name, h) for name, h in manifest.files.items()}
        for name in (WEIGHTS, STATE):
            if name not in contents:
                raise Damaged(f"it has no {name}")
        average = contents.get(AVERAGE)
        checkpoint = Checkpoint(
            manifest,
            safetensors.torch.load(contents[WEIGHTS]),
            None if average is None else safetensors.torch.load(average),
            self._state(manifest, contents[STATE]),
        )
        self._check(checkpoint)
        return checkpoint

    def _state(self, manifest: Manifest, content: bytes) -> Any:
        state = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
        return state if manifest.format == FORMAT else upgraded(state)

    def _check(self, checkpoint: Checkpoint) -> None:
        manifest, saved = checkpoint.manifest, (checkpoint.weights, checkpoint.average)
        if self.pattern is not None:
            moment = {"step": manifest.step, "epoch": manifest.epoch}
            found = problem(self.pattern, *saved, checkpoint.state, moment)
            if found:
                raise Damaged(found)

    def newest(self, note: Callable[[str], None]) -> Checkpoint | None:
        """The newest good one, or None where none was ever saved. Passing over another is noted."""
        passed_over = []
        for number in reversed(self.numbers()):
            try:
                checkpoint = self.load(number)
            except Damaged as reason:
                passed_over.append(f"{self.path(number)}: {reason}")
                continue
            if passed_over:
                note(
                    f"training: passing over a damaged checkpoint ({'; '.join(passed_over)}). "
                    f"The one before, of step {checkpoint.manifest.step}, is good and is used."
                )
            return checkpoint
        if passed_over:
            raise InvalidValue(
                f"training: no checkpoint can be used ({'; '.join(passed_over)}). Put a good one "
                f"back, or start anew in another folder."
            )
        return None

    def best(self, newest: Checkpoint, weights: Kind) -> Checkpoint:
        """The one with the best of these weights that ``newest`` knows of, or ``newest`` itself."""
        number = newest.manifest.best.get(weights, newest.manifest.number)
        if number == newest.manifest.number:
            return newest
        try:
            return self.load(number)
        except Damaged as reason:
            raise InvalidValue(
                f"training: the best checkpoint, {self.path(number)}, cannot be used: {reason}. "
                f"Use the newest one, or train again from it."
            ) from None

    def _manifest(self, number: int) -> Manifest:
        path = self.path(number) / MANIFEST
        try:
            manifest = Manifest.from_json(read_regular(path, LARGEST_FILE))
        except OSError as error:
            raise Damaged(f"its manifest cannot be read ({error.strerror})") from None
        if manifest.number != number:
            raise Damaged(f"its manifest is that of number {manifest.number}")
        return manifest

    def _verified(self, number: int, name: str, expected: str) -> bytes:
        if name not in (WEIGHTS, AVERAGE, STATE):
            raise Damaged(f"it lists a file {name!r}, which is none of ours")
        try:
            content = read_regular(self.path(number) / name)
        except OSError as error:
            raise Damaged(f"its {name} cannot be read ({error.strerror})") from None
        if sha256(content) != expected:
            raise Damaged(f"its {name} does not match its hash")
        return content

    # Writing

    def save(
        self, weights: Weights, average: Weights | None, state: Mapping[str, Any],
        *, step: int, epoch: int, best: Mapping[Kind, int], improved: Iterable[Kind] = (),
    ) -> Mapping[Kind, int]:  # fmt: skip
        """Save a new one and drop those that are no longer needed; return the best ones.

        Args:
            weights, average, state: what to save.
            step, epoch: when that was.
            best: the numbers of the best ones so far.
            improved: the weights of which this is the best one.
        """
        number = 1 + max(self._taken_numbers(), default=0)
        contents = {WEIGHTS: safetensors.torch.save(_plain(weights)), STATE: _pickled(state)}
        if average is not None:
            contents[AVERAGE] = safetensors.torch.save(_plain(average))
        hashes = {name: sha256(content) for name, content in contents.items()}
        best = {**best, **dict.fromkeys(improved, number)}
        manifest = Manifest(number, step, epoch, best, dict(self.run), hashes)
        with self._new_folder(number) as new:
            for name, content in contents.items():
                write_synced(new / name, content)
            write_synced(new / MANIFEST, manifest.to_json())
        self._drop_old()
        return best

    def set_aside(self, newer_than: int) -> None:
        """Rename damaged ones that are newer than the one in use; nothing is deleted."""
        for number in self.numbers():
            if number > newer_than:
                path = self.path(number)
                with writing(path):
                    path.rename(path.with_name(f"damaged-{path.name}"))

    def clean_up(self) -> None:
        """Delete what a process that was killed while saving or deleting has left."""
        for pattern in (".new-*", ".old-*"):
            for entry in self.folder.glob(pattern):
                with writing(entry):
                    shutil.rmtree(entry)

    def _taken_numbers(self) -> Iterator[int]:
        for entry in self.folder.iterdir() if self.folder.is_dir() else ():
            name = entry.name.removeprefix("damaged-")
            if re.fullmatch("[0-9]+", name):
                yield int(name)

    @contextlib.contextmanager
    def _new_folder(self, number: int) -> Iterator[Path]:
        """A folder to fill, which has its right name only when all of it is on the disk."""
        final, new = self.path(number), self.folder / f".new-{number:06d}"
        with writing(final):
            if not self.folder.is_dir():
                self.folder.mkdir(parents=True)
                sync_folder(self.folder.parent)
            try:
                new.mkdir()
                yield new
                sync_folder(new)
                new.rename(final)
                sync_folder(self.folder)
            except BaseException:
                shutil.rmtree(new, ignore_errors=True)
                raise

    def _drop_old(self) -> None:
        keep: set[int] = set()
        good: list[int] = []
        for number in reversed(self.numbers()):
            with contextlib.suppress(Damaged):
                manifest = self._manifest(number)
                good.append(number)
                keep |= {number, *manifest.best.values()}
            if len(good) == 2:
                break
        for number in set(self.numbers()) - keep:
            # Renamed first, so that a half-deleted one is never taken for one that was saved.
            doomed = self.folder / f".old-{number:06d}"
            with writing(doomed):
                self.path(number).rename(doomed)
                shutil.rmtree(doomed)


def _plain(weights: Weights) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}


def _pickled(state: Mapping[str, Any]) -> bytes:
    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    return buffer.getvalue()


def _hash_of(body: Mapping[str, Any]) -> str:
    return sha256(json.dumps(body, sort_keys=True).encode())
