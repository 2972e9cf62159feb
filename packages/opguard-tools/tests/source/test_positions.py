"""Tests of the mapping from running code to expressions, on the interpreter that runs them."""

from __future__ import annotations

from typing import Any

import pytest

from opguard.tools.source.observe import ObservedSpan, SpanFlag
from opguard.tools.source.positions import BEYOND_END, NO_FORM, PositionMap
from opguard.tools.source.rewrite import ParsedSource

Found = tuple[str, str]


def found(source: str, span: ObservedSpan) -> list[Found]:
    parsed = ParsedSource.of(source.encode())
    expressions, _ = PositionMap(parsed.index.expressions, parsed.source.line_count).find(span)
    text = parsed.source.text
    return [(item.kind, text[slice(*parsed.source.span(item.node))]) for item in expressions]


def run(source: str, tracked: Any, flags: int = SpanFlag.INNERMOST) -> dict[str, list[Found]]:
    """Run a program and map the position of each operation of its values."""
    values, log = tracked(["t", "u"])
    exec(compile(source, "m.py", "exec"), values)
    places = {}
    for operation, position, qualname in log:
        place = [-1 if part is None else part for part in position]
        places[operation] = found(source, ObservedSpan("m.py", qualname, *place, flags=flags))
    return places


@pytest.mark.parametrize(
    ("source", "operation", "expected"),
    [
        ("x = t(1)\n", "t.call(1)", [("call", "t(1)")]),
        ("x = (t\n)(1)\n", "t.call(1)", [("call", "(t\n)(1)")]),
        ("x = (t\n . foo\n (1))\n", "t.get_foo()", [("attribute", "t\n . foo")]),
        (
            "x = (t\n  .foo(1)\n  .bar(2))\n",
            "t.get_foo().call(1)",
            [("call", "t\n  .foo(1)")],
        ),
        (
            "x = (t\n  .foo(1)\n  .bar(2))\n",
            "t.get_foo().call(1).get_bar().call(2)",
            [("call", "t\n  .foo(1)\n  .bar(2)")],
        ),
        ("x = t.\\\n foo\n", "t.get_foo()", [("attribute", "t.\\\n foo")]),
        ("x = t.foo\n", "t.get_foo()", [("attribute", "t.foo")]),
        ("x = t + u\n", "t.add(u)", [("binary", "t + u")]),
        ("x = (t *\n u)\n", "t.mul(u)", [("binary", "t *\n u")]),
        ("x = 1 + t\n", "t.radd(1)", [("binary", "1 + t")]),
        ("x = t < u\n", "t.lt(u)", [("compare", "t < u")]),
        ("if t < u: pass\n", "t.lt(u)", [("compare", "t < u")]),
        ("x = -t\n", "t.neg()", [("unary", "-t")]),
        ("x = not t\n", "t.bool()", [("unary", "not t")]),
        ("x = t[u]\n", "t.getitem(u)", [("subscript", "t[u]")]),
        ("t[0] = u\n", "t.setitem(0, u)", [("store", "t[0]")]),
        ("del t[0]\n", "t.delitem(0)", [("store", "t[0]")]),
        ("t += u\n", "t.iadd(u)", [("augmented", "t += u")]),
        ("t[0] += u\n", "t.getitem(0)", [("store", "t[0]")]),
        ("t[0] += u\n", "t.getitem(0).iadd(u)", [("store", "t[0]")]),
        ("t[0] += u\n", "t.setitem(0, t.getitem(0).iadd(u))", [("store", "t[0]")]),
        ("t.a += u\n", "t.get_a()", [("augmented", "t.a += u")]),
        ("(t\n .a) += u\n", "t.get_a()", [("augmented", "(t\n .a) += u")]),
        ("t[str()] += u\n", "t.getitem('')", [("store", "t[str()]")]),
        ("t[str()] += u\n", "t.getitem('').iadd(u)", [("store", "t[str()]")]),
        ("for x in t:\n  pass\n", "t.iter()", [("iterate", "t")]),
        ("x = [y for y in t]\n", "t.iter()", [("iterate", "t")]),
        ("x = {y: 1 for y in t}\n", "t.iter()", [("iterate", "t")]),
        ("x = list(y for y in t)\n", "t.iter()", [("iterate", "t")]),
        ("x = [y + u for y in [t]]\n", "t.add(u)", [("binary", "y + u")]),
        ("x = list(y + u for y in [t])\n", "t.add(u)", [("binary", "y + u")]),
        ("x = (lambda: t + u)()\n", "t.add(u)", [("binary", "t + u")]),
        ("@t(1)\ndef f(): pass\n", "t.call(1)", [("call", "t(1)")]),
        ("with open(t(1)('x') and __file__) as f: pass\n", "t.call(1)", [("call", "t(1)")]),
        ("def f():\n\tx = 'é', t(1)\nf()\n", "t.call(1)", [("call", "t(1)")]),
        ("match t.foo:\n  case _ if t(1): pass\n", "t.call(1)", [("call", "t(1)")]),
    ],
)
def test_position_leads_to_its_expression(
    source: str, operation: str, expected: list[Found], tracked: Any
) -> None:
    source = source.replace("__file__", repr(__file__))
    assert run(source, tracked)[operation] == expected


