"""Damages of a record: of every node of its JSON files, of its tensors, and of files as files.

A damage is a function that changes a copy of the record. What it does to a checkpoint is vouched
for: the hashes of the manifest fit what its files hold afterwards.
"""

from __future__ import annotations

import io
import itertools
import json
import os
import random
import socket
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from noisin._util.files import sha256

Damage = Callable[[Path], None]
Case = tuple[str, Damage]

GONE = object()  # in place of a node: the key is removed
DEEP: Any = []
for _ in range(150):
    DEEP = [DEEP]
VALUES: tuple[Any, ...] = (
    GONE, None, [], {}, "x", True, -1, 0, 1.5, 10**400, 1e308, float("nan"), "\ud800", DEEP,
)  # fmt: skip
OBJECTS = ("config.json", "environment.json", "summary.json")
TENSORS = ("weights.safetensors", "average.safetensors")
STATE, MANIFEST = "state.pt", "manifest.json"


def all_damages(run: Path) -> Iterator[Case]:
    """Every damage of a record, by name."""
    checkpoints = sorted((run / "checkpoints").iterdir())
    newest = checkpoints[-1].relative_to(run)
    best = json.loads((run / "summary.json").read_text())["best"]["checkpoint"]
    chosen = {newest, Path("checkpoints") / f"{best:06d}"}
    files = [*OBJECTS, "metrics.jsonl", "vocabulary.json", "checkpoints"]
    files += [str(place / name) for place in chosen for name in (*TENSORS, STATE, MANIFEST)]
    for name in files:
        yield from ((f"{name} {kind}", partial(act, name)) for kind, act in AS_FILES.items())
    for name in OBJECTS:
        yield from _nodes(name, json.loads((run / name).read_text()), partial(_write_json, name))
    yield from _metrics(run)
    yield from _vocabulary(run)
    for place in sorted(chosen):
        yield from _checkpoint(run, place)


def sample(cases: list[Case], count: int, seed: str) -> list[Case]:
    """Some damages, of every file about as many."""
    draw = random.Random(seed)
    by_file: dict[str, list[Case]] = defaultdict(list)
    for case in draw.sample(cases, len(cases)):
        by_file[case[0].split()[0]].append(case)
    turns = itertools.zip_longest(*by_file.values())
    return [case for turn in turns for case in turn if case is not None][:count]


def vouch_for(checkpoint: Path) -> None:
    """Give a checkpoint a manifest that fits what its files hold now."""
    path = checkpoint / MANIFEST
    body = json.loads(path.read_text())
    del body["sha256"]
    body["files"] = {name: sha256((checkpoint / name).read_bytes()) for name in body["files"]}
    body["sha256"] = sha256(json.dumps(body, sort_keys=True).encode())
    path.write_text(json.dumps(body))


# Files as files


def _replaced(make: Callable[[Path], object]) -> Callable[[str, Path], None]:
    def act(name: str, run: Path) -> None:
        path = run / name
        if path.is_dir():
            path.rename(path.with_name("moved-away"))
        else:
            path.unlink()
        make(path)

    return act


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        folder = os.open(path.parent, os.O_RDONLY)
        try:  # the address of a socket has 108 characters at most
            server.bind(f"/proc/self/fd/{folder}/{path.name}")
        finally:
            os.close(folder)


def _truncated(name: str, run: Path) -> None:
    path = run / name
    if path.is_file():
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


AS_FILES: dict[str, Callable[[str, Path], None]] = {
    "missing": _replaced(lambda path: None),
    "empty": _replaced(Path.touch),
    "truncated": _truncated,
    "not UTF-8": _replaced(lambda path: path.write_bytes(b'{"a": "\xff\xfe"}\n')),
    "nested deeply": _replaced(lambda path: path.write_bytes(b"[" * 10**5 + b"\n")),
    "null": _replaced(lambda path: path.write_bytes(b"null\n")),
    "a FIFO": _replaced(os.mkfifo),
    "a socket": _replaced(_socket),
    "a device": _replaced(lambda path: path.symlink_to("/dev/zero")),
    "a folder": _replaced(Path.mkdir),
    "a link to nowhere": _replaced(lambda path: path.symlink_to("nowhere")),
    "huge": _replaced(lambda path: (path.touch(), os.truncate(path, 2**40))),
}


# Nodes of trees


