"""What a processor announces and cannot do."""

from __future__ import annotations

import os
import subprocess
import sys

from noisin._util import processor

VARIABLE = "ONEDNN_MAX_CPU_ISA"
_PRODUCTS = """
import torch
a = torch.ones(64, 64, dtype=torch.bfloat16)
torch.nn.LSTM(64, 64, dtype=a.dtype)(a @ a)
"""


def avoid_broken_tiles() -> None:
    """Keep oneDNN from Intel's matrix tiles where they do not work.

    Some virtual machines announce them without their sizes. There, torch's own products in bfloat16
    raise or die of an illegal instruction. The processes that tests start inherit the setting.
    """
    if VARIABLE in os.environ or "amx_tile" not in processor.kind():
        return
    tried = subprocess.run([sys.executable, "-c", _PRODUCTS], capture_output=True, check=False)
    os.environ[VARIABLE] = "AVX512_CORE_FP16" if tried.returncode else "DEFAULT"
