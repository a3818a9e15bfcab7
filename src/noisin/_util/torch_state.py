"""What torch is doing at the moment: every such question is asked here.

Some of the answers need private parts of torch, and the compiler can trace only some of the
questions. Both facts stay in this file.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.utils._python_dispatch import _get_current_dispatch_mode


def compiling() -> bool:
    """Whether ``torch.compile`` or ``torch.export`` traces this code."""
    return torch.compiler.is_compiling()


def transforming() -> bool:
    """Whether a transform of ``torch.func`` is active, such as vmap or grad."""
    if compiling():  # the compiler cannot trace the question below
        return False
    return torch._C._functorch.peek_interpreter_stack() is not None


def differentiating_forward() -> bool:
    """Whether dual numbers exist, whose tangents an autograd function would drop."""
    return forward_ad._current_level >= 0


def recording() -> bool:
    """Whether torch records or transforms single operations, which a kernel would hide."""
    tracing: bool = torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
    return compiling() or tracing or transforming() or differentiating_forward()


def dispatching() -> bool:
    """Whether Python code intercepts operations, such as a counter of them."""
    return _get_current_dispatch_mode() is not None


def in_backward() -> bool:
    """Whether a backward pass is running: gradient checkpointing recomputes inside one."""
    return torch._C._current_graph_task_id() != -1


def autocasting() -> bool:
    """Whether autocast is enabled on any device."""
    return torch._C._is_any_autocast_enabled()


def autocast_dtype(x: Tensor) -> torch.dtype | None:
    """The dtype in which autocast takes products of x, or None; it leaves float64 alone."""
    device = x.device.type
    available = torch.amp.is_autocast_available(device)
    if not available or not torch.is_autocast_enabled(device) or x.dtype == torch.float64:
        return None
    return torch.get_autocast_dtype(device)


def values_known(x: Tensor) -> bool:
    """Whether Python may look at the values of x: not while a function is traced or transformed."""
    return not (compiling() or x.is_meta or torch._C._functorch.is_functorch_wrapped_tensor(x))


def batched_by_autograd(x: Tensor) -> bool:
    """Whether x is a batch of gradients of ``is_grads_batched``, which is not a vmap."""
    return torch._C._functorch.is_legacy_batchedtensor(x)


def plain(x: Tensor) -> bool:
    """Whether x is an ordinary tensor, not traced, faked or batched; gradients may flow."""
    if compiling():
        return False
    while torch._C._functorch.is_gradtrackingtensor(x):
        x = torch._C._functorch.get_unwrapped(x)
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor(x)
    return type(x) is Tensor and not wrapped and not torch._C._get_tracing_state()
