"""The layout of the sources: one class to a name, and files that can be read in one sitting."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "noisin"
SOURCES = {path.relative_to(SOURCE).as_posix(): path for path in sorted(SOURCE.rglob("*.py"))}
LONGEST = 400  # lines of a file

# A law of the noise and a likelihood may have one name: they are used as noise.X and likelihoods.X.
NAMESPACES = ["likelihoods", "noise"]


def classes_of(text: str) -> list[str]:
    """The names of all classes that a file defines."""
    return [node.name for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)]


def defined_twice(texts: dict[str, str]) -> dict[str, list[str]]:
    """The names of classes with more than one definition, and the files that have one."""
    found = defaultdict(list)
    for file, text in texts.items():
        for name in classes_of(text):
            found[name].append(file)
    return {name: files for name, files in found.items() if len(files) > 1}


def test_a_class_has_a_name_of_its_own() -> None:
    twice = defined_twice({file: p.read_text(encoding="utf-8") for file, p in SOURCES.items()})
    packages = {name: [Path(file).parts[0] for file in files] for name, files in twice.items()}
    assert {n: twice[n] for n, found in packages.items() if sorted(found) != NAMESPACES} == {}


def test_a_name_that_is_used_twice_is_found() -> None:
    inner = "def f():\n    class A:\n        pass"
    assert defined_twice({"x": "class A: pass", "y": inner, "z": "class B: pass"}) == {
        "A": ["x", "y"]
    }
    assert defined_twice({"x": "class A: pass\nclass A: pass"}) == {"A": ["x", "x"]}


def test_no_file_is_too_long() -> None:
    files = [*(ROOT / "src").rglob("*"), *(ROOT / "tests").rglob("*.py")]
    files += [*(ROOT / "benchmarks").rglob("*.py"), *(ROOT / "examples").rglob("*.py")]
    texts = (".py", ".c", ".h", ".html", ".css")
    lines = {
        str(path.relative_to(ROOT)): path.read_text(encoding="utf-8").count("\n")
        for path in files
        if path.suffix in texts
    }
    assert len(lines) > len(SOURCES)
    assert {name: count for name, count in lines.items() if count > LONGEST} == {}
