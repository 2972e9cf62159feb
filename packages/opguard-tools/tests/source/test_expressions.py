"""Tests of the index of expressions."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator
from types import CodeType

import pytest

from opguard.tools.source.rewrite import ParsedSource

SOURCE = textwrap.dedent(
    """
    a(1)
    class C(b()):
        c(1)
        def m(self, x=d(1)):
            e(1)
            def inner(): return f(1)
            g = lambda y=h(1): i(1)
            return [j(1) for k in l(1) if m(1)], (n(1) for o in p(1))
        async def coroutine(self):
            return {q(1): r(1) for s in t(1) for u in v(1)}
        w = [x(1) for y in z(1)]
    @aa(1)
    def decorated(): bb(1)
    """
)


def codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


def test_qualified_names_are_those_of_the_code_that_calls() -> None:
    index = ParsedSource.of(SOURCE.encode()).index
    ours: dict[tuple[int | None, ...], str] = {
        found.span: found.qualname for found in index.expressions if found.kind == "call"
    }
    theirs: dict[tuple[int | None, ...], set[str]] = {}
    for code in codes(compile(SOURCE, "m.py", "exec")):
        for position in code.co_positions():
            if position in ours:
                theirs.setdefault(position, set()).add(code.co_qualname)
    assert theirs.keys() == ours.keys()
    # From 3.13 on a generator's frame shows the iterable too, which the frame around evaluates.
    assert {span for span, name in ours.items() if name not in theirs[span]} == set()


def test_ordinals_count_everything_in_source_order_whether_wrappable_or_not() -> None:
    source = "x = f(a < b < c, d[0].T) + locals()\nfor i in g(1): h()\n"
    index = ParsedSource.of(source.encode()).index
    assert [(found.statement, found.ordinal, found.kind) for found in index.expressions] == [
        ((1, 0), 0, "binary"),
        ((1, 0), 1, "call"),
        ((1, 0), 2, "compare"),
        ((1, 0), 3, "attribute"),
        ((1, 0), 4, "subscript"),
        ((1, 0), 5, "call"),
        ((2, 0), 0, "iterate"),
        ((2, 0), 1, "call"),
        ((2, 15), 0, "call"),
    ]


def test_statement_of_an_expression_is_the_innermost_one() -> None:
    source = (
        "@a(1)\ndef f(x=b(1)):\n  if c(1): d(1)\n  elif e(1): pass\n"
        "  try: pass\n  except g(1): pass\n  with h(1) as i[0]: pass\n"
    )
    index = ParsedSource.of(source.encode()).index
    assert [(found.span[0], found.statement) for found in index.expressions] == [
        (1, (2, 0)),
        (2, (2, 0)),
        (3, (3, 2)),
        (3, (3, 11)),
        (4, (4, 2)),
        (6, (5, 2)),
        (7, (7, 2)),
        (7, (7, 2)),
    ]


def test_patterns_are_no_expressions() -> None:
    source = "match a:\n  case -1 | b.C(x=1) | {d.E: -2}: pass\n"
    assert ParsedSource.of(source.encode()).index.expressions == []


def test_annotations_count_only_where_they_are_evaluated() -> None:
    source = "x: f(1) = g(2)\ndef h(a: f(3)) -> f(4): pass\n"
    usable = [
        found.span[2]
        for found in ParsedSource.of(source.encode()).index.expressions
        if found.refusal is None
    ]
    assert len(usable) == 4
    kept_as_text = "from __future__ import annotations\n" + source
    index = ParsedSource.of(kept_as_text.encode()).index
    assert [found.refusal is None for found in index.expressions] == [False, True, False, False]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="syntax of Python 3.12")
def test_type_parameters_are_walked() -> None:
    source = "def f[T: g(1)](x): pass\nclass C[T: g(2)]: pass\ntype X = g(3)\n"
    index = ParsedSource.of(source.encode()).index
    assert [found.span[0] for found in index.expressions] == [1, 2, 3]
