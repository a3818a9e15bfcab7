"""``noisin show``: settings that are read back to the same run; the schema; shell completion."""

from __future__ import annotations

import json
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from noisin import cli
from noisin.experiments import presets
from noisin.training.config import RunConfig
from tests.cli.run import in_process

ROOT = Path(__file__).parents[2]


def test_every_preset_is_read_back_to_the_same_hash(tmp_path: Path) -> None:
    for name in presets.names():
        preset = presets.read(name)
        path = tmp_path / f"{name}.toml"
        path.write_text(preset.resolved(), encoding="utf-8")
        again = presets.read(str(path))
        hashes = {run: config.hash() for run, config in preset.configs().items()}
        assert {run: config.hash() for run, config in again.configs().items()} == hashes, name
        assert "base" not in again.settings


def test_the_command(tmp_path: Path, capsys: Any) -> None:
    flags = ("--train.terms", '{"mine.terms:Slow": 2.0}', "--noise.std", "0.3", "--seed", "3")
    head = ("--model.head.kind", "mixture-of-softmaxes", "--model.head.experts", "15")
    assert in_process("show", "ptb-medium-gaussian", *flags, *head) == 0
    path = tmp_path / "mine.toml"
    path.write_text(capsys.readouterr().out, encoding="utf-8")
    (config,) = presets.read(str(path)).configs().values()
    assert config == RunConfig.from_toml(path)
    assert (config.seed, config.train.terms, config.noise.std) == (3, {"mine.terms:Slow": 2.0}, 0.3)
    assert config.model.head is not None
    assert config.model.head.arguments == {"experts": 15}


def test_bad_input(capsys: Any) -> None:
    assert in_process("show", "ptb-medum") == 2
    assert "Did you mean 'ptb-medium'?" in capsys.readouterr().err
    assert in_process("show", "ptb-medium", "--train.lr", "x") == 2
    assert "train.lr must be a number, got 'x'" in capsys.readouterr().err


def test_the_published_schema_is_current(capsys: Any) -> None:
    """To make it: noisin show --schema > docs/config.schema.json."""
    assert in_process("show", "--schema") == 0
    shown = json.loads(capsys.readouterr().out)
    published = ROOT / "docs" / "config.schema.json"
    assert json.loads(published.read_text(encoding="utf-8")) == shown
    assert shown["properties"].keys() - {"base", "compare"} == RunConfig.model_fields.keys() - {
        "own"
    }


def test_the_schema_accepts_the_presets_and_refuses_what_they_would() -> None:
    schema = presets.schema()
    for path in presets.FOLDER.glob("*.toml"):
        assert list(problems(schema, tomllib.loads(path.read_text(encoding="utf-8")), schema)) == []
    for wrong in (
        {"sed": 3},
        {"seed": -1},
        {"train": {"lr": 0}},
        {"train": {"patience": 0}},
        {"model": {"tied": 3}},
        {"device": "gpu"},
    ):
        assert list(problems(schema, wrong, schema)), wrong


def problems(schema: dict[str, Any], value: Any, root: dict[str, Any]) -> Any:
    """A validator of the few words of JSON schema that pydantic uses here."""
    if "$ref" in schema:
        schema = root["$defs"][schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        if all(list(problems(part, value, root)) for part in schema["anyOf"]):
            yield f"{value!r} is none of {schema['anyOf']}"
        return
    kinds: dict[str, Any] = {
        "object": dict,
        "array": list,
        "string": str,
        "boolean": bool,
        "null": type(None),
    }
    kinds |= {"integer": int, "number": (int, float)}
    kind = schema.get("type")
    if kind and (not isinstance(value, kinds[kind]) or (value is True and kind != "boolean")):
        yield f"{value!r} is no {kind}"
        return
    if value not in schema.get("enum", [value]):
        yield f"{value!r} is not in {schema['enum']}"
    limits = {
        "minimum": lambda limit: value >= limit,
        "exclusiveMinimum": lambda limit: value > limit,
        "maximum": lambda limit: value <= limit,
        "exclusiveMaximum": lambda limit: value < limit,
    }
    for name, holds in limits.items():
        if name in schema and not holds(schema[name]):
            yield f"{value!r}: {name} {schema[name]}"
    if isinstance(value, dict) and "properties" in schema:
        for name, inner in value.items():
            if name in schema["properties"]:
                yield from problems(schema["properties"][name], inner, root)
            elif schema.get("additionalProperties") is False:
                yield f"{name} is not a setting"


@pytest.mark.parametrize(
    ("words", "expected"),
    [("tr", "train"), ("train --train.ep", "--train.epochs"), ("table --f", "--format")],
)
def test_completion_in_bash(words: str, expected: str, tmp_path: Path) -> None:
    """As bash calls it."""
    script = tmp_path / "noisin"
    script.write_text(cli.build_app().generate_completion(shell="bash"), encoding="utf-8")
    line = ["noisin", *words.split()]
    typed = " ".join(f"'{word}'" for word in line)
    code = f"source {script}; COMP_WORDS=({typed}); COMP_CWORD={len(line) - 1}; _noisin"
    done = subprocess.run(
        ["bash", "-c", f'{code}; echo "${{COMPREPLY[@]}}"'],
        capture_output=True,
        encoding="utf-8",
        check=True,
    )
    assert expected in done.stdout.split()
