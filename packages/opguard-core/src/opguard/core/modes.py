"""Dispatch modes of the tracer: pushing, removing, and where torch needs help to run under one."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

_DTYPES = {bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128}


class ObservingMode(TorchDispatchMode):
    """Sees every operator of the program, and compiled code only from outside.

    Args:
        run: Receives the operator and its arguments, runs it and gives its result.
    """

    supports_higher_order_operators = True

    def __init__(
        self, run: Callable[[Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._run = run

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Let ``torch.compile`` compile although a mode is active."""
        return True

    def __torch_dispatch__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Hand the operator on."""
        return self._run(func, args, kwargs or {})


def push_mode(mode: TorchDispatchMode) -> None:
    """Make a mode the first to see operators, unless it is active already.

    As entering it does, less the flags by which torch tells its users that a mode is on.
    """
    if not any(active is mode for active in _active_modes()):
        torch._C._push_on_torch_dispatch_stack(mode)


def remove_mode(mode: TorchDispatchMode) -> bool:
    """Take a mode from wherever it is among the active ones; the others keep their order."""
    if not any(active is mode for active in _active_modes()):
        return False
    above = []
    while (top := torch._C._pop_torch_dispatch_stack(None)) is not mode:
        above.append(top)
    for active in reversed(above):
        torch._C._push_on_torch_dispatch_stack(active)
    return True


def _active_modes() -> list[Any]:
    """The one that sees an operator first comes last."""
    count = torch._C._len_torch_dispatch_stack()
    return [torch._C._get_dispatch_stack_at(index) for index in range(count)]


def is_tracing() -> bool:
    """Whether ``torch.jit.trace`` is following the program."""
    return torch._C._get_tracing_state() is not None


def run_operator(
    operator: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Run what a mode was given, as if there were no mode.

    torch hands a number that stands for a tensor (the constant of a traced graph) to a mode as a
    plain number, and then takes it back for arithmetic only.
    """
    if not args or type(args[0]) not in _DTYPES:
        return operator(*args, **kwargs)
    try:
        return operator(*args, **kwargs)
    except RuntimeError:
        number = torch.scalar_tensor(args[0], dtype=_DTYPES[type(args[0])])
        return operator(number, *args[1:], **kwargs)


def check_traces_without(mode: TorchDispatchMode) -> None:
    """Leave ``mode`` while ``torch.jit.trace`` compares a traced graph with a second trace.

    The comparison calls operators on numbers that stand for tensors. Under a mode these come back
    as something else, and the message would blame the script.
    """
    module = sys.modules.get("torch.jit._trace")
    check = getattr(module, "_check_trace", None)
    if check is None:
        return

    @functools.wraps(check)
    def unobserved(*args: Any, **kwargs: Any) -> Any:
        removed = remove_mode(mode)
        try:
            return check(*args, **kwargs)
        finally:
            if removed:
                push_mode(mode)

    setattr(module, "_check_trace", unobserved)  # noqa: B010, the module has a type of its own
