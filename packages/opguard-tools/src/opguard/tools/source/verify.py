"""Proof that instrumented source does what the original does.

The original's tree and the instrumented one's are walked side by side. Wherever the second has a
wrapper, the wrapper is taken off, and what is left must equal the first, node by node and line by
line. A wrapper must be the one that the plan has for exactly this expression.

A statement whose text did not change is not in the second tree: a ``pass`` stands for it, and
another header for a header that did not change (:mod:`opguard.tools.source.unchanged`).

The instrumented tree need not be compiled as well: it is the original's, which compiles, with calls
of a name around expressions. The parser refuses deeper nesting long before the compiler does.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from opguard.tools.source.kinds import BLOCKS_OF, STATEMENTS
from opguard.tools.source.operators import (
    BINARY_BY_NAME,
    COMPARE_BY_NAME,
    INPLACE_BY_NAME,
    UNARY_BY_NAME,
)
from opguard.tools.source.plan import Site
from opguard.tools.source.spelling import (
    inserted_names,
    is_future_import,
    operator_of,
    wrapper_of,
)


@dataclass(frozen=True, slots=True)
class Difference:
    """A place where the trees differ: original line, callsite at fault if known, and what."""

    line: int
    site: int | None
    what: str


@dataclass(slots=True)
class Comparison:
    """One side-by-side walk.

    Attributes:
        sites: The plan's callsites of this file by id.
        stand_ins: Line of what stands for each statement that did not change, or whose header did
            not.
        names: Names of ours that the instrumented text holds: one import brings in just these.
        seen: Callsites whose wrapper was found at its expression.
    """

    sites: Mapping[int, Site]
    stand_ins: Mapping[ast.stmt, int]
    names: frozenset[str]
    seen: set[int] = field(default_factory=set)
    _site: int | None = None

    def run(self, original: ast.Module, rewritten: ast.Module) -> Difference | None:
        """Compare; None means that the trees are equal but for the wrappers of all sites.

        The second tree is changed.
        """
        if _take_import(original.body, rewritten.body) != self.names:
            return Difference(1, None, "its wrappers are not imported at its beginning")
        pairs: list[tuple[Any, Any]] = [(original, rewritten)]
        line = 1
        while pairs:
            before, after = pairs.pop()
            kind = type(before)
            stand_in = self.stand_ins.get(before) if kind in STATEMENTS else None
            if stand_in is not None:
                if after.lineno != stand_in:
                    return Difference(before.lineno, None, f"the {_name(before)} is not there")
                if type(after) is ast.Pass:
                    continue
                children = BLOCKS_OF[kind]
            else:
                if type(after) in _WRAPPED:
                    after = self._unwrap(before, after)
                if type(after) is not kind:
                    line = getattr(before, "lineno", line)
                    return Difference(line, self._site, f"{_name(before)} became {_name(after)}")
                if kind not in _FIELDS:
                    if before != after or repr(before) != repr(after):  # 0.0 == -0.0
                        return Difference(line, self._site, f"{before!r} became {after!r}")
                    continue
                texts, children = _FIELDS[kind]
                if kind in _POSITIONED:
                    line = before.lineno
                if texts is not None and texts(before) != texts(after):
                    what = f"{texts(before)!r} became {texts(after)!r}"
                    return Difference(line, self._site, what)
            for name in children:
                first, second = getattr(before, name), getattr(after, name)
                if first is second:  # None, interned strings, operators
                    continue
                kind = type(first)
                if kind is type(second):
                    if kind is list:
                        if len(first) != len(second):
                            line = getattr(first[0], "lineno", line) if first else line
                            what = f"{len(first)} nodes became {len(second)} in a list"
                            return Difference(line, self._site, what)
                        pairs += zip(first, second, strict=True)
                        continue
                    if kind is ast.Name and first.id == second.id and first.lineno == second.lineno:
                        continue
                pairs.append((first, second))
        missing = self.sites.keys() - self.seen
        if missing:
            site = self.sites[min(missing)]
            return Difference(site.line, site.id, "its wrapper is missing")
        return None

    def _claim(self, number: ast.expr, node: ast.AST, *kinds: str) -> bool:
        """Whether ``number`` is a site at ``node`` of one of these kinds; note it as seen."""
        identifier = number.value if isinstance(number, ast.Constant) else None
        site = self.sites.get(identifier) if type(identifier) is int else None
        if site is None:
            return False
        self._site = site.id
        if site.id in self.seen or site.kind not in kinds or _span(node) != site.span:
            return False
        self.seen.add(site.id)
        self._site = None
        return True

    def _unwrap(self, before: ast.AST, after: ast.AST) -> ast.AST:
        """The node without its wrapper; the node itself when it has none that belongs here."""
        if isinstance(after, ast.Call):
            wrapped = isinstance(after.func, ast.Call)
            return self._unwrap_call(before, after) if wrapped else after
        if isinstance(after, ast.Subscript):
            base = self._argument("subscript", after.value, before, "subscript", "store")
            if base is not None:
                after.value = base
        elif isinstance(after, ast.For | ast.comprehension):
            iterable = getattr(before, "iter", None)
            if isinstance(iterable, ast.AST):
                inner = self._argument("iterate", after.iter, iterable, "iterate")
                if inner is not None:
                    after.iter = inner
        elif isinstance(after, ast.Assign) and isinstance(before, ast.AugAssign):
            return self._unwrap_inplace(before, after)
        return after

    def _argument(
        self, wrapper: str, call: ast.expr, node: ast.AST, *kinds: str
    ) -> ast.expr | None:
        """What ``wrapper(site, argument)`` holds, if ``call`` is that for a site at ``node``."""
        if not isinstance(call, ast.Call) or len(call.args) != 2 or call.keywords:
            return None
        if wrapper_of(call.func) != wrapper or not self._claim(call.args[0], node, *kinds):
            return None
        return call.args[1]

    def _unwrap_call(self, before: ast.AST, after: ast.Call) -> ast.AST:
        kind = _KINDS.get(type(before))
        callee = None if kind is None else self._argument("site", after.func, before, kind)
        if callee is None:
            return after
        if kind == "call":
            after.func = callee
            return after
        arguments = after.args
        if after.keywords or len(arguments) != (1 if kind == "unary" else 2):
            return after
        name = operator_of(callee)
        inner: ast.AST | None = None
        if kind == "binary" and name in BINARY_BY_NAME:
            inner = ast.BinOp(arguments[0], BINARY_BY_NAME[name](), arguments[1])
        elif kind == "compare" and name in COMPARE_BY_NAME:
            inner = ast.Compare(arguments[0], [COMPARE_BY_NAME[name]()], [arguments[1]])
        elif kind == "unary" and name in UNARY_BY_NAME:
            inner = ast.UnaryOp(UNARY_BY_NAME[name](), arguments[0])
        elif kind == "attribute" and isinstance(callee, ast.Name) and callee.id == "getattr":
            attribute = arguments[1]
            if isinstance(attribute, ast.Constant) and isinstance(attribute.value, str):
                inner = ast.Attribute(arguments[0], attribute.value, ast.Load())
        return after if inner is None else _at(after, inner)

    def _unwrap_inplace(self, before: ast.AugAssign, after: ast.Assign) -> ast.AST:
        """``x = site(i, iadd)(x, y)`` as ``x += y``; ``x`` is a name or an attribute of one."""
        call, targets = after.value, after.targets
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Call):
            return after
        if len(call.args) != 2 or call.keywords or len(targets) != 1:
            return after
        callee = self._argument("site", call.func, before, "augmented")
        name = None if callee is None else operator_of(callee)
        target, read = targets[0], call.args[0]
        if name not in INPLACE_BY_NAME or not isinstance(target, ast.Name | ast.Attribute):
            return after
        if ast.dump(read) != ast.dump(target).replace("ctx=Store()", "ctx=Load()"):
            return after
        return _at(after, ast.AugAssign(target, INPLACE_BY_NAME[name](), call.args[1]))


def _take_import(original: list[ast.stmt], rewritten: list[ast.stmt]) -> frozenset[str]:
    """Take the inserted import out of a module, if nothing runs before it; the names it brings."""
    for index, node in enumerate(rewritten):
        names = inserted_names(node)
        if names:
            del rewritten[index]
            return names
        before = original[index] if index < len(original) else node
        if not is_future_import(before) and not _is_text(before):
            break
    return frozenset()


def _is_text(node: ast.stmt) -> bool:
    """Whether a statement is a text that does nothing, as a docstring is."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _fields(kind: type[ast.AST]) -> tuple[Callable[[Any], object] | None, tuple[str, ...]]:
    """What must be equal: a reader of lines and names, and the fields with nodes and values."""
    names = [name for name in (*kind._fields, *kind._attributes) if name in _TEXTS]
    if "end_lineno" in names and BLOCKS_OF.get(kind):
        names.remove("end_lineno")  # it ends where its last statement does
    children = tuple(name for name in kind._fields if name not in _TEXTS and name != "ctx")
    return operator.attrgetter(*names) if names else None, children


def _all_kinds(kind: type[ast.AST]) -> Iterator[type[ast.AST]]:
    yield kind
    for special in kind.__subclasses__():
        yield from _all_kinds(special)


def _name(node: object) -> str:
    return type(node).__name__


_TEXTS = frozenset({"id", "attr", "arg", "lineno", "end_lineno"})
_FIELDS = {kind: _fields(kind) for kind in _all_kinds(ast.AST)}
_POSITIONED = frozenset(kind for kind in _FIELDS if "lineno" in kind._attributes)
_WRAPPED = frozenset({ast.Call, ast.Subscript, ast.For, ast.comprehension, ast.Assign})
_KINDS: dict[type, str] = {
    ast.Call: "call",
    ast.BinOp: "binary",
    ast.Compare: "compare",
    ast.UnaryOp: "unary",
    ast.Attribute: "attribute",
}


def _span(node: Any) -> tuple[int, int, int, int]:
    return (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset)


def _at(place: Any, node: Any) -> ast.AST:
    """The node with the lines of another."""
    node.lineno, node.end_lineno = place.lineno, place.end_lineno
    return node  # type: ignore[no-any-return]
