"""Wrong values for an argument: of any kind, and close relatives of the right value."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence

import noisin

Make = Callable[[], Any]  # every call gets a value of its own
Changed = Callable[[Any], Any]

HUGE = (10**12, 10**18, 10**400)  # as sizes: more than a machine, a tensor and a C integer hold


def _constant(value: Any) -> Make:
    return lambda: value


CONTAINERS: tuple[Any, ...] = ([], [1.0, 2.0], {}, {"a": 1}, set(), range(3), ...)
ANY: Mapping[str, Make] = {
    **{repr(v): _constant(v) for v in (None, True, False, 0, 1, 2, -1, 7, 0.0, 0.5, -1.5, 1e300)},
    **{repr(v): _constant(v) for v in (math.nan, math.inf, -math.inf, *HUGE, 1j)},
    **{repr(v): _constant(v) for v in ("", "x", "0.5", "a\x00b", b"x", (), (1, 2))},
    **{repr(v): _constant(v) for v in CONTAINERS},
    "object()": object,
    "lambda": lambda: lambda *_: None,
    "int": _constant(int),
    "iterator": lambda: iter([1, 2]),
    "np.float32(0.5)": lambda: np.float32(0.5),
    "np.int64(2)": lambda: np.int64(2),
    "np array": lambda: np.zeros((2, 3)),
    "np array of objects": lambda: np.array([None, "x"], dtype=object),
    "Linear": lambda: nn.Linear(4, 4),
    "class LSTM": _constant(nn.LSTM),
    "class Gaussian": _constant(noisin.noise.Gaussian),
    "noise": lambda: noisin.noise.Gaussian(0.5),
    "likelihood": lambda: noisin.likelihoods.Poisson(),
    "distribution": lambda: torch.distributions.Normal(0.0, 1.0),
    "generator": torch.Generator,
    "dtype": _constant(torch.float32),
    "tensor ()": lambda: torch.tensor(0.5),
    "tensor (3,)": lambda: torch.zeros(3),
    "tensor (2, 3)": lambda: torch.zeros(2, 3),
    "tensor (5, 2, 3)": lambda: torch.zeros(5, 2, 3),
    "empty tensor": lambda: torch.zeros(0),
    "int tensor (5, 2)": lambda: torch.zeros(5, 2, dtype=torch.int64),
    "PackedSequence": lambda: pack_sequence([torch.zeros(3, 3), torch.zeros(2, 3)]),
    "Parameter": lambda: nn.Parameter(torch.zeros(5, 2, 3)),
    "lambda of two": lambda: lambda x, _: (x, None),
    "torch.Size": lambda: torch.Size([5, 2]),
    "long text": lambda: "x" * 5000,
    "nested tuples": lambda: ((torch.zeros(1, 2, 4), None), (None, [1])),
    "Exception": lambda: ValueError("x"),
    "tensors": lambda: (torch.zeros(2, 4), torch.zeros(2, 4)),
    "list of tensors": lambda: [torch.zeros(2, 4), None],
}
LARGE = tuple(map(repr, (7, *HUGE)))  # for a number of repetitions: these only take long


def _resized(dim: int, x: Tensor) -> Tensor:
    return torch.cat([x, x], dim) if x.dim() > dim else x.reshape(-1)


def _filled(value: float, x: Tensor) -> Tensor:
    return torch.full_like(x, value) if x.is_floating_point() else x + 10**6


TENSORS: Mapping[str, Changed] = {
    **{
        str(dtype): partial(lambda dtype, x: x.to(dtype), dtype)
        for dtype in (
            *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn),
            *(torch.int64, torch.int32, torch.uint8, torch.bool, torch.complex64, torch.uint16),
            *(torch.int8, torch.int16, torch.complex128, torch.uint64, torch.float8_e5m2),
        )
    },
    **{f"longer along {dim}": partial(_resized, dim) for dim in range(4)},
    "without first": lambda x: x[1:] if x.dim() else x,
    "empty": lambda x: x[:0] if x.dim() else x,
    "no features": lambda x: x[..., :0] if x.dim() else x,
    "unsqueezed": lambda x: x.unsqueeze(0),
    "unsqueezed last": lambda x: x.unsqueeze(-1),
    "its first": lambda x: x[0] if x.dim() and len(x) else x,
    "flat": lambda x: x.reshape(-1),
    "its sum": lambda x: x.sum(),
    "transposed": lambda x: x.transpose(0, -1) if x.dim() else x,
    "nan": partial(_filled, math.nan),
    "inf": partial(_filled, math.inf),
    "negative": lambda x: -1 - x if x.dtype != torch.bool else ~x,
    "meta": lambda x: x.to("meta"),
    "sparse": lambda x: x.to_sparse() if x.dim() else x,
    "requires grad": lambda x: (x if x.is_floating_point() else x.float()).clone().requires_grad_(),
    "list": lambda x: x.tolist(),
    "numpy": lambda x: x.detach().numpy(),
    "not contiguous": lambda x: torch.stack([x, x], -1)[..., 0],
    "expanded": lambda x: x.reshape(-1)[:1].expand(x.shape) if x.numel() else x,
    "conjugate view": lambda x: torch.complex(x.float(), x.float()).conj(),
    "csr": lambda x: x.to_sparse_csr() if x.dim() == 2 else x,
    "in a tuple": lambda x: (x,),
    "in a pair": lambda x: (x, x),
}

NUMBERS: Mapping[str, Changed] = {
    "as float": float,
    "as str": str,
    "as numpy": np.asarray,
    "as tensor": torch.tensor,
    "negated": lambda x: -x,
    "plus a half": lambda x: x + 0.5,
    "times 10": lambda x: x * 10,
    "in a list": lambda x: [x],
}

TEXTS: Mapping[str, Changed] = {
    "upper": str.upper,
    "bytes": str.encode,
    "in a list": lambda x: [x],
    "twice": lambda x: x + x,
}

SEQUENCES: Mapping[str, Changed] = {
    "shorter": lambda x: x[:-1],
    "longer": lambda x: (*x, *x),
    "reversed": lambda x: x[::-1],
    "of None": lambda x: (None,) * len(x),
    "of text": lambda x: ("x",) * len(x),
    "of floats": lambda x: (0.5,) * len(x),
    "of negatives": lambda x: (-1,) * len(x),
    "one None": lambda x: (*x[:-1], None),
    "as list": list,
    "as set of ids": lambda x: {id(v) for v in x},
    "nested": lambda x: (x,),
    "first": lambda x: x[0] if x else x,
}


def relatives(value: Any) -> Mapping[str, Changed]:
    """Changes of a right value into one that is nearly right."""
    if isinstance(value, Tensor):
        return TENSORS
    if isinstance(value, bool) or value is None:
        return {}
    if isinstance(value, int | float):
        return NUMBERS
    if isinstance(value, str):
        return TEXTS
    if isinstance(value, tuple | list):
        inner = [v for v in value if isinstance(v, Tensor)]
        if not inner:
            return SEQUENCES
        return {
            **SEQUENCES,
            **{f"all {name}": partial(_each, change) for name, change in TENSORS.items()},
            **{f"last {name}": partial(_last, change) for name, change in TENSORS.items()},
        }
    return {}


def _each(change: Changed, value: Any) -> Any:
    return tuple(change(v) if isinstance(v, Tensor) else v for v in value)


def _last(change: Changed, value: Any) -> Any:
    *rest, last = value
    return (*rest, change(last) if isinstance(last, Tensor) else last)
