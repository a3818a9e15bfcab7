"""The package: its wheel, its light imports, its floors, and the code in its README."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import noisin

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "noisin"

# A module imports from its own folder or from one above it here, never in a circle.
FOLDERS = [
    *("errors", "_util", "noise", "likelihoods", "recurrent", "regularizers", "objective"),
    *("analysis", "testing", "lightning", "huggingface", "skorch", "tuning"),
    *("data", "models", "tasks", "training", "experiments", "cli"),
    "__main__",
]
WITHOUT_TORCH = [
    *("noisin", "noisin.errors", "noisin._util.wording", "noisin._util.arguments"),
    *("noisin._util.places", "noisin._util.regular", "noisin._util.trust", "noisin._util.files"),
    *("noisin._util.settings", "noisin.recurrent.names", "noisin.models.names"),
    "noisin.tasks.names",
    *("noisin.noise.ranges", "noisin.noise.schedules", "noisin.data", "noisin.cli"),
    *("noisin.training.reading", "noisin.training.schemas", "noisin.training.config"),
    *("noisin.training.record", "noisin.training.schedule", "noisin.training.runtime.environment"),
    *("noisin.training.runtime.progress", "noisin.training.runtime.signals"),
    *("noisin.experiments.sweep", "noisin.experiments.sweep.driver"),
    *("noisin.experiments.collection", "noisin.experiments.paper.figure1"),
    *("noisin.experiments.report.page", "noisin.training.evaluations", "noisin.training.tuning"),
    *("noisin.experiments.records", "noisin.tuning"),
]


def python(code: str) -> str:
    """Run code in a fresh interpreter and return what it prints."""
    run = subprocess.run(
        [sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_version() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", noisin.__version__)
    assert f"## {noisin.__version__}" in (ROOT / "CHANGELOG.md").read_text()
    assert f"version: {noisin.__version__}" in (ROOT / "CITATION.cff").read_text()


@pytest.mark.long
def test_imports_without_torch() -> None:
    """With torch blocked, what needs none still loads, each as the first of our modules."""
    code = f"""
import importlib, sys
sys.modules["torch"] = None
for module in {WITHOUT_TORCH}:
    for name in [name for name in sys.modules if name.partition(".")[0] == "noisin"]:
        del sys.modules[name]
    try:
        importlib.import_module(module)
    except ImportError as error:
        print(f"{{module}}: {{error}}")
"""
    assert python(code) == ""


def test_what_is_imported_is_declared() -> None:
    """Not only by way of another dependency, which may drop it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    optional = ["train", "cli", "report", "sweep", "ray", "tensorboard", "wandb", "mlflow", "aim"]
    optional += ["music", "parquet", "gpu"]
    optional = [line for extra in optional for line in extras[extra]]
    declared = [*project["dependencies"], *optional]
    names = {re.split(r"[^a-z0-9]", line)[0] for line in declared}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported = {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported = {(node.module or "").split(".")[0]}
            else:
                continue
            assert imported <= names | sys.stdlib_module_names | {"noisin"}, path


TEXT_ARGUMENTS = {"read_text": 0, "write_text": 1}  # those before the encoding


def leaves_the_encoding_to_the_locale(call: ast.Call) -> bool:
    """Whether a call reads or writes text in an encoding that it does not name."""
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    named = {keyword.arg: keyword.value for keyword in call.keywords}
    if "encoding" in named:
        return False
    if any(getattr(named.get(k), "value", False) for k in ("text", "universal_newlines")):
        return True
    if name in ("open", "fdopen"):
        of_os = ast.unparse(call.func) == "os.open"
        values = [*call.args, *([named["mode"]] if "mode" in named else [])]
        modes = [v.value for v in values if isinstance(v, ast.Constant)]
        return not of_os and not any("b" in str(mode) for mode in modes)
    return name in TEXT_ARGUMENTS and len(call.args) <= TEXT_ARGUMENTS[name]


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("path.read_text()", True),
        ("(here / name).read_text()", True),
        ("path.read_text('utf-8')", False),
        ("path.read_text(encoding='utf-8')", False),
        ("path.write_text(text)", True),
        ("open(path)", True),
        ("path.open('a')", True),
        ("path.open(mode='rb')", False),
        ("open(descriptor, 'rb', closefd=False)", False),
        ("subprocess.run(command, text=True)", True),
        ("subprocess.run(command, text=True, encoding='utf-8')", False),
        ("os.open(path, flags)", False),
    ],
)
def test_what_leaves_the_encoding_to_the_locale(code: str, found: bool) -> None:
    (expression,) = ast.parse(code).body
    assert isinstance(expression, ast.Expr)
    assert isinstance(expression.value, ast.Call)
    assert leaves_the_encoding_to_the_locale(expression.value) is found


