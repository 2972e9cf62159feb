"""How wrappers are spelled in instrumented source, and how their names get into a module.

Names begin and end with two underscores, so that no class mangles them. They are imported by the
module itself rather than put into builtins: a spawned child that runs the script again has them.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass, field
from typing import Literal

from opguard.tools.source.text import SourceText

Wrapper = Literal["site", "subscript", "iterate"]

MODULE = "opguard.core._site"
MARK = "__opguard_"
NAMES: dict[Wrapper, str] = {
    "site": "__opguard_site__",
    "subscript": "__opguard_sub__",
    "iterate": "__opguard_iter__",
}
WRAPPERS: dict[str, Wrapper] = {name: wrapper for wrapper, name in NAMES.items()}
OPERATOR_NAME = "__opguard_operator__"
_IMPORTED = frozenset({*NAMES.items(), ("operator", OPERATOR_NAME)})

_NAME = re.compile(rf"{MARK}\w+")
_CODING = re.compile(r"[ \t\f]*#.*?coding[:=][ \t]*[-\w.]+", re.ASCII)
_BLANK = re.compile(r"[ \t\f]*(?:\r\n|\n|\r)")
_COMMENT = re.compile(r"[ \t\f]*#")
_COMPOUND = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.With,
    ast.AsyncWith,
    ast.Try,
    ast.TryStar,
    ast.Match,
)


@dataclass(slots=True)
class Spelling:
    """Text of wrappers in one file.

    Attributes:
        imported: Whether the file imports the names; otherwise each use imports for itself.
        used: Wrappers that were asked for.
        uses_operators: Whether a function of ``operator`` was asked for.
    """

    imported: bool
    used: set[Wrapper] = field(default_factory=set)
    uses_operators: bool = False

    def wrapper(self, wrapper: Wrapper, site: int) -> str:
        """Beginning of a wrapper's call, up to its second argument."""
        self.used.add(wrapper)
        if self.imported:
            return f"{NAMES[wrapper]}({site}, "
        return f"__import__('{MODULE}', fromlist=['{wrapper}']).{wrapper}({site}, "

    def operator(self, name: str) -> str:
        """A function of the standard ``operator`` module, whatever the file imports."""
        self.uses_operators = True
        if self.imported:
            return f"{OPERATOR_NAME}.{name}"
        return f"__import__('{MODULE}', fromlist=['operator']).operator.{name}"

    def import_statement(self) -> str:
        """Simple statement that brings in the names used, without the end of its line."""
        names = [f"{wrapper} as {name}" for wrapper, name in NAMES.items() if wrapper in self.used]
        if self.uses_operators:
            # Not by a plain import: a checkout's own operator.py would be found first.
            names.append(f"operator as {OPERATOR_NAME}")
        return f"from {MODULE} import {', '.join(names)}"


@dataclass(frozen=True, slots=True)
class ImportPlace:
    """Where the import goes: at ``offset``, between ``before`` and ``after``."""

    offset: int
    before: str
    after: str


def import_place(source: SourceText, tree: ast.Module) -> ImportPlace | None:
    """First place where an import can stand without adding a line.

    In this order: after the last ``from __future__`` import, after the module's docstring, in
    front of a simple first statement, on a blank or comment-only line before it. None when the
    file begins with a compound statement and has no such line.
    """
    if not tree.body:
        return None
    first = tree.body[0]
    futures = [node for node in tree.body if is_future_import(node)]
    if futures:
        return ImportPlace(source.span(futures[-1])[1], "; ", "")
    if ast.get_docstring(tree, clean=False) is not None:
        return ImportPlace(source.span(first)[1], "; ", "")
    if not isinstance(first, _COMPOUND):
        return ImportPlace(source.span(first)[0], "", "; ")
    decorators: list[ast.expr] = getattr(first, "decorator_list", [])
    first_line = min([first.lineno, *(decorator.lineno for decorator in decorators)])
    return _earlier_line(source, first_line)


def _earlier_line(source: SourceText, before: int) -> ImportPlace | None:
    """A blank line, else a comment-only one, above line ``before``.

    A first line ``#!…`` and coding comments keep their places, as does everything above a coding
    comment: it counts on the second line only below a comment or blank line.
    """
    begin = 1
    if source.line(1).startswith("#!"):
        begin = 2
    for number in range(1, min(2, source.line_count) + 1):
        if _CODING.match(source.line(number)):
            begin = number + 1
    comment: int | None = None
    for number in range(begin, before):
        line = source.line(number)
        if number > 1 and source.line(number - 1).rstrip("\r\n").endswith("\\"):
            continue
        if _BLANK.match(line):
            return ImportPlace(source.line_starts[number - 1], "", "")
        if comment is None and _COMMENT.match(line):
            comment = number
    if comment is None:
        return None
    return ImportPlace(source.line_starts[comment - 1], "", "  ")


def is_future_import(node: ast.stmt) -> bool:
    """Whether a statement is a ``from __future__`` import, before which only a text may stand."""
    return isinstance(node, ast.ImportFrom) and node.module == "__future__" and not node.level


def inserted_names(node: ast.stmt) -> frozenset[str]:
    """What a statement of instrumented source imports, if it is one that the rewriting put in."""
    if not isinstance(node, ast.ImportFrom) or node.module != MODULE or node.level:
        return frozenset()
    names = {alias.name: alias.asname or "" for alias in node.names}
    return frozenset(names.values()) if names.items() <= _IMPORTED else frozenset()


def names_in(text: str) -> frozenset[str]:
    """Names of ours in an instrumented text, whose original holds none."""
    return frozenset(_NAME.findall(text))


def wrapper_of(callee: ast.expr) -> Wrapper | None:
    """Which wrapper a callee in instrumented source names, in either spelling."""
    if isinstance(callee, ast.Name):
        return WRAPPERS.get(callee.id)
    if (
        isinstance(callee, ast.Attribute)
        and _imports(callee.value, MODULE)
        and callee.attr in NAMES
    ):
        return callee.attr
    return None


def operator_of(callee: ast.expr) -> str | None:
    """Name of the ``operator`` function that a wrapped callee spells, in either spelling."""
    if not isinstance(callee, ast.Attribute):
        return None
    module = callee.value
    if isinstance(module, ast.Name) and module.id == OPERATOR_NAME:
        return callee.attr
    if isinstance(module, ast.Attribute) and module.attr == "operator":
        return callee.attr if _imports(module.value, MODULE) else None
    return None


def _imports(node: ast.expr, module: str) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "__import__"
        and len(node.args) == 1
        and isinstance(node.args[0], ast.Constant)
        and node.args[0].value == module
    )
