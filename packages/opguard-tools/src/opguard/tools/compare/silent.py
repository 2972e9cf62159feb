"""Changed statements that no recorded call stands for.

``head.weight = embed.weight`` runs no operation of its own, and neither does a ``return`` in a new
place. When a call's outputs differ although its inputs and every call inside it agree, such a
statement in a function that ran inside it is what the reader looks for.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace

from opguard.tools.compare.capture import CaptureView
from opguard.tools.compare.keys import SourceAlignment, StatementKey
from opguard.tools.compare.origin import Origin, OriginKind, SilentStatement
from opguard.tools.compare.records import Call, CallFlag, Side
from opguard.tools.compare.results import Comparison
from opguard.tools.source.errors import UnusableSourceError
from opguard.tools.source.statements import module_scope
from opguard.tools.source.text import SourceText, parse

_Function = tuple[str, str]

_EFFECTIVE = (
    *(ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete, ast.Return, ast.Expr),
    *(ast.If, ast.For, ast.While, ast.With, ast.Match, ast.Break, ast.Continue),
)
"""Statements that can change what a function gives without an operation of their own."""


def name_silent_statements(comparison: Comparison, alignment: SourceAlignment) -> Comparison:
    """The comparison with the silent statements of its origins.

    Args:
        comparison: What was found.
        alignment: Statements of both versions of the sources.
    """
    silent = {
        side: _Silent(comparison.capture(side), changed)
        for side, changed in (
            (Side.BASELINE, alignment.baseline),
            (Side.CANDIDATE, alignment.candidate),
        )
    }
    ranks = [
        replace(rank, origins=[_named(origin, silent) for origin in rank.origins])
        for rank in comparison.ranks
    ]
    first = comparison.first
    if first is not None:
        first = first[0], _named(first[1], silent)
    return replace(comparison, ranks=ranks, first=first)


def _named(origin: Origin, silent: Mapping[Side, _Silent]) -> Origin:
    if origin.kind is not OriginKind.OUTPUTS_DIFFER:
        return origin
    found = {}
    for side, call in ((Side.BASELINE, origin.baseline), (Side.CANDIDATE, origin.candidate)):
        if call is not None and not call.flags & CallFlag.OPERATOR:
            statement = silent[side].inside(call)
            if statement is not None:
                found[side] = statement
    if not found:
        return origin
    why = f"{origin.why}, every call inside agrees; a changed statement there runs no operation"
    return replace(origin, silent=found, why=why)


class _Silent:
    """Changed statements of one side without a callsite, by function; read when first needed."""

    def __init__(
        self, capture: CaptureView, keys: Mapping[tuple[str, int, int], StatementKey]
    ) -> None:
        self._capture = capture
        self._changed = {place for place, key in keys.items() if key.kind == "changed"}
        self._with_site = {(site.file, *site.statement) for site in capture.sites.values()}
        self._by_function: dict[str, dict[_Function, list[ast.stmt]]] = {}

    def inside(self, call: Call) -> SilentStatement | None:
        """The most telling one in the functions that ran inside a call.

        Writing an attribute or an item reaches beyond its function, so that comes first.
        """
        sites = (self._capture.sites.get(inner.site) for inner in call.subtree())
        functions = dict.fromkeys((site.file, site.qualname) for site in list(sites)[1:] if site)
        found = [
            (function, node)
            for function in functions
            for node in self._file(function[0]).get(function, ())
        ]
        if not found:
            return None
        function, node = next((entry for entry in found if _reaches_out(entry[1])), found[0])
        end = node.body[0].lineno - 1 if hasattr(node, "body") else node.end_lineno or 0
        return SilentStatement(
            function[0],
            node.lineno,
            max(node.lineno, end),
            function[1],
            (node.lineno, node.col_offset),
        )

    def _file(self, file: str) -> Mapping[_Function, list[ast.stmt]]:
        if file not in self._by_function:
            found: dict[_Function, list[ast.stmt]] = {}
            for function, node in self._statements(file):
                found.setdefault(function, []).append(node)
            self._by_function[file] = found
        return self._by_function[file]

    def _statements(self, file: str) -> Iterator[tuple[_Function, ast.stmt]]:
        content = self._capture.sources.get(file)
        if content is None or not any(place[0] == file for place in self._changed):
            return
        try:
            tree = parse(SourceText.decode(content).text)
        except UnusableSourceError:
            return
        nodes = {
            (node.lineno, node.col_offset): node
            for node in ast.walk(tree)
            if isinstance(node, _EFFECTIVE)
        }
        for scope in module_scope(file, tree, frozenset()).walk():
            for position in (statement.position for statement in scope.statements):
                place = (file, *position)
                node = nodes.get(position)
                if node is None or place not in self._changed or place in self._with_site:
                    continue
                if not _only_prints(node):
                    yield (file, scope.qualname), node


def _reaches_out(node: ast.stmt) -> bool:
    targets: list[ast.expr] = list(getattr(node, "targets", ()))
    if isinstance(node, ast.AugAssign | ast.AnnAssign):
        targets.append(node.target)
    return any(isinstance(target, ast.Attribute | ast.Subscript) for target in targets)


def _only_prints(node: ast.stmt) -> bool:
    if not isinstance(node, ast.Expr):
        return False
    value = node.value
    if not isinstance(value, ast.Call):
        return True
    return isinstance(value.func, ast.Name) and value.func.id == "print"
