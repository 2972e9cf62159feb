"""An expression that could be recorded."""

from __future__ import annotations

import ast
from dataclasses import dataclass

from opguard.tools.source.plan import Kind
from opguard.tools.source.text import Span


@dataclass(slots=True, eq=False)
class Expression:
    """One expression that could be recorded.

    Attributes:
        node: The expression; for kind ``iterate`` the iterable, for ``augmented`` the statement.
        kind: Its form.
        span: Position of ``node``.
        statement: Line and column of the statement that holds it.
        qualname: Qualified name of the code object that evaluates it.
        owner: For kind ``iterate`` the loop or comprehension; otherwise ``node``.
        refusal: Why it cannot be wrapped, or None.
        ordinal: Number among the statement's expressions, in source order.
    """

    node: ast.expr | ast.AugAssign
    kind: Kind
    span: Span
    statement: tuple[int, int]
    qualname: str
    owner: ast.AST
    refusal: str | None
    ordinal: int = 0
    order: tuple[int, int, int, int] = (0, 0, 0, 0)
