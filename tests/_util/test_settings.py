"""Dotted names, and classes by name: what is found, and what is refused with which words."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noisin._util import settings
from noisin._util.settings import construct
from noisin.errors import InvalidValue

parts = st.sampled_from(["a", "b", "c", "mine.module:Class", "x.y:Z"])
trees = st.recursive(
    st.integers() | st.none() | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(parts, inner, min_size=1, max_size=3),
    max_leaves=8,
).filter(lambda tree: isinstance(tree, dict))


@given(trees)
def test_nest_is_the_inverse_of_flat(tree: dict[str, Any]) -> None:
    flat = settings.flat(tree)
    assert settings.nest(flat) == tree
    assert not any(isinstance(value, dict) for value in flat.values())


@given(trees, trees)
def test_merge_is_flat_settings_over_flat_settings(below: Any, above: Any) -> None:
    merged = settings.flat(settings.merge(below, above))
    assert merged | settings.flat(above) == merged
    either = settings.flat(below) | settings.flat(above)
    assert all(either[name] == value for name, value in merged.items())


@given(trees, parts)
def test_what_is_left_out_is_one_setting(tree: dict[str, Any], name: str) -> None:
    before = settings.flat(tree)
    for dotted, value in before.items():
        copy = settings.nest(before)
        settings.leave_out(copy, dotted, value)
        assert settings.flat(copy) == {k: v for k, v in before.items() if k != dotted}
        settings.leave_out(copy, f"{dotted}.{name}", value)  # not there: nothing happens
        assert settings.flat(copy) == {k: v for k, v in before.items() if k != dotted}
        other = settings.nest(before)
        settings.leave_out(other, dotted, "another value")
        assert settings.flat(other) == before


@pytest.mark.parametrize("name", ['a."b', 'a."b"c', '"a"b.c', 'a.b"'])
def test_a_quote_out_of_place(name: str) -> None:
    with pytest.raises(InvalidValue, match="is not a dotted name: a quote is missing or misplaced"):
        settings.split(name)


def test_a_value_and_settings_within_it() -> None:
    with pytest.raises(InvalidValue, match=r"a\.b is within a, which has a value itself"):
        settings.nest({"a": 1, "a.b": 2})
    with pytest.raises(InvalidValue, match="a has a value and settings within it"):
        settings.nest({"a.b": 2, "a": 1})


MODULE = "class Uniform:\n    sample = None\nnumber = 3\n"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module in the current folder, which is not on the path, by a name that is used once."""
    name = f"objects_{abs(hash(str(tmp_path)))}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    (tmp_path / f"{name}_bad.py").write_text("import nowhere_at_all\n")
    (tmp_path / f"{name}_wrong.py").write_text("def (\n")
    (tmp_path / f"{name}_raising.py").write_text("1 / 0\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p not in ("", str(tmp_path))])
    return name


def test_the_current_folder_is_searched_only_while_loading(module: str) -> None:
    before = list(sys.path)
    loaded = settings.load_object(f"{module}:Uniform", "noise.family", ["sample"])
    assert loaded.__name__ == "Uniform"
    assert sys.path == before


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gaussian", "expected package.module:Class"),
        ("{}:", "expected package.module:Class"),
        ("{}:Uniform:x", "expected package.module:Class"),
        ("../{}:Uniform", "expected package.module:Class"),
        ("{}_not:Uniform", "there is no module .*_not. It is searched on PYTHONPATH, among .*fold"),
        ("{}_not.inner:Uniform", "there is no module .*_not. It is"),
        ("{}.inner:Uniform", "there is no module .*inner"),
        ("{}:Unifrom", "has no Unifrom. Check its spelling"),
        ("{}:number", "expected a class, and number is of type int"),
        ("{}:Uniform", "the class needs sample and variance, and has no variance"),
        ("{}_bad:Uniform", "loading .*_bad failed: No module named 'nowhere_at_all'"),
        ("{}_wrong:Uniform", "loading .*_wrong failed: "),
        ("{}_raising:Uniform", "loading .*_raising failed: ZeroDivisionError: division by zero"),
    ],
)
def test_what_cannot_be_loaded(module: str, name: str, message: str) -> None:
    with pytest.raises(InvalidValue, match=message) as error:
        settings.load_object(name.format(module), "noise.family", ["sample", "variance"])
    assert str(error.value).startswith("noise.family = ")


def test_a_class_is_loaded_without_torch() -> None:
    code = "from noisin._util.settings import load_object; load_object('fractions:Fraction')"
    blocked = f"import sys; sys.modules['torch'] = None; {code}"
    subprocess.run([sys.executable, "-c", blocked], check=True)


def test_a_class_that_refuses_its_arguments_is_one_message() -> None:
    assert construct("x", complex, 1, 2) == 1 + 2j
    with pytest.raises(InvalidValue, match="model.head: dict failed: TypeError: .*Check its"):
        construct("model.head", dict, 3)
    with pytest.raises(InvalidValue, match="model.cell: .*pop failed: KeyError: 'size'. Check its"):
        construct("model.cell", {}.pop, "size")
