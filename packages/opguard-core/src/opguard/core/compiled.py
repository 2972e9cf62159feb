"""Keep ``torch.compile`` seeing the graph that the user wrote."""

from __future__ import annotations

from typing import Any

import torch

from opguard.core import _site

_registered = False


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

    def discard(index: int, target: Any) -> None:
        return None

    for function in (_site.site, _site.subscript, _site.iterate):
        torch.compiler.substitute_in_graph(function, skip_signature_check=True)(unwrap)
    torch.compiler.substitute_in_graph(_site.store, skip_signature_check=True)(discard)
