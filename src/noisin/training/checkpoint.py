"""Checkpoints: written atomically, verified by hash before use, and free of executable code.

A checkpoint is a folder, ``000042`` for the 42nd save of a run::

    manifest.json           step, epoch, identity of the run, best checkpoints, hashes of the files
    weights.safetensors     the weights
    average.safetensors     their average over the steps, if there is one
    state.pt                everything else that is needed to continue, as plain types

A new checkpoint is written under a temporary name, synced to disk and renamed. The last two are
kept, together with the best checkpoints that their manifests name: for the raw weights, and for
their average. Loading verifies every hash first (neither torch nor safetensors detects a flipped
bit) and unpickles only tensors and plain types.
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
    """A checkpoint cannot be used; the message is the reason."""


@dataclass(frozen=True)
class Manifest:
    """The description of a checkpoint, with the hashes of its files.

    Attributes:
        run: the hashes of the config (without its limits), the data and the vocabulary.
        best: the numbers of the checkpoints with the best raw weights and the best average so far.
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
        """The content of ``manifest.json``, including a hash of itself."""
        body = asdict(self)
        return json.dumps({**body, "sha256": _hash_of(body)}, indent=2).encode() + b"\n"

    @classmethod
    def from_json(cls, content: bytes) -> Self:
        """Parse a manifest, or raise :class:`Damaged`."""
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
                raise Damaged(f"it has format {body['format']}; this version reads {known}")
            cls(**body)  # raises on missing and unknown fields
            return TypeAdapter(cls).validate_python(body)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise Damaged("its manifest cannot be parsed") from None


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint."""

    manifest: Manifest
    weights: Weights
    average: Weights | None
    state: Mapping[str, Any]


class Checkpoints:
    """The checkpoints of one run, in a folder.

    Args:
        folder: where they are.
        run: the identity of the run, as in a manifest.
        pattern: the structure that a checkpoint must have to be loaded.
    """

    def __init__(
        self, folder: Path, run: Mapping[str, str], pattern: Pattern | None = None
    ) -> None:
        self.folder = folder
        self.run = run
        self.pattern = pattern

    def numbers(self) -> list[int]:
        """The numbers of all checkpoints, valid or damaged, oldest first."""
        if not self.folder.is_dir():
            return []
        named = (entry for entry in self.folder.iterdir() if re.fullmatch("[0-9]+", entry.name))
        return sorted(int(e.name) for e in named if e.is_dir() and e == self.path(int(e.name)))

    def path(self, number: int) -> Path:
        """The folder of a checkpoint."""
        return self.folder / f"{number:06d}"

    # Reading

    def load(self, number: int) -> Checkpoint:
        """Verify and load a checkpoint, or raise :class:`Damaged`."""
        try:
            return self._load(number)
        except Damaged:
            raise
        except pickle.UnpicklingError:
            raise Damaged(f"its {STATE} contains more than plain types") from None
        except Exception as error:  # a damaged file can raise anything
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
        """The newest valid checkpoint, if any; ``note`` is called if a damaged one is skipped."""
        skipped = []
        for number in reversed(self.numbers()):
            try:
                checkpoint = self.load(number)
            except Damaged as reason:
                skipped.append(f"{self.path(number)}: {reason}")
                continue
            if skipped:
                note(
                    f"training: skipping a damaged checkpoint ({'; '.join(skipped)}). Using the "
                    f"one before it, of step {checkpoint.manifest.step}."
                )
            return checkpoint
        if skipped:
            raise InvalidValue(
                f"training: no checkpoint can be used ({'; '.join(skipped)}). Restore a valid "
                f"one, or start again in another folder."
            )
        return None

    def best(self, newest: Checkpoint, weights: Kind) -> Checkpoint:
        """The checkpoint that ``newest`` names as the best of these weights; by default itself."""
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
            raise Damaged(f"its manifest lists an unknown file {name!r}")
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
        """Save a new checkpoint and delete old ones; return the numbers of the best ones.

        Args:
            weights, average, state: what to save.
            step, epoch: the position in the run.
            best: the numbers of the best checkpoints so far.
            improved: the weights for which this checkpoint is the new best.
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
        """Rename the damaged checkpoints that are newer than the one in use; delete nothing."""
        for number in self.numbers():
            if number > newer_than:
                path = self.path(number)
                with writing(path):
                    path.rename(path.with_name(f"damaged-{path.name}"))

    def clean_up(self) -> None:
        """Delete the partial folders of a process that was killed while saving or deleting."""
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
        """A folder to fill; it gets its final name once everything is on the disk."""
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
            # Renamed first, so that a partially deleted one is never mistaken for a checkpoint.
            old = self.folder / f".old-{number:06d}"
            with writing(old):
                self.path(number).rename(old)
                shutil.rmtree(old)


def _plain(weights: Weights) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in weights.items()}


def _pickled(state: Mapping[str, Any]) -> bytes:
    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    return buffer.getvalue()


def _hash_of(body: Mapping[str, Any]) -> str:
    return sha256(json.dumps(body, sort_keys=True).encode())
