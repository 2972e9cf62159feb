"""From positions in code objects to expressions.

The compiler does not always record an expression's own position. Known differences, each seen on
the interpreters named:

- an attribute or method call that spans lines is placed at the attribute's name (all);
- a ``for`` statement's iterator carries the whole statement's position, a comprehension's the
  whole comprehension's (3.11, 3.12), later both carry the iterable's;
- the target of an augmented assignment is placed apart from its operator (all);
- columns are absent where the interpreter was told to leave them out (all).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from opguard.tools.source.expression import Expression
from opguard.tools.source.kinds import COMPREHENSION_FRAMES, FRAME_NAMES, Comprehension
from opguard.tools.source.observe import ObservedSpan, SpanFlag
from opguard.tools.source.text import Span, node_span

NO_FORM = (
    "the operation belongs to no call, operator, subscript, attribute or loop: "
    "it is a truth test, an unpacking, formatting or the like"
)
BEYOND_END = "the position is beyond the end of the file, which changed since discovery"


class PositionMap:
    """Expressions of one module by the positions that running code reports for them."""

    def __init__(self, expressions: list[Expression], line_count: int) -> None:
        """Index expressions by every position that may stand for them."""
        self._line_count = line_count
        self._by_position: dict[Span, list[Expression]] = {}
        self._by_line: dict[int, list[Expression]] = {}
        recorded_by = _augmented_and_targets(expressions)
        for expression in expressions:
            target = recorded_by.get(expression, expression)
            for position in _reported_positions(expression):
                found = self._by_position.setdefault(position, [])
                if target not in found:
                    found.append(target)
            if expression.kind != "attribute":
                for line in {position[0] for position in _reported_positions(expression)}:
                    self._by_line.setdefault(line, []).append(target)

    def find(self, span: ObservedSpan) -> tuple[list[Expression], str]:
        """Expressions that an observed position may stand for.

        Where the position cannot tell two expressions apart (a call that is also iterated over),
        both are returned: a callsite too many records nothing wrong, one too few hides a call.

        Returns:
            Expressions that can be wrapped; when there are none, the reason why not.
        """
        if span.line < 1:
            return [], "the code object carries no position"
        if max(span.line, span.end_line) > self._line_count:
            return [], BEYOND_END
        if span.col < 0 or span.end_col < 0:
            found = self._by_line.get(span.line, [])
        else:
            found = [
                expression
                for expression in self._by_position.get(span.position, ())
                if not _is_comprehension_call(expression, span)
            ]
        usable = [expression for expression in found if expression.refusal is None]
        if usable:
            return list(dict.fromkeys(usable)), ""
        reasons = [expression.refusal for expression in found if expression.refusal is not None]
        return [], reasons[0] if reasons else NO_FORM


def _reported_positions(expression: Expression) -> Iterator[Span]:
    """Positions that code objects of the supported interpreters give to an expression."""
    yield expression.span
    node, owner = expression.node, expression.owner
    if expression.kind == "iterate":
        if isinstance(owner, ast.For | ast.AsyncFor | ast.expr):
            yield node_span(owner)
        return
    if isinstance(node, ast.AugAssign):
        yield node_span(node.target)
        node = node.target
    if isinstance(node, ast.Attribute):
        yield from _at_attribute_name(node, node_span(node))
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        yield from _at_attribute_name(node.func, node_span(node))


def _at_attribute_name(attribute: ast.Attribute, whole: Span) -> Iterator[Span]:
    """Position from the attribute's name on, when the name is on a later line than the start."""
    name_line, name_end = attribute.end_lineno, attribute.end_col_offset
    if name_line is not None and name_end is not None and name_line != whole[0]:
        yield (name_line, whole[1], name_end - len(attribute.attr), whole[3])


def _augmented_and_targets(expressions: list[Expression]) -> dict[Expression, Expression]:
    """Which of an augmented assignment and its subscript target records both.

    The assignment does where it can be wrapped, else the subscript: its wrapped base sees the
    load and the store, and evaluates the index once.
    """
    recorded_by: dict[Expression, Expression] = {}
    stores = {id(found.node): found for found in expressions if found.kind == "store"}
    for found in expressions:
        if isinstance(found.node, ast.AugAssign):
            store = stores.get(id(found.node.target))
            if store is not None and found.refusal is None:
                recorded_by[store] = found
            elif store is not None:
                recorded_by[found] = store
    return recorded_by


def _is_comprehension_call(expression: Expression, span: ObservedSpan) -> bool:
    """Whether a position is that of running a whole comprehension, not of its iterator.

    Before 3.12 the frame around a comprehension calls it; as an enclosing position only, this
    says nothing about the iterable.
    """
    if expression.kind != "iterate" or span.position == expression.span:
        return False
    if not isinstance(expression.owner, Comprehension):
        return False
    inlined = not COMPREHENSION_FRAMES and not isinstance(expression.owner, ast.GeneratorExp)
    inside = span.qualname.endswith(tuple(FRAME_NAMES.values())) or inlined
    return not inside and not span.flags & SpanFlag.INNERMOST
