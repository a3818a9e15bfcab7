"""Thousands of wrong settings, files and folders: one message each, and never a traceback."""

from __future__ import annotations

import random
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from noisin.cli.train import train
from noisin.errors import NoisinError
from noisin.experiments import presets
from tests.cli.run import in_process
from tests.cli.test_settings import ALL
from tests.pairwise import PRODUCTS

NOWHERE = "/no/such/corpus"  # settings that happen to be right end here, before any training
VALUES = [
    *("", " ", "0", "1", "-1", "3", "0.5", "-0.5", "1.5", "1e3", "1e400", "-1e400", "nan", "inf"),
    *("true", "false", "None", "null", "[]", "{}", "0x10", "1_000", "1,5", "²", "٣", "½", "+2"),
    *("gaussian", "beta", "lstm", "adamw", "nt", "penalty", "cuda", "last", "a b", "a\nb", "--x"),
    *("9" * 25, "9" * 5000, "x" * 5000, "\x00", "\ud800", "é", "漢", "😀", "'", '"', "\\", "%s"),
]
TOML = [
    *("true", "0", "-1", "1.5", "1e400", "nan", "-inf", "[]", "[1, 2]", "{}", "{a = 1}", '""'),
    *('"x"', '"nan"', "1979-05-27", "07:32:00", '"gaussian"', "[[]]", "99999999999999999999"),
]


def random_flags(draw: random.Random) -> dict[str, str]:
    names = draw.sample(sorted(ALL), draw.randint(1, 5))
    return {name: draw.choice(VALUES) for name in names if name != "data.name"}


def random_file(draw: random.Random) -> bytes:
    """A preset with some wounds, a file of random settings, or anything."""
    kind = draw.random()
    if kind < 0.4:
        path = draw.choice(sorted(presets.FOLDER.glob("*.toml")))
        content = bytearray(path.read_bytes())
        for _ in range(draw.randint(1, 6)):
            place = draw.randrange(len(content))
            content[place : place + draw.randint(0, 3)] = draw.randbytes(draw.randint(0, 2))
        return bytes(content)
    if kind < 0.9:
        names = [*draw.sample(sorted(ALL), 3), "train", "noise", "base", "compare", "compare.a"]
        names += ["noise.x", "x.y", "compare.a.noise.gamma", '"compare"."a/b"', "seed.x"]
        chosen = draw.sample(names, draw.randint(1, 4))
        return "".join(f"{name} = {draw.choice(TOML)}\n" for name in chosen).encode()
    return draw.randbytes(draw.randint(0, 200))


def refused(call: Callable[[], None]) -> bool:
    """Whether the call ends in what the command line prints as one message."""
    with pytest.raises((NoisinError, OSError)) as caught:
        call()
    return 0 < len(str(caught.value)) < 20_000


def test_settings_and_files(tmp_path: Path) -> None:
    """What ``noisin train`` does with them, without the parsing of flags, which is slow."""
    draw = random.Random(1111)
    path = tmp_path / "wrong.toml"
    for _ in range(20_000 if PRODUCTS else 2000):
        flags = {"data__name": NOWHERE}
        preset = draw.choice(("manual", "ptb-small-gaussian", "ptb-medium-dropout"))
        if draw.random() < 0.5:
            path.write_bytes(random_file(draw))
            preset = str(path)
        if draw.random() < 0.6:
            flags |= {k.replace(".", "__"): v for k, v in random_flags(draw).items()}
        arguments: dict[str, Any] = {"out": tmp_path / "runs", **flags}
        assert refused(lambda p=preset, a=arguments: train(p, **a))
    assert not (tmp_path / "runs").exists()


def test_arguments(tmp_path: Path, run: Path, capsys: Any) -> None:
    """All the way through the command line."""
    draw = random.Random(2222)
    options = [f"--{name}" for name in ALL] + ["--out", "--data", "--json", "--help?", "-x", "--"]
    options += ["--prompt", "--top-k", "--samples", "--method", "--split", "--batch-size", "--plot"]
    options += ["--runs", "--format", "--cache", "--cache.window", "--cache.lambda", "--masks"]
    options += ["--dynamic.lr", "--dynamic.segment", "--tune.budget", "--power", "--temperature"]
    for _ in range(2500 if PRODUCTS else 200):
        command = draw.choice(("train", "evaluate", "generate", "table", "data", "verify", "x", ""))
        tokens = [command] if command else []
        if command == "train":
            tokens += ["manual", "--data.name", NOWHERE]
        for _ in range(draw.randint(1, 4)):
            tokens += [draw.choice(options), draw.choice(VALUES)][: draw.randint(1, 2)]
        if command in ("evaluate", "generate"):
            tokens.insert(1, draw.choice((str(run), NOWHERE)))
        if command == "verify":
            tokens.append("--no-such-option")  # it takes half a minute otherwise
        code = in_process(*tokens)
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        assert code in (0, 2)
        if code == 2:
            assert printed.err.startswith("noisin: "), tokens
            assert printed.out == ""


FILES = ("config.json", "environment.json", "vocabulary.json", "checkpoints/*/*", "summary.json")


@pytest.mark.parametrize("command", ["evaluate", "generate"])
def test_damaged_runs(command: str, run: Path, tmp_path: Path, capsys: Any) -> None:
    """Either the damage does no harm, or it is named; what is printed is never silently wrong."""
    draw = random.Random(3333)
    copy = tmp_path / "run"
    assert in_process(command, str(run)) == 0
    expected = capsys.readouterr().out
    for _ in range(600 if PRODUCTS else 40):
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(run, copy)
        path = draw.choice(sorted(copy.glob(draw.choice(FILES))))
        damage(draw, path)
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            code = in_process(command, str(copy))
        printed = capsys.readouterr()
        assert code in (0, 2)
        assert "Traceback" not in printed.err
        assert printed.err.startswith("noisin: ") or (code, printed.out) == (0, expected)


def damage(draw: random.Random, path: Path) -> None:
    content = bytearray(path.read_bytes())
    kind = draw.randrange(5)
    if kind == 0:
        path.unlink()
        return
    if kind == 1:
        content = content[: draw.randrange(len(content))]
    elif kind == 2:
        content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    elif kind == 3:
        content = bytearray(draw.choice((b"[]", b"{}", b"null", b"3", b'"x"', b"[" * 10**5, b"")))
    else:
        content = bytearray(draw.randbytes(draw.randint(0, 300)))
    path.write_bytes(content)
