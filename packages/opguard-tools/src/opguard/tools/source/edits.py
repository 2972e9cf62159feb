"""Text insertions that wrap expressions.

Every edit keeps all characters that it does not replace, and replaces only an operator or the
dot and name of an attribute; so comments, formatting and line numbers stay.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field

from opguard.tools.source.errors import RewriteError
from opguard.tools.source.expression import Expression
from opguard.tools.source.operators import BINARY, COMPARE, UNARY, inplace
from opguard.tools.source.plan import Site
from opguard.tools.source.spelling import Spelling
from opguard.tools.source.text import SourceText

_GAP = re.compile(r"[ \t\f\r\n\\]+|#[^\r\n]*|\)")

# Of wrappers around the same text the outermost is opened first: the loop's, then the call's or
# the subscript's around its callee or base, then one that stands for the expression itself.
_LOOP, _CALLEE, _WHOLE = range(3)
_CLOSE, _OPEN, _REPLACE = range(3)


@dataclass(slots=True)
class Edits:
    """Edits of one file, collected in any order.

    Attributes:
        source: The original text.
        spelling: How wrappers are written in this file.
    """

    source: SourceText
    spelling: Spelling
    _edits: list[tuple[int, int, float, int, int, str]] = field(default_factory=list)

    def wrap(self, expression: Expression, site: Site) -> None:
        """Add the edits that record one expression.

        Raises:
            RewriteError: The text is not what the parser's positions promise.
        """
        node = expression.node
        if expression.kind == "iterate":
            self._iterate(node, site)
        elif isinstance(node, ast.Call):
            self._base(node, node.func, site, "(")
        elif isinstance(node, ast.Subscript):
            self._base(node, node.value, site, "[")
        elif isinstance(node, ast.BinOp):
            self._operands(node, node.left, BINARY[type(node.op)], site)
        elif isinstance(node, ast.Compare):
            self._operands(node, node.left, COMPARE[type(node.ops[0])], site)
        elif isinstance(node, ast.UnaryOp):
            self._unary(node, site)
        elif isinstance(node, ast.Attribute):
            self._attribute(node, site)
        elif isinstance(node, ast.AugAssign):
            self._augmented(node, site)

    def insert(self, offset: int, text: str, *, first: bool) -> None:
        """Insert text before (``first``) or after everything else that goes to ``offset``."""
        key = float("-inf") if first else float("inf")
        self._edits.append((offset, _OPEN if first else _CLOSE, key, 0, 0, text))

    def apply(self) -> str:
        """The changed text."""
        text, done = self.source.text, 0
        parts: list[str] = []
        for offset, _, _, _, deleted, inserted in sorted(self._edits):
            parts += (text[done:offset], inserted)
            done = offset + deleted
        parts.append(text[done:])
        return "".join(parts)

    def _open(self, start: int, end: int, rank: int, text: str, deleted: int = 0) -> None:
        """Insert ``text`` before ``start``; of several there, around the longest text first."""
        before = self.source.text[start - 1 : start]
        if before.isalnum() or before == "_":  # a keyword that a parenthesis followed
            text = " " + text
        self._edits.append((start, _OPEN, start - end, rank, deleted, text))

    def _close(self, start: int, end: int, rank: int, text: str) -> None:
        """Insert ``text`` at ``end``; of several there, around the shortest text first."""
        self._edits.append((end, _CLOSE, end - start, -rank, 0, text))

    def _replace(self, start: int, end: int, text: str) -> None:
        self._edits.append((start, _REPLACE, 0, 0, end - start, text))

    def _skip(self, offset: int, token: str, site: Site) -> tuple[int, int]:
        """Go from an operand's end to the token after it.

        Returns:
            Offset after the last parenthesis that closes the operand, and offset of the token.
        """
        text, closed = self.source.text, offset
        while not text.startswith(token, offset):
            gap = _GAP.match(text, offset)
            if gap is None:
                raise RewriteError(
                    f"{site.file}:{site.line}: expected {token!r} after column {site.col}, "
                    f"found {text[offset : offset + 10]!r}. Leave callsite {site.id} out of the "
                    "plan and report the statement.",
                    file=site.file,
                    site=site.id,
                )
            offset = gap.end()
            if gap.group() == ")":
                closed = offset
        return closed, offset

    def _iterate(self, node: ast.expr | ast.AugAssign, site: Site) -> None:
        start, end = self.source.span(node)
        # The second pair of parentheses is for `for x in a, b`.
        self._open(start, end, _LOOP, self.spelling.wrapper("iterate", site.id) + "(")
        self._close(start, end, _LOOP, "))")

    def _base(self, node: ast.expr, base: ast.expr, site: Site, token: str) -> None:
        start, _ = self.source.span(node)
        _, base_end = self.source.span(base)
        end, _ = self._skip(base_end, token, site)
        wrapper = self.spelling.wrapper("site" if token == "(" else "subscript", site.id)
        self._open(start, end, _CALLEE, wrapper)
        self._close(start, end, _CALLEE, ")")

    def _function(self, name: str, site: Site) -> str:
        return f"{self.spelling.wrapper('site', site.id)}{self.spelling.operator(name)})("

    def _operands(
        self, node: ast.expr, left: ast.expr, operator: tuple[str, str], site: Site
    ) -> None:
        symbol, name = operator
        start, end = self.source.span(node)
        _, left_end = self.source.span(left)
        _, at = self._skip(left_end, symbol, site)
        self._open(start, end, _WHOLE, self._function(name, site))
        self._replace(at, at + len(symbol), ",")
        self._close(start, end, _WHOLE, ")")

    def _unary(self, node: ast.UnaryOp, site: Site) -> None:
        symbol, name = UNARY[type(node.op)]
        start, end = self.source.span(node)
        self._skip(start, symbol, site)
        self._open(start, end, _WHOLE, self._function(name, site), deleted=len(symbol))
        self._close(start, end, _WHOLE, ")")

    def _attribute(self, node: ast.Attribute, site: Site) -> None:
        start, end = self.source.span(node)
        _, value_end = self.source.span(node.value)
        _, dot = self._skip(value_end, ".", site)
        name = dot + 1
        while (gap := _GAP.match(self.source.text, name)) is not None:
            name = gap.end()
        self._open(start, end, _WHOLE, self.spelling.wrapper("site", site.id) + "getattr)(")
        self._replace(dot, dot + 1, ", ")
        self._replace(name, end, f"{node.attr!a})")

    def _augmented(self, node: ast.AugAssign, site: Site) -> None:
        start, end = self.source.span(node)
        _, target_end = self.source.span(node.target)
        symbol, name = inplace(type(node.op))
        _, at = self._skip(target_end, symbol, site)
        read = ast.unparse(node.target)
        self._replace(at, at + len(symbol), f"= {self._function(name, site)}{read}, (")
        self._close(start, end, _LOOP, "))")
