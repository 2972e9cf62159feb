"""Keep ``torch.compile`` seeing the graph that the user wrote."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import torch
from torch._C._dynamo.eval_frame import set_eval_frame

from opguard.core import _site

Function = TypeVar("Function", bound=Callable[..., Any])

_registered = False


def hidden_from_compiler(function: Function) -> Function:
    """Keep the frames of ``function``, and those below it, out of ``torch.compile``.

    Where the compiler gives up on a frame, that frame runs as it is and the compiler looks at
    every frame that it calls. It must find the workload's there, and none of the recorder.
    """

    @functools.wraps(function)
    def run(*args: Any) -> Any:
        compiler = set_eval_frame(None)
        try:
            return function(*args)
        finally:
            set_eval_frame(compiler)

    _leave_alone(run)
    return cast("Function", run)


def _leave_alone(function: Any) -> None:
    """Never compile the frames of ``function`` itself; those that it calls stay as they are."""
    from torch._dynamo.eval_frame import skip_code

    skip_code(function.__code__)


def keep_compiled_graphs() -> None:
    """Make the compiler replace each instrumentation call by the object that it stands for.

    Without this a compiled region would either trace the recorder or break its graph at every
    callsite; with it ``fullgraph=True`` compiles, and the region is recorded at its call.
    """
    global _registered
    if _registered:
        return
    _registered = True

    def unwrap(index: int, item: Any) -> Any:
        return item

    for function in (_site.site, _site.subscript, _site.iterate):
        torch.compiler.substitute_in_graph(function, skip_signature_check=True)(unwrap)
    for function in _site.frames():
        _leave_alone(function)
