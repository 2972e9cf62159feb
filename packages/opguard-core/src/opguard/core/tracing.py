"""``torch.jit.trace`` under a dispatch mode."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def is_tracing() -> bool:
    """Whether ``torch.jit.trace`` is following the program."""
    return torch._C._get_tracing_state() is not None


def run_untraced(
    operator: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Run an operator that the tracer has noted already, before the mode got to see it.

    Called again from Python it would be noted a second time, and the graph would hold every
    operator twice; the comparison that ends a trace then blames the script.
    """
    state = torch._C._get_tracing_state()
    # torch's stubs do not have it.
    replace_state: Callable[[Any], None] = getattr(torch._C, "_set_tracing_state")  # noqa: B009
    replace_state(None)
    try:
        return operator(*args, **kwargs)
    finally:
        replace_state(state)
