"""Tests of instrumented text: what it looks like, and that it does the same."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import io
import sys
import textwrap
from collections.abc import Callable
from typing import Any

import pytest

from opguard.tools.source import RewriteError, Site, UnusableSourceError, instrument
from opguard.tools.source.rewrite import ParsedSource, wrappable

AllSites = Callable[..., list[Site]]

IMPORT = "from opguard.core._site import site as __opguard_site__"


@pytest.mark.parametrize(
    ("source", "kinds", "expected"),
    [
        ("f(a, *b, **c)", "call", "__opguard_site__(1, f)(a, *b, **c)"),
        ("f(x for x in y)", "call", "__opguard_site__(1, f)(x for x in y)"),
        ("a.b(1).c(2)", "call", "__opguard_site__(1, __opguard_site__(2, a.b)(1).c)(2)"),
        ("f(1)(2)", "call", "__opguard_site__(1, __opguard_site__(2, f)(1))(2)"),
        ("( f ) (1)", "call", "__opguard_site__(1, ( f )) (1)"),
        ("((f)\n # (\n)(\n1)", "call", None),
        ("(f # (\n (1))", "call", "(__opguard_site__(1, f) # (\n (1))"),
        ("(lambda: 1)()", "call", "__opguard_site__(1, (lambda: 1))()"),
        ("(g := f)(1)", "call", "__opguard_site__(1, (g := f))(1)"),
        ("print(1)if(f)(2)else(f)(3)", "call", None),
    ],
)
def test_call_is_wrapped_around_its_callee(
    source: str, kinds: str, expected: str | None, all_sites: AllSites
) -> None:
    sites = all_sites(source.encode(), only=lambda found: found.kind == kinds)
    text = instrument(source.encode(), sites).decode()
    assert text.startswith(IMPORT)
    if expected is not None:
        assert text == f"{IMPORT}; {expected}"


@pytest.mark.parametrize(
    ("kind", "source", "expected"),
    [
        ("binary", "x = a * b", "x = __opguard_site__(1, __opguard_operator__.mul)(a , b)"),
        ("binary", "x = (a)*(b)", "x = __opguard_site__(1, __opguard_operator__.mul)((a),(b))"),
        ("compare", "x = a != b", "x = __opguard_site__(1, __opguard_operator__.ne)(a , b)"),
        ("unary", "x = not a", "x = __opguard_site__(1, __opguard_operator__.not_)( a)"),
        ("unary", "x = -a", "x = __opguard_site__(1, __opguard_operator__.neg)(a)"),
        (
            "augmented",
            "x += a, b",
            "x = __opguard_site__(1, __opguard_operator__.iadd)(x, ( a, b))",
        ),
        (
            "augmented",
            "x.y @= a ; z = 1",
            "x.y = __opguard_site__(1, __opguard_operator__.imatmul)(x.y, ( a)) ; z = 1",
        ),
        ("store", "x[0, -1:] @= a", "__opguard_sub__(1, x)[0, -1:] @= a"),
        ("subscript", "x = a[i]", "x = __opguard_sub__(1, a)[i]"),
        ("store", "a [i], b = 1, 2", "__opguard_sub__(1, a) [i], b = 1, 2"),
        ("store", "del (a)[i]", "del __opguard_sub__(1, (a))[i]"),
        ("store", "a[i:j]: int = 1", "__opguard_sub__(1, a)[i:j]: int = 1"),
        ("attribute", "x = a . T", "x = __opguard_site__(1, getattr)(a ,  'T')"),
        ("attribute", "x = (a. # why\n T)", "x = (__opguard_site__(1, getattr)(a,  # why\n 'T'))"),
        ("iterate", "for x in a, b: pass", "for x in __opguard_iter__(1, (a, b)): pass"),
        ("iterate", "[x for x in a]", "[x for x in __opguard_iter__(1, (a))]"),
    ],
)
def test_other_forms_become_calls(
    kind: str, source: str, expected: str, all_sites: AllSites
) -> None:
    content = f"'doc'\n{source}".encode()
    sites = all_sites(content, only=lambda found: found.kind == kind)
    assert len(sites) == 1
    assert instrument(content, sites).decode().partition("\n")[2] == expected


@pytest.mark.parametrize(
    "source",
    [
        "x = t(1)(u)[u].a.b(2).c",
        "x = t + u * t - (u) / (t) @ u // t % u ** t << u >> t & u | t ^ u",
        "x = -t, +t, ~t, not t",
        "x = t < u, t <= u, t > u, t >= u, t == u, t != u",
        "x = t < u < t",
        "x = [t, u, t] == [u]",
        "x = t\nx += u\nx -= u\nx *= u; x @= u\nx /= (u)\nx //= u,\nx %= u\nx **= u",
        "x = t; x |= u; x &= u; x ^= u; x <<= u; x >>= u",
        "(t) += u",
        "t.a += u",
        "(t\n.a) += (u\n)",
        "if 1: t[0] *= u; t(1)",
        "t[-1, 'k'] += u",
        "t[u] -= t",
        "t[t(1)] += u",
        "t()[u()] += u()",
        "i = 0\nt[(i := i + 1)] += t[i]",
        "t[u] = u[t]; del t[u], u[0]\nt[1:2, ..., u] = 1",
        "t[u], (x, t[1]) = u, (t, u)",
        "for t[0] in [u]: x = t(1)\nelse: u(2)",
        "for x in t, u: x(1)",
        "for x in t: x(1)",
        "x = [y(1) for y in t if y for z in y(2)]\nx = {y: z for y in t for z in u}",
        "x = list(y + u for y in t)",
        "x = {y(1) for y in [t]}",
        "if t(1): u(2)",
        "while t(1): u(2); break",
        "if(t)+u: pass\nelif not(t): pass",
        "x = ''if(t)(1)else(u)(2)",
        "def f():\n  return(t)(1)\nf()",
        "def f():\n\tx = yield\n\tyield x(1)\ng = f()\nnext(g)\ng.send(t)",
        "def f():\n  x = (yield)(u)\ng = f()\nnext(g)\nlist([g.send(t)] if 0 else [])",
        "f = lambda x=t(1), *a: x(u)\nf()\nf(u)",
        "(x := t(1))(u)\nprint(y := t)",
        "t(*[u, t], **{'k': u}, z=t(2))",
        "@t\n@u(1)\nclass A: pass",
        "@(lambda f: f)\ndef f(x: t(1) = t(2)) -> u(3): pass\nf()",
        "class A:\n  a = t(1)\n  __p = t.q\n  def f(self, x): return self.__g(x)\n"
        "  def __g(self, x): return x + u\nA().f(t)",
        "class A:\n  def f(self): return t\nclass B(A):\n"
        "  def f(self): return super().f()(1) + super(B, self).f()\nB().f()",
        "class A(metaclass=type(str('A'), (type,), {})):\n  __x = 1\n  x = [t for i in range(2)]",
        "match t(1):\n  case int() | -1 | 1+2j: pass\n  case _ if u(2): t(3)",
        "try:\n  t(1)\n  raise ValueError(u(2))\nexcept (ValueError, KeyError) as e: u(3)\n"
        "else: pass\nfinally: t(4)",
        "x = t if u(1) else t(2)\nx = t(1) or u(2)\nx = t and u(1)",
        "assert t(1), u(2)",
        "x = f'{t(1)} {u + t!r:>{str(10)}} {t=} {u(1) = }'",
        "x = f'''{\nt(1)\n}''' 'a' f'{u[0]}'",
        "x = (t # comment (\n\t. foo # [\n (u)\n [0] # )\n)",
        "x = (t\\\n.a\\\n(1)\\\n+\\\nu)",
        "x = (not\\\n t)",
        "x = t[u][0][t(1):u(2):3]",
        "x: t(1) = u(2)\ny: t[u]\nt[0]: u(1) = 3",
        "x = 1 .real + 2..imag + t",
        "x = (t).ﬁ",
        "global_ = t\ndef f():\n  global global_\n  global_ += u\nf()",
        "def f():\n  x = t\n  def g():\n    nonlocal x\n    x += u(1)\n  g()\n  return x\nf()",
        "async def f(x):\n  return x(1)\nasync def g():\n  y = await f(t) + await f(u)\n"
        "  return [await f(i) for i in [t]]\nrun(g())",
        "async def a():\n  yield t\n  yield u\nasync def g():\n  async for x in a(): x(1)\n"
        "  return [y async for x in a() for y in [x(2)]]\nrun(g())",
        "import contextlib\nwith contextlib.suppress(KeyError, t(1)) as x, "
        "contextlib.nullcontext(u) as t[0]: u(2)",
        "x = locals()['t'](1), eval('t(2)'), vars() and dir() and globals()['u']",
        "import sys, inspect\nx = sys._getframe().f_code.co_name, inspect.stack()[0].function",
        "try:\n  t.a.b(1, 2)(1 / 0)\nexcept ZeroDivisionError: u(1)",
        "x = (yield_ := t)(u) ; del x",
        "x = {**{t(1): u(2)}}, [*[t(3)]], {t(1).a}",
        "x = t(\n  1, # one\n  u(2),\n)",
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_instrumented_program_does_the_same_in_the_same_order(
    source: str, end: str, all_sites: AllSites, recorder: Any, tracked: Any
) -> None:
    content = source.replace("\n", end).encode()
    sites = all_sites(content)
    changed = instrument(content, sites)

    def outcome(program: bytes) -> tuple[Any, ...]:
        values, log = tracked(["t", "u"])
        shown = io.StringIO()
        # Values are compared by text: each run has its own.
        with contextlib.redirect_stdout(shown):
            exec(compile(program, "m.py", "exec"), {**values, "run": asyncio.run, "__name__": "m"})
        return [entry[0] for entry in log], shown.getvalue()

    expected = outcome(content)
    assert recorder.seen == []
    assert outcome(changed) == expected
    assert set(recorder.seen) <= {site.id for site in sites}
    assert changed.count(end.encode()) == content.count(end.encode())


def test_every_site_that_runs_is_recorded(all_sites: AllSites, recorder: Any, tracked: Any) -> None:
    source = b"x = t(1) + u[0].T\nx += -t\nt.a += 1\nt[0] = x < u\nfor y in t: y(2)\n"
    sites = all_sites(source, only=lambda found: found.qualname == "<module>")
    values, _ = tracked(["t", "u"])
    exec(compile(instrument(source, sites), "m.py", "exec"), values)
    assert sorted(set(recorder.seen)) == [site.id for site in sites]


def test_private_names_in_classes_still_work(
    all_sites: AllSites, recorder: Any, tracked: Any
) -> None:
    source = textwrap.dedent(
        """
        class A:
            def __init__(self): self.__total = t
            def add(self, x):
                self.__total += x
                return self.__total
        x = A().add(u)
        """
    ).encode()
    values, log = tracked(["t", "u"])
    exec(compile(instrument(source, all_sites(source)), "m.py", "exec"), values)
    assert [entry[0] for entry in log] == ["t.iadd(u)"]


@pytest.mark.parametrize(
    "content",
    [
        "# -*- coding: latin-1 -*-\nx = f('é') + f(\"ü\")  # ñ\n".encode("latin-1"),
        codecs.BOM_UTF8 + "x = f('é') + f('日本')\n".encode(),
        codecs.BOM_UTF8 + b'"""doc"""\r\nx = f(1)\r\n',
        "\x0cx = 'a\x0c\x1c\u2028\x85b', f(1)\n\x0c\nif x:\n\t\x0c\n\tf(2)\n".encode(),
        b"# a\r# coding: cp1252\rx = f('\x80')\rdef g():\r\treturn f(x)\r",
        "# coding: shift_jis\nx = 'ソ表', f('能')\n".encode("shift_jis"),
    ],
)
def test_encoding_mark_and_line_ends_stay(content: bytes, all_sites: AllSites) -> None:
    sites = all_sites(content, only=lambda found: found.kind == "call")
    changed = instrument(content, sites)
    values: dict[str, Any] = {}
    exec(compile(content, "m.py", "exec"), values | {"f": lambda x: str(x)}, values)
    for end in (b"\n", b"\r"):
        assert changed.count(end) == content.count(end)
    assert changed.startswith(content[:1])
    for site in sites:
        assert b"__opguard_site__(%d, f)" % site.id in changed
    kept = changed
    for site in sites:
        kept = kept.replace(b"__opguard_site__(%d, f)" % site.id, b"f")
    kept = kept.replace(b"; " + IMPORT.encode(), b"").replace(IMPORT.encode() + b"; ", b"")
    assert kept == content


def test_attribute_written_in_another_normal_form_is_read_by_its_real_name(
    all_sites: AllSites,
) -> None:
    changed = instrument("x = a.ﬁ\n".encode(), all_sites("x = a.ﬁ\n".encode())).decode()
    assert changed.endswith("getattr)(a, 'fi')\n")


def test_no_site_leaves_the_bytes_alone() -> None:
    assert instrument(b"not python at all (", []) == b"not python at all ("
    assert instrument(b"", []) == b""


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("class A:\n  def f(self): return super()\n", "frame"),
        ("x = locals()\n", "frame"),
        ("import sys as s\nx = s._getframe(0)\n", "frame"),
        ("from inspect import currentframe as c\nx = c()\n", "frame"),
        ("x = a < b < c\n", "chained"),
        ("x = a in b\n", "membership"),
        ("x = a is b\n", "identity"),
        ("f().a += 1\n", "repeat"),
        ("a.b += (a := 1)\n", "binds names"),
        ("a[i] += 1\n", "its subscript records"),
        ("a.b.c += 1\n", "repeat"),
        ("async def f():\n  async for x in a: pass\n", "asynchronous"),
        ("def getattr(*a): pass\nx = a.b\n", "rebinds"),
        ("def \\\n getattr(*a): pass\nx = a.b\n", "rebinds"),
        ("from x import getattr\nx = a.b\n", "rebinds"),
        ("for getattr in a: pass\nx = a.b\n", "rebinds"),
        ("x = [a.b for getattr in a]\ny = a.b\n", "rebinds"),
        ("def f(getattr): return a.b\n", "rebinds"),
        ("class A:\n  x = a.__b\n", "mangles"),
        ("class A:\n  def f(self): return super().x\n", "super"),
        ("from __future__ import annotations\nx: f(1) = 2\n", "annotations"),
        ("x = f'{a.b}'\n", "f-string"),
        ("x = f'{f(1)=}'\n", "f-string"),
    ],
)
def test_expression_that_must_stay_is_refused_with_its_reason(source: str, reason: str) -> None:
    parsed = ParsedSource.of(source.encode())
    refused = [found for found in parsed.index.expressions if found.refusal is not None]
    assert any(reason in str(found.refusal) for found in refused)
    line, end_line, col, end_col = refused[-1].span
    site = Site(
        id=7,
        file="m.py",
        line=line,
        end_line=end_line,
        col=col,
        end_col=end_col,
        qualname="",
        kind=refused[-1].kind,
        callee="f",
        text="",
        statement=(1, 0),
        ordinal=0,
        depth="call",
        observed=True,
    )
    with pytest.raises(RewriteError) as caught:
        instrument(source.encode(), [site])
    assert caught.value.details["file"] == "m.py"
    assert caught.value.details["site"] == 7


def test_torch_stack_is_not_taken_for_the_stack_of_frames(all_sites: AllSites) -> None:
    source = b"import torch\nx = torch.stack([a])\n"
    assert [site.kind for site in all_sites(source)] == ["call", "attribute"]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="f-strings have no usable positions")
def test_calls_in_f_strings_are_wrapped_where_positions_are_right(all_sites: AllSites) -> None:
    source = b"x = f'{f(1):>{g(2)}} {h(3)=} {i(4)!r}'\n"
    changed = instrument(source, all_sites(source)).decode()
    assert changed.endswith(
        "x = f'{__opguard_site__(1, f)(1):>{__opguard_site__(2, g)(2)}} {h(3)=} "
        "{__opguard_site__(3, i)(4)!r}'\n"
    )


def test_site_that_the_source_does_not_have_is_named(all_sites: AllSites) -> None:
    (site,) = all_sites(b"x = f(1)\n")
    with pytest.raises(RewriteError) as caught:
        instrument(b"x =  f(1)\n", [site])
    assert caught.value.details["site"] == site.id
    assert "m.py:1" in str(caught.value)


def test_instrumented_source_is_not_instrumented_again(all_sites: AllSites) -> None:
    sites = all_sites(b"x = f(1)\n")
    once = instrument(b"x = f(1)\n", sites)
    with pytest.raises(UnusableSourceError) as caught:
        instrument(once, sites)
    assert caught.value.details["reason"] == "instrumented already"


def test_sites_that_cannot_be_wrapped_are_dropped_and_the_others_kept(
    all_sites: AllSites,
) -> None:
    # Each wrapper adds a parenthesis around its callee; the parser allows 200 of them.
    depth = 150
    source = f"a = f(1)\nx = {'g(' * depth}1{')' * depth}\nb = f(2)\n".encode()
    sites = all_sites(source)
    parsed = ParsedSource.of(source)
    moved = [site.model_copy(update={"col": 99}) if site.line == 1 else site for site in sites]
    kept, dropped = wrappable(parsed, moved)
    assert kept == [site for site in moved if site.line != 1]
    assert list(dropped) == [site.id for site in moved if site.line == 1]
    assert "the file changed" in dropped[moved[0].id]


def test_source_nested_too_deeply_is_unusable() -> None:
    with pytest.raises(UnusableSourceError):
        ParsedSource.of(b"x = " + b"-" * 5000 + b"1\n")


def test_a_call_of_getattr_does_not_rebind_it(all_sites: AllSites) -> None:
    source = b"x = getattr(a, 'b') + a.c\n"
    assert [site.kind for site in all_sites(source)].count("attribute") == 1


def test_a_site_alone_is_wrapped_as_among_all_others(all_sites: AllSites) -> None:
    source = (
        b"import a\n"
        b"@a.f(1)\ndef g(x=a.f(2)):\n    if a.f(3):\n        y = a.f(4)\n"
        b"    elif a.f(5): z = [a.f(6) for i in a.f(7)]\n    return lambda: a.f(8)\n"
        b"class C(a.f(9)):\n    with a.f(10) as k, a.f(\n        11): pass\n"
    )
    calls = all_sites(source, only=lambda found: found.kind == "call")
    assert len(calls) == 11
    every = instrument(source, calls).splitlines()
    for site in calls:
        alone = instrument(source, [site]).splitlines()
        wrapped = f"__opguard_site__({site.id}, a.f)(".encode()
        (number,) = (number for number, line in enumerate(alone) if wrapped in line)
        assert wrapped in every[number]
