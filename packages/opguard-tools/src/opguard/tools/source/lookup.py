"""Expressions and statements of source files by position."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass

from opguard.tools.source.errors import UnusableSourceError
from opguard.tools.source.observe import ObservedSpan
from opguard.tools.source.positions import PositionMap
from opguard.tools.source.rewrite import ParsedSource
from opguard.tools.source.select import callee_text
from opguard.tools.source.text import one_line


@dataclass(frozen=True, slots=True)
class FoundExpression:
    """An expression at a position: as in :class:`opguard.tools.source.plan.Site`."""

    kind: str
    callee: str
    text: str
    statement: tuple[int, int]
    ordinal: int


@dataclass(slots=True)
class _File:
    parsed: ParsedSource
    positions: PositionMap
    statements: dict[int, tuple[int, int]]


class SourceLookup:
    """Looks positions up in files, each of which is parsed when it is first asked for.

    Args:
        sources: Content by name.
    """

    def __init__(self, sources: Mapping[str, bytes]) -> None:
        self._sources = sources
        self._files: dict[str, _File | None] = {}

    def expression(
        self, name: str, qualname: str, position: tuple[int, int, int, int]
    ) -> FoundExpression | None:
        """The outermost expression at a position; None if no file or expression is there."""
        file = self._file(name)
        if file is None or position[0] < 1:
            return None
        line, end_line, col, end_col = position
        found, _ = file.positions.find(ObservedSpan(name, qualname, line, end_line, col, end_col))
        if not found:
            return None
        first = found[0]
        source = file.parsed.source
        start, end = source.span(first.node)
        return FoundExpression(
            first.kind,
            callee_text(first),
            one_line(source.text[start:end]),
            first.statement,
            first.ordinal,
        )

    def statement(self, name: str, line: int) -> tuple[int, int] | None:
        """Where the innermost statement on a line begins."""
        file = self._file(name)
        return None if file is None else file.statements.get(line)

    def line(self, name: str, line: int) -> str:
        """The text of a line, without what surrounds it."""
        file = self._file(name)
        if file is None:
            return ""
        lines = file.parsed.source.text.split("\n")
        return one_line(lines[line - 1]) if 1 <= line <= len(lines) else ""

    def _file(self, name: str) -> _File | None:
        if name not in self._files:
            self._files[name] = self._parse(self._sources.get(name))
        return self._files[name]

    def _parse(self, content: bytes | None) -> _File | None:
        if content is None:
            return None
        try:
            parsed = ParsedSource.of(content)
        except UnusableSourceError:
            return None
        positions = PositionMap(parsed.index.expressions, parsed.source.line_count)
        return _File(parsed, positions, _statements(parsed.tree))


def _statements(tree: ast.Module) -> dict[int, tuple[int, int]]:
    """Beginning of the innermost statement on every line: later ones lie inside earlier ones."""
    found: dict[int, tuple[int, int]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            for line in range(node.lineno, (node.end_lineno or node.lineno) + 1):
                known = found.get(line)
                if known is None or known <= (node.lineno, node.col_offset):
                    found[line] = (node.lineno, node.col_offset)
    return found
