"""Writing a statement in normalised form.

A statement is reduced to what it does: no positions, comments, formatting or type annotations.
Names that a function or module binds itself are kept apart from the rest of the statement, so
that two versions can be compared up to a consistent renaming.
"""

from __future__ import annotations

import ast

from opguard.tools.source.kinds import BLOCKS
from opguard.tools.source.scopes import FREE, GLOBAL, Scope, Statement

_DROPPED = frozenset(
    {"ctx", "kind", "type_comment", "annotation", "returns", "simple", "type_params"}
)


def normalise(node: ast.stmt, scope: Scope, definitions: frozenset[str]) -> Statement:
    """A statement without the blocks in it.

    Args:
        node: The statement.
        scope: Where it runs.
        definitions: Names of functions, classes and modules of both versions.
    """
    writer = _Writer(scope, definitions)
    writer.statement(node)
    position = (node.lineno, node.col_offset)
    return Statement(position, "".join(writer.parts), tuple(writer.names))


def all_arguments(arguments: ast.arguments) -> list[ast.arg]:
    """Parameters of a function in order."""
    found = [*arguments.posonlyargs, *arguments.args, arguments.vararg]
    found += [*arguments.kwonlyargs, arguments.kwarg]
    return [argument for argument in found if argument is not None]


class _Writer:
    """Writes one statement as its shape and its names."""

    def __init__(self, scope: Scope, definitions: frozenset[str]) -> None:
        self.parts: list[str] = []
        self.names: list[tuple[int, str]] = []
        self._definitions = definitions
        self._scopes = scope.visible()

    def statement(self, node: ast.stmt) -> None:
        """Write a statement without the blocks in it."""
        if isinstance(node, ast.AnnAssign):
            self._annotated(node)
            return
        self.node(node)
        for handler in getattr(node, "handlers", ()):
            self.parts.append("except(")
            self.value(handler.type)
            self._binding(handler.name)
            self.parts.append(")")
        for case in getattr(node, "cases", ()):
            self.parts.append("case(")
            self.value(case.pattern)
            self.value(case.guard)
            self.parts.append(")")

    def _annotated(self, node: ast.AnnAssign) -> None:
        """``x: T = 1`` is ``x = 1``; ``x: T`` declares only."""
        if node.value is not None:
            self.parts.append("Assign([")
            self.value(node.target)
            self.parts.append("]")
            self.value(node.value)
        else:
            self.parts.append("declare(")
            self.value(node.target)
        self.parts.append(")")

    def node(self, node: ast.AST) -> None:
        """Write any node."""
        if isinstance(node, ast.Name):
            self._name(node.id)
            return
        self.parts.append(type(node).__name__ + "(")
        if isinstance(node, ast.Import | ast.ImportFrom):
            self._import(node)
        elif isinstance(node, ast.Global | ast.Nonlocal):
            for name in node.names:
                self._name(name)
        else:
            binds = _BINDS.get(type(node))
            for name in node._fields:
                value = getattr(node, name, None)
                if name == binds:
                    self._binding(value)
                elif name in BLOCKS and isinstance(node, ast.stmt):
                    continue
                elif isinstance(value, ast.arguments):
                    self._parameters(value, names=isinstance(node, ast.Lambda))
                elif name not in _DROPPED:
                    self.value(value, identifier=name == "attr")
        self.parts.append(")")

    def value(self, value: object, *, identifier: bool = False) -> None:
        """Write a field's value."""
        if isinstance(value, ast.AST):
            self.node(value)
        elif isinstance(value, list):
            self.parts.append("[")
            for item in value:
                self.value(item)
            self.parts.append("]")
        elif identifier and value in self._definitions:
            self._mark(GLOBAL, str(value))
        else:
            # Type and text, since 1, 1.0 and True are equal, and so are 0.0 and -0.0.
            self.parts.append(f"{type(value).__name__} {value!r},")

    def _mark(self, level: int, name: str) -> None:
        self.names.append((level, name))
        self.parts.append("\0")

    def _name(self, name: str) -> None:
        for level, scope in enumerate(self._scopes):
            if name in scope.bound:
                self._mark(level, name)
                return
        self._mark(GLOBAL if name in self._definitions else FREE, name)

    def _binding(self, name: str | None) -> None:
        if name is None:
            self.parts.append("-,")
        else:
            self._name(name)

    def _parameters(self, arguments: ast.arguments, *, names: bool) -> None:
        """Kinds and defaults of parameters.

        Their names count only for a lambda, whose body is in the same statement.
        """
        counts = (len(arguments.posonlyargs), len(arguments.args), len(arguments.kwonlyargs))
        self.parts.append(f"{counts}{arguments.vararg is None}{arguments.kwarg is None}")
        self.value([*arguments.defaults, *arguments.kw_defaults])
        if names:
            for argument in all_arguments(arguments):
                self._name(argument.arg)

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        if isinstance(node, ast.ImportFrom):
            self.parts.append("." * node.level)
            self._dotted(node.module or "")
        for alias in node.names:
            self._dotted(alias.name)
            self._binding(alias.asname or alias.name.partition(".")[0])

    def _dotted(self, name: str) -> None:
        for part in name.split("."):
            self.value(part, identifier=True)


_BINDS: dict[type[ast.AST], str] = {
    ast.FunctionDef: "name",
    ast.AsyncFunctionDef: "name",
    ast.ClassDef: "name",
    ast.MatchAs: "name",
    ast.MatchStar: "name",
    ast.MatchMapping: "rest",
}