def _paths(tree: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield above
    if isinstance(tree, dict | list | tuple):
        for key, inner in tree.items() if isinstance(tree, dict) else enumerate(tree):
            yield from _paths(inner, (*above, key))


def _changed(tree: Any, path: tuple[Any, ...], value: Any) -> Any:
    """A copy of a tree with one node replaced."""
    if not path:
        return value
    first, *rest = path
    inner = _changed(tree[first], tuple(rest), value)
    if isinstance(tree, dict):
        changed = {**tree, first: inner}
        if inner is GONE:
            del changed[first]
        return changed
    changed = [*tree[:first], *([] if inner is GONE else [inner]), *tree[first + 1 :]]
    return type(tree)(changed)


def _nodes(name: str, tree: Any, write: Callable[[Any, Path], None]) -> Iterator[Case]:
    """Every node of a tree, replaced by every value."""
    for path in _paths(tree):
        for value in VALUES:
            if path or value is not GONE:
                shown = "gone" if value is GONE else "deep" if value is DEEP else repr(value)[:20]
                place = ".".join(map(str, path))
                yield f"{name} {place} = {shown}", partial(_change, tree, path, value, write)


def _change(
    tree: Any, path: tuple[Any, ...], value: Any, write: Callable[[Any, Path], None], run: Path
) -> None:
    write(_changed(tree, path, value), run)


def _write_json(name: str, tree: Any, run: Path) -> None:
    (run / name).write_text(json.dumps(tree))


def _metrics(run: Path) -> Iterator[Case]:
    lines = (run / "metrics.jsonl").read_text().splitlines()

    def write(i: int, tree: Any, run: Path) -> None:
        content = [*lines[:i], json.dumps(tree), *lines[i + 1 :]]
        (run / "metrics.jsonl").write_text("".join(f"{line}\n" for line in content))

    for i in (0, len(lines) - 1):
        yield from _nodes(f"metrics.jsonl line {i}", json.loads(lines[i]), partial(write, i))


def _vocabulary(run: Path) -> Iterator[Case]:
    words = json.loads((run / "vocabulary.json").read_text())
    write = partial(_write_json, "vocabulary.json")
    for value in VALUES:
        yield (
            f"vocabulary.json 1 = {value!r:.20}",
            partial(_change, words, (1,), value, write),
        )
    others = {"swapped": [words[1], words[0], *words[2:]], "doubled": [*words, words[0]]}
    for kind, tree in (others | {"reversed": words[::-1]}).items():
        yield f"vocabulary.json {kind}", partial(write, tree)


# Checkpoints, vouched for


def _checkpoint(run: Path, place: Path) -> Iterator[Case]:
    for name in TENSORS:
        for kind, change in OF_TENSORS.items():
            yield f"{place / name} {kind}", partial(_change_tensors, place, name, change)
    state = torch.load(run / place / STATE, weights_only=True)
    yield from _nodes(f"{place / STATE}", state, partial(_write_state, place))
    manifest = json.loads((run / place / MANIFEST).read_text())
    yield from _nodes(f"{place / MANIFEST}", manifest, partial(_write_manifest, place))


Tensors = dict[str, Tensor]
OF_TENSORS: dict[str, Callable[[Tensors], Tensors]] = {
    "with NaN": lambda w: w | {"bias": w["bias"] * float("nan")},
    "with infinity": lambda w: w | {"bias": w["bias"] + float("inf")},
    "of float64": lambda w: {name: tensor.double() for name, tensor in w.items()},
    "of float16": lambda w: {name: tensor.half() for name, tensor in w.items()},
    "of int64": lambda w: {name: tensor.long() for name, tensor in w.items()},
    "without one": lambda w: {name: tensor for name, tensor in w.items() if name != "bias"},
    "with one more": lambda w: w | {"other": torch.zeros(3)},
    "of another shape": lambda w: w | {"bias": w["bias"][:-1]},
    "none at all": lambda w: {},
}


def _change_tensors(
    place: Path, name: str, change: Callable[[Tensors], Tensors], run: Path
) -> None:
    path = run / place / name
    path.write_bytes(safetensors.torch.save(change(safetensors.torch.load(path.read_bytes()))))
    vouch_for(path.parent)


def _write_state(place: Path, tree: Any, run: Path) -> None:
    buffer = io.BytesIO()
    torch.save(tree, buffer)
    (run / place / STATE).write_bytes(buffer.getvalue())
    vouch_for(run / place)


def _write_manifest(place: Path, tree: Any, run: Path) -> None:
    if isinstance(tree, dict) and "sha256" in tree:
        body = {key: value for key, value in tree.items() if key != "sha256"}
        tree = body | {"sha256": sha256(json.dumps(body, sort_keys=True).encode())}
    (run / place / MANIFEST).write_text(json.dumps(tree))
