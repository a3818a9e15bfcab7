"""The documentation site: ``make docs`` builds it from the pages of the project, with ``-W``.

The source folder of Sphinx is the root of the project, so that the links of the pages are right
here and where the files are browsed.
"""

from __future__ import annotations

import sys
from pathlib import Path

import noisin

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))
import inventory  # noqa: E402 - beside this file

# autodoc imports with TYPE_CHECKING set, which pydantic's models do not survive: load all before.
for module in (noisin, *(getattr(noisin, name) for name in noisin.__all__)):
    for name in getattr(module, "__all__", ()):
        getattr(module, name)

project, author = "noisin", "The noisin authors"
copyright = "the noisin authors, MIT licence"
release = version = noisin.__version__

root_doc = "docs/index"
include_patterns = [
    "README.md",
    "docs/**.md",
    "results/README.md",
    "results/PLAN.md",
    "results/tune/*.md",
    "benchmarks/results/*.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
]
extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
]

html_theme = "furo"
html_title = f"noisin {version}"
html_extra_path = ["llms.txt"]
html_show_sphinx = False
templates_path: list[str] = []

myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]
nb_execution_mode = "cache"  # a tutorial is executed again when it changes
nb_execution_raise_on_error = True
nb_execution_timeout = 300
nb_merge_streams = True

autosummary_generate = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # in signatures they are long, and the arguments say what they are
autodoc_default_options = {"members": True, "show-inheritance": True}
napoleon_numpy_docstring = False
napoleon_use_ivar = True

# Base classes of torch lead to its documentation.
intersphinx_mapping = {
    "torch": (inventory.TORCH, inventory.write(ROOT / "build" / "torch.inv")),
}
