"""What dotted names in a module refer to, through its imports.

Only as much as is needed to recognise a decorator or a builtin under any spelling:
``from torch.jit import script as s`` makes ``s`` mean ``torch.jit.script``.
"""

from __future__ import annotations

import ast

from opguard.tools.source.kinds import walk_statements

FRAME_BUILTINS = frozenset(
    {"super", "locals", "globals", "vars", "dir", "eval", "exec", "breakpoint"}
)
"""Builtins that look at the frame that calls them."""

_FRAME_FUNCTIONS = frozenset({"_getframe", "_getframemodulename", "_current_frames"})
_INSPECT_FUNCTIONS = frozenset({"currentframe", "stack", "trace", "getouterframes"})

_COMPILERS = frozenset({"jit", "njit", "script", "script_method", "script_if_tracing", "autotune"})
_COMPILER_WORDS = frozenset({"jit", "script", "autotune"})
"""The full name of every compiler has one of these in it."""
_COMPILER_PACKAGES = frozenset({"torch", "triton", "numba", "jax"})


def imported_names(tree: ast.Module) -> dict[str, str]:
    """Full dotted name of every name that an import in the module binds."""
    names: dict[str, str] = {}
    for node in walk_statements(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                top = alias.name.partition(".")[0]
                names[alias.asname or top] = alias.name if alias.asname else top
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                names[alias.asname or alias.name] = f"{node.module}.{alias.name}"
    return names


def dotted(node: ast.expr, imports: dict[str, str]) -> tuple[str, bool] | None:
    """A name or attribute chain as dotted text, and whether its root is an imported name.

    None for any other expression.
    """
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    root = imports.get(node.id)
    parts.append(root or node.id)
    return ".".join(reversed(parts)), root is not None


def uses_caller_frame(callee: ast.expr, imports: dict[str, str]) -> bool:
    """Whether a callee reads the frame that calls it, so that it must be called from there."""
    if isinstance(callee, ast.Name):
        if callee.id in FRAME_BUILTINS:
            return True
        package, _, last = imports.get(callee.id, "").rpartition(".")
    elif isinstance(callee, ast.Attribute):
        last = callee.attr
        if last not in _INSPECT_FUNCTIONS:
            return last in _FRAME_FUNCTIONS
        name = dotted(callee, imports)
        package = "" if name is None else name[0].rpartition(".")[0]
    else:
        return False
    return last in _FRAME_FUNCTIONS or (package == "inspect" and last in _INSPECT_FUNCTIONS)


def compiler_words(imports: dict[str, str]) -> frozenset[str]:
    """Words of which one stands wherever ``source_compiler`` could recognise a name."""
    last = _COMPILERS | {"export"}
    return _COMPILER_WORDS.union(
        name for name, full in imports.items() if full.rpartition(".")[2] in last
    )


def source_compiler(node: ast.expr, imports: dict[str, str]) -> str | None:
    """Name of the compiler that a decorator or wrapping call stands for, if it is one.

    Such a compiler reads the function's source text or bytecode and knows nothing of a wrapper.
    ``functools.partial(jit, …)`` counts as ``jit``.
    """
    if isinstance(node, ast.Call):
        name = dotted(node.func, imports)
        if name is not None and name[0].rpartition(".")[2] == "partial" and node.args:
            return source_compiler(node.args[0], imports)
        return source_compiler(node.func, imports)
    resolved = dotted(node, imports)
    if resolved is None:
        return None
    full, imported = resolved
    package, _, last = full.rpartition(".")
    if last not in _COMPILERS and not full.endswith("jit.export"):
        return None
    if imported:
        return full if full.partition(".")[0] in _COMPILER_PACKAGES else None
    known = last in ("jit", "njit") or not package or package.rpartition(".")[2] == "jit"
    return full if known else None