def test_no_text_is_read_or_written_as_the_locale_has_it() -> None:
    """It is UTF-8 everywhere. The linter's rule sees only paths whose type it can infer."""
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in ("src", "benchmarks", "examples")
        for path in sorted((ROOT / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and leaves_the_encoding_to_the_locale(node)
    ]
    assert wrong == []


def test_ranges_are_readable_without_torch() -> None:
    printed = python(
        "import sys; sys.modules['torch'] = None\n"
        "from noisin.noise import ranges\n"
        "print(ranges.RANGES['Bernoulli']['gamma'])"
    )
    assert printed.strip() == "(0, 1]"


@pytest.fixture(scope="module")
def fresh() -> dict[str, list[Any]]:
    """What a fresh process reports of the modules that it loads."""
    code = """
import sys, torch, numpy
theirs = {name.split(".")[0] for name in sys.modules}
import noisin
noisin.revert
functions = [callable(getattr(noisin, name)) for name in ("convert", "revert", "unroll")]
for name in noisin.__all__:
    getattr(noisin, name)
loaded = sorted({name.split(".")[0] for name in sys.modules} - theirs)
print({"functions": functions, "loaded": loaded})
"""
    found: dict[str, list[Any]] = ast.literal_eval(python(code))
    return found


def test_the_library_loads_torch_and_numpy_at_most(fresh: dict[str, list[Any]]) -> None:
    """Of what is installed beside the standard library, only torch and what it loads itself."""
    extra = {*fresh["loaded"]} - sys.stdlib_module_names
    assert {name for name in extra if not name.startswith("_")} == {"noisin"}


def test_every_public_name_loads_and_is_listed() -> None:
    assert dir(noisin) == sorted(noisin.__all__)
    for name in noisin.__all__:
        assert getattr(noisin, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = noisin.nonsense


def test_a_function_is_never_hidden_by_a_module_of_its_name(fresh: dict[str, list[Any]]) -> None:
    assert fresh["functions"] == [True, True, True]


def name_of(path: Path) -> str:
    """The dotted name of a module."""
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {name_of(path): path for path in sorted(SOURCE.rglob("*.py"))}


def imports_of(path: Path) -> set[str]:
    """The modules of ours that a file imports when it is loaded, by dotted name.

    Imports inside a function, or for the type checker alone, happen later or never.
    """
    found: set[str] = set()
    for node in loaded(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            inner = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in MODULES else node.module for name in inner}
    return found & MODULES.keys()


def loaded(tree: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a module that run when it is loaded."""
    for node in ast.iter_child_nodes(tree):
        later = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        typing = isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
        if not later and not typing:
            yield node
            yield from loaded(node)


def folder_of(module: str) -> int:
    top = module.removeprefix("noisin.").split(".")[0]
    assert top in FOLDERS, f"{module} is in no folder of FOLDERS: add it"
    # errors and _util are one level: errors words its messages with _util, which raises them.
    return max(FOLDERS.index(top), FOLDERS.index("_util"))


@pytest.mark.parametrize("module", [name for name in MODULES if name != "noisin"])
def test_a_module_imports_from_its_own_folder_or_one_above(module: str) -> None:
    for imported in imports_of(MODULES[module]) - {"noisin"}:
        assert folder_of(imported) <= folder_of(module), f"{module} imports {imported}"


def circle_in(imports: Mapping[str, set[str]]) -> list[str]:
    """A circle of imports, or nothing."""
    done: set[str] = set()

    def visit(module: str, way: list[str]) -> list[str]:
        if module in way:
            return [*way[way.index(module) :], module]
        if module not in done:
            for imported in sorted(imports[module]):
                if found := visit(imported, [*way, module]):
                    return found
            done.add(module)
        return []

    return next((found for module in imports if (found := visit(module, []))), [])


def test_no_import_goes_in_a_circle() -> None:
    # A package that re-exports its modules is loaded before them: that is no circle.
    imports = {
        name: {i for i in imports_of(path) if not name.startswith(f"{i}.")}
        for name, path in MODULES.items()
    }
    assert circle_in(imports) == []


def test_a_circle_inside_a_folder_is_seen() -> None:
    circle = {"a.x": {"a.y"}, "a.y": {"a.z"}, "a.z": {"a.x"}, "b": set()}
    assert circle_in(circle) == ["a.x", "a.y", "a.z", "a.x"]
    assert circle_in({"a.x": {"a.y"}, "a.y": set(), "a.z": {"a.x", "a.y"}}) == []


@pytest.mark.long
@pytest.mark.slow
def test_the_code_on_the_pages_runs() -> None:
    pages = {}
    for page in ("README.md", *(f"docs/{p}.md" for p in ("data", "models", "scans", "tuning"))):
        blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
        assert blocks
        pages[page] = "\n".join(blocks).replace("for epoch in range(8)", "for epoch in range(0)")
    python(f"for page, code in {pages}.items(): exec(compile(code, page, 'exec'), {{}})")


def test_the_loop_in_the_docs_is_that_of_the_example() -> None:
    page = (ROOT / "docs" / "models.md").read_text()
    example = (ROOT / "examples" / "own_loop.py").read_text().replace("\n    ", "\n")
    loop = page[page.index("        loss = model.loss(window") :].split("    # Noise")[0]
    assert loop.count("\n") == 6
    assert loop in example


def test_links_in_the_docs_lead_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "results" / "README.md"]
    for page in [*pages, *(ROOT / "docs").glob("*.md")]:
        prose = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", prose):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def link_dependencies(folder: Path, *extras: str) -> None:
    """Link what noisin depends on into an environment: to install torch takes most of a minute."""
    (site,) = folder.glob("lib/python*/site-packages")
    for name in dependencies("noisin", extras) - {"noisin"}:
        found = distribution(name)
        tops = {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}
        for top in tops:
            if not (site / top).exists():
                (site / top).symlink_to(Path(str(found.locate_file(top))).resolve())


def dependencies(name: str, extras: Iterable[str]) -> set[str]:
    """The distributions that one needs with some extras, itself among them."""
    needed, found = [(name, extra) for extra in ("", *extras)], set[tuple[str, str]]()
    while needed:
        name, extra = needed.pop()
        found.add((name := canonicalize_name(name), extra))
        for requirement in map(Requirement, distribution(name).requires or ()):
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                more = {(canonicalize_name(requirement.name), e) for e in ("", *requirement.extras)}
                needed += more - found
    return {name for name, _ in found}


@pytest.mark.slow
@pytest.mark.long
def test_the_wheel_installs_in_a_clean_environment(tmp_path: Path) -> None:
    """Built, installed without extras, and used where neither the sources nor the tools are."""
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, ROOT]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("noisin-*.whl")
    venv.create(tmp_path / "env", with_pip=False)
    clean = tmp_path / "env" / "bin" / "python"
    link_dependencies(tmp_path / "env")
    pip = [sys.executable, "-m", "pip", "--python", clean, "install", "--quiet", "--no-compile"]
    pip += ["--no-index", wheel]  # checks that all dependencies are there in accepted versions
    install = subprocess.run(pip, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert install.returncode == 0, install.stderr
    code = (
        "import importlib.metadata, importlib.util, pathlib, torch, noisin\n"
        "for tool in ('pytest', 'scipy', 'optuna', 'pydantic', 'cyclopts', 'rich', 'pooch'):\n"
        "    assert importlib.util.find_spec(tool) is None, tool\n"
        "rnn = noisin.LSTM(3, 4, num_layers=2, noise=noisin.noise.Gaussian(1.1))\n"
        "rnn(torch.randn(5, 2, 3))[0].sum().backward()\n"
        "assert noisin.__version__ == importlib.metadata.version('noisin')\n"
        "here = pathlib.Path(noisin.__file__).parent\n"
        "kernels = [f'recurrent/kernels/{n}' for n in "
        "('kernel.c', 'cells.h', 'projection.h', 'tiles.h')]\n"
        "page = [f'experiments/report/template/report.{n}' for n in ('html', 'css')]\n"
        "for name in ('py.typed', *kernels, *page):\n"
        "    assert (here / name).exists(), name\n"
        "noisin.training.Average(rnn.parameters()).update()\n"
        "try:\n"
        "    noisin.training.Trainer\n"
        "except ImportError as error:\n"
        "    print(error)\n"
        "print(noisin.__file__)"
    )
    run = subprocess.run(
        [clean, "-I", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert str(tmp_path) in run.stdout
    assert "not installed: pip install 'noisin[train]'" in run.stdout
    command = tmp_path / "env" / "bin" / "noisin"
    run = subprocess.run([command], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert re.fullmatch(
        r"noisin: the command noisin needs \w+, which is not installed: pip install "
        r"'noisin\[cli\]'.\n",
        run.stderr,
    )
    link_dependencies(tmp_path / "env", "cli")
    (tmp_path / "book.txt").write_text("the cat sat\n" * 99)
    settings = "--data.name book.txt --model.hidden_size 4 --train.batch_size 4 --train.epochs 1"
    train = [command, "train", "manual", *settings.split()]
    run = subprocess.run(train, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "pip install 'noisin[plot]'" in " ".join(run.stdout.split())
