"""Every expression of a module that could be recorded, with its place and what forbids it.

The walk knows the context that a node alone does not show: the statement and function around it,
whether an f-string, an annotation or a compiled function contains it. Both the selection and the
rewriting use it, so an expression that must not be wrapped is never wrapped.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from opguard.tools.source import refusals
from opguard.tools.source.expression import Expression
from opguard.tools.source.jit import Definition, compiled_definitions
from opguard.tools.source.kinds import (
    COMPREHENSION_FRAMES,
    FRAME_NAMES,
    LEAVES,
    STATEMENTS,
    Comprehension,
)
from opguard.tools.source.names import imported_names
from opguard.tools.source.plan import Kind
from opguard.tools.source.text import LineSet, SourceText, Span, node_span

_Visitor = Callable[["ExpressionIndex", Any], None]
_VISITORS: dict[type[ast.AST], _Visitor] = {}


def _visits(*kinds: type[ast.AST]) -> Callable[[_Visitor], _Visitor]:
    """Register a method of ``ExpressionIndex`` for kinds of nodes."""

    def register(visitor: _Visitor) -> _Visitor:
        _VISITORS.update(dict.fromkeys(kinds, visitor))
        return visitor

    return register


class ExpressionIndex:
    """Walk of one module.

    Args:
        source: Its text.
        tree: Its tree.
        spans: Only expressions at one of these are looked for; by default all are.

    Attributes:
        expressions: All of them, by statement and then in source order.
        compiled: Definitions excluded because a compiler reads their source, and its name.
    """

    def __init__(
        self, source: SourceText, tree: ast.Module, spans: frozenset[Span] | None = None
    ) -> None:
        imports = imported_names(tree)
        self.expressions: list[Expression] = []
        self.compiled: dict[Definition, str] = compiled_definitions(source, tree, imports)
        self._rules = refusals.Rules.of_module(source, tree, imports)
        self._spans = spans
        self._lines: LineSet | None = None
        if spans is not None:
            known = {span[0] for span in spans if span[0] <= source.line_count}
            self._lines = LineSet(known, source.line_count)
        self._statement = (1, 0)
        self._prefix = ""
        self._qualname = "<module>"
        self._class: str | None = None
        self._blocked: str | None = None
        self._format: ast.expr | None = None
        self._visit(tree)
        self._number()

    def _number(self) -> None:
        """Order expressions by statement and position, and number them in each statement."""
        self.expressions.sort(key=lambda found: (found.statement, found.order))
        statement, ordinal = (0, 0), 0
        for found in self.expressions:
            if found.statement != statement:
                statement, ordinal = found.statement, 0
            found.ordinal = ordinal
            ordinal += 1

    @contextmanager
    def _within(self, **state: object) -> Iterator[None]:
        before = {name: getattr(self, name) for name in state}
        for name, value in state.items():
            setattr(self, name, value)
        yield
        for name, value in before.items():
            setattr(self, name, value)

    def _add(
        self, node: ast.expr | ast.AugAssign, kind: Kind, owner: ast.AST, refusal: str | None
    ) -> None:
        span = anchor = node_span(node)
        if self._spans is not None and span not in self._spans:
            return
        if self._format is not None:
            refusal = refusals.inside_format(kind) or refusal
            anchor = node_span(self._format) if COMPREHENSION_FRAMES else span
        order = (anchor[0], anchor[2], -anchor[1], -anchor[3])
        self.expressions.append(
            Expression(
                node,
                kind,
                span,
                self._statement,
                self._qualname,
                owner,
                self._blocked or refusal,
                order=order,
            )
        )

    def _visit(self, node: ast.AST) -> None:
        """Visit a node; a statement becomes the place of what it contains."""
        kind = type(node)
        if kind in LEAVES:
            return
        if kind in STATEMENTS:
            if self._lines is not None and not self._lines.touches(node):  # type: ignore[arg-type]
                return
            outer = self._statement
            self._statement = (node.lineno, node.col_offset)  # type: ignore[attr-defined]
            _VISITORS.get(kind, ExpressionIndex._children)(self, node)
            self._statement = outer
        else:
            _VISITORS.get(kind, ExpressionIndex._children)(self, node)

    def _children(self, node: ast.AST) -> None:
        for name in node._fields:
            value = getattr(node, name)
            kind = type(value)
            if kind is list:
                for item in value:
                    if type(item) not in LEAVES:
                        self._visit(item)
            elif kind not in LEAVES:
                self._visit(value)

    # Expressions that can be recorded.

    @_visits(ast.Call)
    def _visit_call(self, node: ast.Call) -> None:
        self._add(node, "call", node, self._rules.call(node))
        self._children(node)

    @_visits(ast.BinOp)
    def _visit_bin_op(self, node: ast.BinOp) -> None:
        self._add(node, "binary", node, None)
        self._children(node)

    @_visits(ast.UnaryOp)
    def _visit_unary_op(self, node: ast.UnaryOp) -> None:
        self._add(node, "unary", node, None)
        self._children(node)

    @_visits(ast.Compare)
    def _visit_compare(self, node: ast.Compare) -> None:
        self._add(node, "compare", node, refusals.compare(node))
        self._children(node)

    @_visits(ast.Subscript)
    def _visit_subscript(self, node: ast.Subscript) -> None:
        self._add(node, "subscript" if isinstance(node.ctx, ast.Load) else "store", node, None)
        self._children(node)

    @_visits(ast.Attribute)
    def _visit_attribute(self, node: ast.Attribute) -> None:
        if isinstance(node.ctx, ast.Load):
            self._add(node, "attribute", node, self._rules.attribute(node, self._class))
        self._children(node)

    @_visits(ast.AugAssign)
    def _visit_aug_assign(self, node: ast.AugAssign) -> None:
        self._add(node, "augmented", node, refusals.augmented(node))
        self._children(node)

    @_visits(ast.For)
    def _visit_for(self, node: ast.For) -> None:
        self._add(node.iter, "iterate", node, None)
        self._children(node)

    @_visits(ast.AsyncFor)
    def _visit_async_for(self, node: ast.AsyncFor) -> None:
        self._add(node.iter, "iterate", node, refusals.ASYNCHRONOUS)
        self._children(node)

    # Constructs that change where or whether an expression can be recorded.

    @_visits(ast.JoinedStr)
    def _visit_joined_str(self, node: ast.JoinedStr) -> None:
        with self._within(_format=self._format or node):
            self._children(node)

    @_visits(ast.FormattedValue)
    def _visit_formatted_value(self, node: ast.FormattedValue) -> None:
        blocked = self._blocked or self._rules.self_documenting(node)
        with self._within(_blocked=blocked):
            self._visit(node.value)
        if node.format_spec is not None:
            self._visit(node.format_spec)

    @_visits(*(kind for kind in ast.expr.__subclasses__() if kind.__name__ == "TemplateStr"))
    def _visit_template_str(self, node: ast.AST) -> None:
        with self._within(_blocked=self._blocked or refusals.TEMPLATE):
            self._children(node)

    @_visits(ast.AnnAssign)
    def _visit_ann_assign(self, node: ast.AnnAssign) -> None:
        self._visit(node.target)
        self._annotation(node.annotation)
        if node.value is not None:
            self._visit(node.value)

    @_visits(ast.arg)
    def _visit_arg(self, node: ast.arg) -> None:
        self._annotation(node.annotation)

    @_visits(ast.match_case)
    def _visit_match_case(self, node: ast.match_case) -> None:
        if node.guard is not None:  # a pattern is no expression: nothing in it is called
            self._visit(node.guard)
        self._body(node.body)

    def _annotation(self, node: ast.expr | None) -> None:
        if node is None:
            return
        if self._rules.annotation is None:
            self._visit(node)
        else:
            with self._within(_blocked=self._blocked or self._rules.annotation):
                self._visit(node)

    # Code objects.

    def _body(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self._visit(statement)

    @contextmanager
    def _scope(self, name: str, *, is_class: bool = False) -> Iterator[None]:
        qualname = self._prefix + name
        prefix = qualname + ("." if is_class else ".<locals>.")
        class_name = name if is_class else self._class
        with self._within(_qualname=qualname, _prefix=prefix, _class=class_name):
            yield

    def _definition(self, node: Definition, header: Callable[[], None]) -> None:
        compiler = self.compiled.get(node)
        blocked = refusals.compiled(node, compiler) if compiler is not None else None
        with self._within(_blocked=self._blocked or blocked):
            for decorator in node.decorator_list:
                self._visit(decorator)
            for parameter in getattr(node, "type_params", ()):
                self._visit(parameter)
            header()
            with self._scope(node.name, is_class=isinstance(node, ast.ClassDef)):
                self._body(node.body)

    @_visits(ast.FunctionDef, ast.AsyncFunctionDef)
    def _visit_function_def(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        def header() -> None:
            self._visit(node.args)
            self._annotation(node.returns)

        self._definition(node, header)

    @_visits(ast.ClassDef)
    def _visit_class_def(self, node: ast.ClassDef) -> None:
        def header() -> None:
            for argument in (*node.bases, *node.keywords):
                self._visit(argument)

        self._definition(node, header)

    @_visits(ast.Lambda)
    def _visit_lambda(self, node: ast.Lambda) -> None:
        self._visit(node.args)
        with self._scope("<lambda>"):
            self._visit(node.body)

    @_visits(*FRAME_NAMES)
    def _comprehension(self, node: Comprehension) -> None:
        first = node.generators[0]
        refusal = refusals.ASYNCHRONOUS if first.is_async else None
        self._add(first.iter, "iterate", node, refusal)
        self._visit(first.iter)
        if COMPREHENSION_FRAMES or isinstance(node, ast.GeneratorExp):
            with self._scope(FRAME_NAMES[type(node)]):
                self._comprehension_body(node)
        else:
            self._comprehension_body(node)

    def _comprehension_body(self, node: Comprehension) -> None:
        results = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
        for result in results:
            self._visit(result)
        for number, generator in enumerate(node.generators):
            if number:
                refusal = refusals.ASYNCHRONOUS if generator.is_async else None
                self._add(generator.iter, "iterate", node, refusal)
                self._visit(generator.iter)
            self._visit(generator.target)
            for condition in generator.ifs:
                self._visit(condition)
