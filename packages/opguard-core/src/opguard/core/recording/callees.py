"""What is known about callees by name: operators that only overwrite, and fresh memory."""

from __future__ import annotations

import functools
import types
from collections.abc import Sequence
from typing import Any

import torch

from opguard.core.recording.attributes import attribute

OVERWRITES_FIRST = frozenset(
    {
        "bernoulli_",
        "cauchy_",
        "constant_",
        "copy_",
        "dirac_",
        "exponential_",
        "eye_",
        "fill_",
        "geometric_",
        "kaiming_normal_",
        "kaiming_uniform_",
        "log_normal_",
        "normal_",
        "ones_",
        "orthogonal_",
        "random_",
        "set_",
        "sparse_",
        "trunc_normal_",
        "uniform_",
        "xavier_normal_",
        "xavier_uniform_",
        "zero_",
        "zeros_",
    }
)
"""In-place functions whose result does not depend on what their first tensor held before. Reading
that as an input would compare uninitialised memory."""

FRESH_MEMORY = frozenset(
    {"empty", "empty_like", "empty_strided", "new_empty", "empty_permuted", "to_empty"}
)
"""Factories whose result has arbitrary bytes; ``Module.to_empty`` gives them to parameters."""

COLLECTIVE_OUTPUTS = {
    "all_gather": 0,
    "all_gather_into_tensor": 0,
    "all_to_all": 0,
    "all_to_all_single": 0,
    "broadcast_object_list": 0,
    "gather": 1,
    "reduce_scatter": 0,
    "reduce_scatter_tensor": 0,
}
"""Position of the argument that a collective only writes."""

_IGNORES_GRADIENTS = frozenset({"load_state_dict", "state_dict", "zero_grad"})

KEEPS_OPTIMIZER_STATE = frozenset({"add_param_group", "state_dict", "zero_grad"})
"""Optimizer methods that leave the state of every parameter as it is."""

_LEAF_NAMESPACES = frozenset(
    {
        "torch",
        "torch._C._nn",
        "torch._C._linalg",
        "torch._C._fft",
        "torch._C._special",
        "torch.functional",
        "torch.nn.functional",
        "torch.nn.init",
        "_operator",
    }
)


def callee_name(callee: Any) -> str:
    """Last part of the callee's name; a module or another callable object gives its class."""
    while isinstance(callee, functools.partial):
        callee = callee.func
    name = attribute(callee, "__name__")
    return name if isinstance(name, str) and name else type(callee).__name__


def bound_to(callee: Any) -> Any:
    """The object that a method is bound to, or ``None``."""
    return None if isinstance(callee, torch.nn.Module) else attribute(callee, "__self__")


def is_compiled(callee: Any) -> bool:
    """Whether the callee runs compiled code: made by ``torch.compile``."""
    if type(callee).__name__ == "OptimizedModule":
        return True
    if isinstance(callee, torch.nn.Module):
        return getattr(callee, "_compiled_call_impl", None) is not None
    # What torch.compiler.disable returns wraps a function in the same way.
    names = attribute(callee, "__dict__") or {}
    return "_torchdynamo_orig_callable" in names and not names.get("_torchdynamo_disable", False)


def overwritten_prefixes(name: str, owner: Any) -> tuple[str, ...]:
    """Slots that a callee of this name, bound to ``owner``, overwrites without reading them."""
    if name in OVERWRITES_FIRST:
        return ("kwarg.out", "self" if isinstance(owner, torch.Tensor) else "arg[0]")
    if name in COLLECTIVE_OUTPUTS:
        return ("kwarg.out", f"arg[{COLLECTIVE_OUTPUTS[name]}]")
    return ("kwarg.out",)


def runs_workload_code(callee: Any) -> bool:
    """Whether the callee is a Python function that is not torch's own.

    The numbers and texts that it returns come from calls inside it, or from a clock, a path or a
    counter. They say nothing about tensors that the calls inside it do not say themselves.
    """
    while isinstance(callee, functools.partial):
        callee = callee.func
    if isinstance(callee, torch.nn.Module):
        return False
    function = callee.__func__ if isinstance(callee, types.MethodType) else callee
    if not isinstance(function, types.FunctionType):
        return False
    return (function.__module__ or "").partition(".")[0] != "torch"


def reads_gradients(name: str, args: tuple[Any, ...], optimizers: Sequence[Any]) -> bool:
    """Whether gradients of parameters that no argument shows may be inputs of a call.

    ``backward`` adds to them, and what gets an optimizer or a generator of parameters
    (``clip_grad_norm_(model.parameters())``, ``scaler.unscale_(optimizer)``) reads them.
    Functions that only drop or replace them do not.
    """
    if name in _IGNORES_GRADIENTS:
        return False
    return (
        name == "backward"
        or bool(optimizers)
        or any(isinstance(item, types.GeneratorType) for item in args)
    )


def may_use_python_random(callee: Any) -> bool:
    """Whether the callee could draw from ``random`` or numpy.

    Tensor methods, functions of torch's own namespaces and torch's modules without children
    cannot; whatever calls back into other code can.
    """
    if isinstance(callee, torch.nn.Module):
        return not type(callee).__module__.startswith("torch.nn.") or any(callee.children())
    if isinstance(attribute(callee, "__self__"), torch.Tensor):
        return False
    module = attribute(callee, "__module__")
    if module is None:
        return type(callee).__name__ != "method_descriptor"
    return module not in _LEAF_NAMESPACES
