"""The C kernel as a wheel contains it: compiled for several processors, of which one is this one.

Only the wheels that ``make wheel`` builds have it. It was tried when it was built, and whoever can
replace it can replace the Python code beside it as well, so it is loaded without a trial.

The libraries do not name an OpenMP runtime, because a process must not have two: ``GOMP_parallel``
is that of the runtime which torch has loaded for all libraries, whatever the name of its file.
"""

from __future__ import annotations

import ctypes
import logging
from collections.abc import Collection
from pathlib import Path

import torch as torch  # first: it loads the OpenMP runtime

from noisin.recurrent.kernels.targets import BASELINE, VARIANTS

logger = logging.getLogger("noisin.kernels")
FOLDER = Path(__file__).parent / "variants"


def load(folder: Path = FOLDER, features: Collection[str] | None = None) -> ctypes.CDLL | None:
    """The best library that this processor can run, or None where the package has none.

    ``features`` are the instruction sets that may be used: those of the processor unless given.
    """
    if not (folder / f"{BASELINE}.so").exists():
        return None
    try:
        baseline = _opened(folder, BASELINE)
        best = choose(supported(baseline) if features is None else features, folder)
        library = baseline if best == BASELINE else _opened(folder, best)
    except OSError as error:  # such as a torch whose OpenMP runtime is hidden from others
        logger.debug("The prebuilt C kernel cannot be loaded: %s", error)
        return None
    logger.debug("The prebuilt C kernel runs, variant %s.", best)
    return library


def choose(features: Collection[str], folder: Path = FOLDER) -> str:
    """The name of the best variant that needs no other instruction sets than these."""
    return next(
        name
        for name, needed in VARIANTS.items()
        if {*needed} <= {*features} and (folder / f"{name}.so").exists()
    )


def supported(baseline: ctypes.CDLL) -> set[str]:
    """The instruction sets of variants that the processor has and the system lets programs use."""
    known = {feature for needed in VARIANTS.values() for feature in needed}
    functions = {name: getattr(baseline, f"has_{name}", None) for name in known}
    return {name for name, has in functions.items() if has is not None and has()}


def variant(library: ctypes.CDLL) -> str | None:
    """The name of the variant that a library is, or None if it was compiled on this machine."""
    path = Path(library._name)
    return path.stem if path.parent == FOLDER else None


def _opened(folder: Path, name: str) -> ctypes.CDLL:
    return ctypes.CDLL(str(folder / f"{name}.so"))
