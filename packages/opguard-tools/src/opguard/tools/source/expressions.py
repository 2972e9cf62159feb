"""Every expression of a module that could be recorded, with its place and what forbids it.

The walk knows the context that a node alone does not show: the statement and function around it,
whether an f-string, an annotation or a compiled function contains it. Both the selection and the
rewriting use it, so an expression that must not be wrapped is never wrapped.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from opguard.tools.source import refusals
from opguard.tools.source.jit import Definition, compiled_definitions
from opguard.tools.source.names import imported_names
from opguard.tools.source.plan import Kind
from opguard.tools.source.text import SourceText, Span, node_span

Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp
_FRAME_NAMES: dict[type[ast.AST], str] = {
    ast.ListComp: "<listcomp>",
    ast.SetComp: "<setcomp>",
    ast.DictComp: "<dictcomp>",
    ast.GeneratorExp: "<genexpr>",
}
_COMPREHENSION_FRAMES = sys.version_info < (3, 12)
"""Before 3.12 every comprehension runs in a frame of its own; later only generators do."""


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


class ExpressionIndex(ast.NodeVisitor):
    """Walk of one module.

    Attributes:
        expressions: All of them, by statement and then in source order.
        compiled: Definitions excluded because a compiler reads their source, and its name.
    """

    def __init__(self, source: SourceText, tree: ast.Module) -> None:
        """Index a parsed module."""
        imports = imported_names(tree)
        self.expressions: list[Expression] = []
        self.compiled: dict[Definition, str] = compiled_definitions(tree, imports)
        self._rules = refusals.Rules.of_module(source, tree, imports)
        self._statement = (1, 0)
        self._prefix = ""
        self._qualname = "<module>"
        self._class: str | None = None
        self._blocked: str | None = None
        self._format: ast.expr | None = None
        self.visit(tree)
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
        span = node_span(node)
        anchor = span
        if self._format is not None:
            refusal = refusals.inside_format(kind) or refusal
            anchor = node_span(self._format) if _COMPREHENSION_FRAMES else span
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

    def visit(self, node: ast.AST) -> None:
        """Visit a node; a statement becomes the place of what it contains."""
        if not isinstance(node, ast.stmt):
            super().visit(node)
            return
        outer = self._statement
        self._statement = (node.lineno, node.col_offset)
        super().visit(node)
        self._statement = outer

    # Expressions that can be recorded.

    def visit_Call(self, node: ast.Call) -> None:  # noqa: N802, D102
        self._add(node, "call", node, self._rules.call(node))
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:  # noqa: N802, D102
        self._add(node, "binary", node, None)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:  # noqa: N802, D102
        self._add(node, "unary", node, None)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:  # noqa: N802, D102
        self._add(node, "compare", node, refusals.compare(node))
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:  # noqa: N802, D102
        self._add(node, "subscript" if isinstance(node.ctx, ast.Load) else "store", node, None)
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:  # noqa: N802, D102
        if isinstance(node.ctx, ast.Load):
            self._add(node, "attribute", node, self._rules.attribute(node, self._class))
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:  # noqa: N802, D102
        self._add(node, "augmented", node, refusals.augmented(node))
        self.generic_visit(node)

    def visit_For(self, node: ast.For) -> None:  # noqa: N802, D102
        self._add(node.iter, "iterate", node, None)
        self.generic_visit(node)

    def visit_AsyncFor(self, node: ast.AsyncFor) -> None:  # noqa: N802, D102
        self._add(node.iter, "iterate", node, refusals.ASYNCHRONOUS)
        self.generic_visit(node)

    # Constructs that change where or whether an expression can be recorded.

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:  # noqa: N802, D102
        with self._within(_format=self._format or node):
            self.generic_visit(node)

    def visit_FormattedValue(self, node: ast.FormattedValue) -> None:  # noqa: N802, D102
        blocked = self._blocked or self._rules.self_documenting(node)
        with self._within(_blocked=blocked):
            self.visit(node.value)
        if node.format_spec is not None:
            self.visit(node.format_spec)

    def visit_TemplateStr(self, node: ast.AST) -> None:  # noqa: N802, D102
        with self._within(_blocked=self._blocked or refusals.TEMPLATE):
            self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:  # noqa: N802, D102
        self.visit(node.target)
        self._annotation(node.annotation)
        if node.value is not None:
            self.visit(node.value)

    def visit_arg(self, node: ast.arg) -> None:  # noqa: D102
        self._annotation(node.annotation)

    def visit_match_case(self, node: ast.match_case) -> None:  # noqa: D102
        if node.guard is not None:  # a pattern is no expression: nothing in it is called
            self.visit(node.guard)
        self._body(node.body)

    def _annotation(self, node: ast.expr | None) -> None:
        if node is not None:
            with self._within(_blocked=self._blocked or self._rules.annotation):
                self.visit(node)

    # Code objects.

    def _body(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self.visit(statement)

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
                self.visit(decorator)
            for parameter in getattr(node, "type_params", ()):
                self.visit(parameter)
            header()
            with self._scope(node.name, is_class=isinstance(node, ast.ClassDef)):
                self._body(node.body)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:  # noqa: N802, D102
        def header() -> None:
            self.visit(node.args)
            self._annotation(node.returns)

        self._definition(node, header)

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_ClassDef(self, node: ast.ClassDef) -> None:  # noqa: N802, D102
        def header() -> None:
            for argument in (*node.bases, *node.keywords):
                self.visit(argument)

        self._definition(node, header)

    def visit_Lambda(self, node: ast.Lambda) -> None:  # noqa: N802, D102
        self.visit(node.args)
        with self._scope("<lambda>"):
            self.visit(node.body)

    def _comprehension(self, node: Comprehension) -> None:
        first = node.generators[0]
        refusal = refusals.ASYNCHRONOUS if first.is_async else None
        self._add(first.iter, "iterate", node, refusal)
        self.visit(first.iter)
        if _COMPREHENSION_FRAMES or isinstance(node, ast.GeneratorExp):
            with self._scope(_FRAME_NAMES[type(node)]):
                self._comprehension_body(node)
        else:
            self._comprehension_body(node)

    def _comprehension_body(self, node: Comprehension) -> None:
        results = (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,)
        for result in results:
            self.visit(result)
        for number, generator in enumerate(node.generators):
            if number:
                refusal = refusals.ASYNCHRONOUS if generator.is_async else None
                self._add(generator.iter, "iterate", node, refusal)
                self.visit(generator.iter)
            self.visit(generator.target)
            for condition in generator.ifs:
                self.visit(condition)

    visit_ListComp = _comprehension  # noqa: N815
    visit_SetComp = _comprehension  # noqa: N815
    visit_DictComp = _comprehension  # noqa: N815
    visit_GeneratorExp = _comprehension  # noqa: N815