def test_call_that_is_iterated_over_gives_what_its_position_can_mean(tracked: Any) -> None:
    seen = run("for x in t(1): pass\n", tracked)
    assert ("call", "t(1)") in seen["t.call(1)"]
    assert ("iterate", "t(1)") in seen["t.call(1).iter()"]


def test_all_iterables_of_a_nested_comprehension_are_found(tracked: Any) -> None:
    seen = run("x = [z for y in t for z in y]\n", tracked)
    assert ("iterate", "t") in seen["t.iter()"]
    assert ("iterate", "y") in seen["t.iter().iter()"]


@pytest.mark.parametrize(
    ("source", "operation"),
    [
        ("x, = t\n", "t.iter()"),
        ("if t: pass\n", "t.bool()"),
        ("assert t\n", "t.bool()"),
        ("t.a = u\n", "t.set_a(u)"),
        ("x = u in t\n", "t.contains(u)"),
        ("x = t < u < t\n", "t.lt(u)"),
    ],
)
def test_operation_without_a_wrapped_form_leads_nowhere(
    source: str, operation: str, tracked: Any
) -> None:
    assert run(source, tracked)[operation] == []


def test_reason_is_given_when_nothing_can_be_wrapped() -> None:
    parsed = ParsedSource.of(b"x = a < b < c\nif x: pass\n")
    positions = PositionMap(parsed.index.expressions, parsed.source.line_count)

    def reason(line: int, col: int, end_col: int) -> str:
        return positions.find(ObservedSpan("m.py", "<module>", line, line, col, end_col))[1]

    assert "chained comparison" in reason(1, 4, 13)
    assert reason(2, 0, 10) == NO_FORM
    assert reason(9, 0, 1) == BEYOND_END
    assert reason(-1, -1, -1) == "the code object carries no position"


def test_frame_around_a_comprehension_is_no_iteration() -> None:
    source = "def f(t):\n  return [g(x) for x in t]\n"
    position = (2, 2, 9, 26)
    own_frame = ObservedSpan("m.py", "f.<locals>.<listcomp>", *position)
    assert found(source, own_frame) == [("iterate", "t")]
    innermost = ObservedSpan("m.py", "f", *position, flags=SpanFlag.INNERMOST)
    assert found(source, innermost) == [("iterate", "t")]
    generator = "def f(t):\n  return sum(g(x) for x in t)\n"
    assert found(generator, ObservedSpan("m.py", "f", 2, 2, 12, 29)) == []


def test_position_without_columns_takes_everything_on_its_line() -> None:
    source = "x = f(a + b,\n  c)\ny = g(x)[0].T\n"
    assert found(source, ObservedSpan("m.py", "<module>", 1, 2, -1, -1)) == [
        ("call", "f(a + b,\n  c)"),
        ("binary", "a + b"),
    ]
    assert found(source, ObservedSpan("m.py", "<module>", 3, 3, -1, -1)) == [
        ("subscript", "g(x)[0]"),
        ("call", "g(x)"),
    ]
