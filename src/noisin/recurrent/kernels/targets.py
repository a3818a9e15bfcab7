"""How the C kernel is compiled, and for which processors a wheel contains it.

``hatch_build.py`` runs this file where neither torch nor this package is installed, so it imports
nothing but the standard library.
"""

from __future__ import annotations

FLAGS = ("-std=gnu11", "-O3", "-fPIC", "-fno-math-errno")
BASELINE = "baseline"
# The best first. Each has the instruction sets that it uses beyond those of every processor of its
# architecture, under the names that the flags of the compiler (-mavx2) and features.c give them.
VARIANTS = {
    "avx512": ("avx2", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl"),
    "avx2": ("avx2", "fma"),
    BASELINE: (),
}
ARCHITECTURES = {"x86_64": tuple(VARIANTS), "aarch64": (BASELINE,)}
