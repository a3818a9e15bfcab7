"""Wheels: how tests build them, and how ``make wheel`` tries the kernels inside one.

``python -m tests.wheels WHEEL`` runs the trial on each prebuilt kernel that this processor can run
and exits with 1 if one does not reproduce the reference.
"""

from __future__ import annotations

import ctypes
import os
import platform
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from noisin._util import trust
from noisin.recurrent.kernels import build, prebuilt
from noisin.recurrent.kernels.targets import BASELINE, VARIANTS

ROOT = Path(__file__).parents[1]
INSIDE = Path("noisin", "recurrent", "kernels", "variants")


def build_wheel(folder: Path, compiler: str | None = None) -> Path:
    """The wheel, pure, or with the kernel inside as this compiler compiles it."""
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT]
    hook = {} if compiler is None else {"HATCH_BUILD_HOOK_ENABLE_CUSTOM": "true", "CC": compiler}
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | hook, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = folder.glob("noisin-*.whl")
    return wheel


def unpack(wheel: Path, folder: Path) -> Path:
    """The folder with the contents of a wheel, which is as good as installed there."""
    with zipfile.ZipFile(wheel) as file:
        file.extractall(folder)
    return folder


def lacking(variants: Path, name: str) -> list[str]:
    """The instruction sets of a variant that this processor does not have."""
    has = prebuilt.supported(ctypes.CDLL(str(variants / f"{BASELINE}.so")))
    return [feature for feature in VARIANTS[name] if feature not in has]


def trial(library: Path) -> subprocess.CompletedProcess[str]:
    """Run the trial of a kernel in a process of its own."""
    command = [*trust.python("noisin.recurrent.kernels.trial"), str(library)]
    settings = os.environ | build.TRIAL
    return subprocess.run(command, capture_output=True, text=True, env=settings, check=False)


def main(wheel: Path) -> int:
    """Try the kernels of a wheel; the exit code."""
    if not wheel.stem.endswith(f"_{platform.machine()}"):
        print(f"{wheel.name} is for other processors than this {platform.machine()}: not tried.")
        return 0
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        variants = unpack(wheel, Path(scratch)) / INSIDE
        for name in VARIANTS:
            if lack := lacking(variants, name):
                print(f"{name}: not tried, this processor has no {', '.join(lack)}")
                continue
            done = trial(variants / f"{name}.so")
            wrong += done.returncode != 0
            right = done.returncode == 0
            print(f"{name}: {'equals the reference' if right else f'WRONG {done.stderr}'}")
    return min(wrong, 1)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
