"""Kinds of syntax nodes, and what differs between the supported interpreters."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator

from opguard.tools.source.text import LineSet

Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp

FRAME_NAMES: dict[type[ast.AST], str] = {
    ast.ListComp: "<listcomp>",
    ast.SetComp: "<setcomp>",
    ast.DictComp: "<dictcomp>",
    ast.GeneratorExp: "<genexpr>",
}
"""Name of the code object of each kind of comprehension."""

COMPREHENSION_FRAMES = sys.version_info < (3, 12)
"""Before 3.12 every comprehension runs in a frame of its own; later only generators do."""

FORMAT_POSITIONS = sys.version_info >= (3, 12)
"""Before 3.12 expressions inside an f-string are parsed apart, with wrong positions."""

BLOCKS = ("body", "handlers", "cases", "orelse", "finalbody")
"""Fields of a compound statement that hold other statements, in source order."""

STATEMENTS = frozenset(ast.stmt.__subclasses__())

_HOLDERS: frozenset[type[ast.AST]] = frozenset({ast.Module, ast.ExceptHandler, ast.match_case})
BLOCKS_OF: dict[type[ast.AST], tuple[str, ...]] = {
    kind: tuple(name for name in BLOCKS if name in kind._fields) for kind in STATEMENTS | _HOLDERS
}
"""Those of these fields that each kind of node has, by kind."""

LEAVES = frozenset(
    {
        *ast.operator.__subclasses__(),
        *ast.unaryop.__subclasses__(),
        *ast.cmpop.__subclasses__(),
        *ast.boolop.__subclasses__(),
        *ast.expr_context.__subclasses__(),
        *(ast.Name, ast.Constant, str, int, type(None)),
    }
)
"""Types that hold no expression: most of a tree's fields."""


def walk(tree: ast.AST, lines: LineSet | None = None) -> Iterator[ast.AST]:
    """A node and everything in it but names, constants and operators, in any order.

    ``ast.walk`` takes several times as long.

    Args:
        tree: The node.
        lines: Statements without one of these are left out; by default none are.
    """
    pending = [tree]
    while pending:
        node = pending.pop()
        if lines is not None and type(node) in STATEMENTS and not lines.touches(node):  # type: ignore[arg-type]
            continue
        yield node
        for value in node.__dict__.values():
            if type(value) is list:
                pending += [item for item in value if type(item) not in LEAVES]
            elif type(value) not in LEAVES:
                pending.append(value)


def walk_statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """All statements of a module, without the expressions in them."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.stmt):
            yield node
        for name in BLOCKS_OF[type(node)]:
            pending += getattr(node, name)
