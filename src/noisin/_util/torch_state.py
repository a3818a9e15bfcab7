"""What torch is doing at the moment: every such question is asked here.

Some of the answers need private parts of torch, and the compiler can trace only some of the
questions. Both facts stay in this file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._C._dynamo import eval_frame
from torch._subclasses import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.autograd import forward_ad
from torch.nn import Parameter
from torch.utils._python_dispatch import _get_current_dispatch_mode

Function = TypeVar("Function", bound=Callable[..., Any])

# Whether `torch.compile` or `torch.export` traces this code. It is torch's own function, because
# where the compiler gives up on a function it compiles those that it calls: one of ours that asks
# would be answered yes while it is compiled, and keep the answer.
compiling = torch.compiler.is_compiling


def compiled_inside_others(function: Function) -> Function:
    """Decorator: ``torch.compile`` may trace this function in another, and never begins with it.

    It is what torch does with functions of its own, without importing the compiler. A torch that
    does it in another way compiles more than it needs.
    """
    if hasattr(eval_frame, "set_code_exec_strategy"):
        skip, default = eval_frame._FrameAction.SKIP, eval_frame._FrameAction.DEFAULT
        strategy = eval_frame._FrameExecStrategy(skip, default)
        eval_frame.set_code_exec_strategy(function.__code__, strategy)
    return function


@compiled_inside_others
def refused_as_an_rnn() -> bool:
    """Whether ``torch.compile`` is at work on the functions that are called, but not on RNNs."""
    if compiling() or eval_frame.get_eval_frame_callback() is None:
        return False
    return not getattr(torch._dynamo.config, "allow_rnn", True)


def transforming() -> bool:
    """Whether a transform of ``torch.func`` is active, such as vmap or grad."""
    return torch._C._functorch.get_dynamic_layer_stack_depth() > 0


def differentiating_forward() -> bool:
    """Whether dual numbers exist, whose tangents an autograd function would drop."""
    return forward_ad._current_level >= 0


def recording() -> bool:
    """Whether torch records or transforms single operations, which a kernel would hide.

    The compiler is not among those: it takes a layer as one operation.
    """
    tracing: bool = torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
    return tracing or transforming() or differentiating_forward()


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
    if not compiling() and not autocasting():
        return None
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


def traceable(x: Tensor) -> bool:
    """Whether x is an ordinary tensor to the compiler, not of a class with rules of its own."""
    return isinstance(x, FakeTensor | FunctionalTensor) or type(x) in (Tensor, Parameter)


def plain(x: Tensor) -> bool:
    """Whether x is an ordinary tensor or parameter, not traced, faked or batched.

    Gradients may flow.
    """
    if compiling():
        return False
    while torch._C._functorch.is_gradtrackingtensor(x):
        x = torch._C._functorch.get_unwrapped(x)
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor(x)
    return type(x) in (Tensor, Parameter) and not wrapped and not torch._C._get_tracing_state()
