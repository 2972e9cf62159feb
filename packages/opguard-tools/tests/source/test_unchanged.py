"""Tests of leaving out what did not change: what stays, and that nothing gets past the proof."""

from __future__ import annotations

import ast
import random
from collections.abc import Callable

import pytest

from opguard.tools.source import RewriteError, Site
from opguard.tools.source.rewrite import ParsedSource, rewrite, verify
from opguard.tools.source.spelling import inserted_names
from opguard.tools.source.unchanged import without_unchanged

AllSites = Callable[..., list[Site]]


def shortened(before: str, after: str) -> str:
    return without_unchanged(ast.parse(before), before.split("\n"), after.split("\n")).text


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("a = 1\nX\n", "pass\nY\n"),
        ("a = 1  # why\nX\n", "pass\nY\n"),
        ("a = (\n 1)\nX\n", "pass\n\nY\n"),
        ("a = '''\nif'''\nX\n", "pass\n\nY\n"),
        ("é = 'é'\nX\n", "pass\nY\n"),
        ("\x0cif a:\n \x0c b\nX\n", "\x0cpass\n\nY\n"),
        ("a; b\nX\n", "a; b\nY\n"),
        ("a;\nX\n", "a;\nY\n"),
        ("a \\\n\nX\n", "a \\\n\nY\n"),
        ("a; X\nb\n", "a; Y\npass\n"),
        ("if a: b\nX\n", "pass\nY\n"),
        ("if a:\n\tb\n\tX\n", "if _:\n\tpass\n\tY\n"),
        ("if a:\n X\nelif b:\n c\nelse:\n d\n", "if _:\n Y\nelif b:\n pass\nelse:\n pass\n"),
        ("if a:\n b\nelif c:\n X\n", "if _:\n pass\nelif c:\n Y\n"),
        ("if (\n a):\n # why\n X\n", "if _:\n\n\n Y\n"),
        ("if a: \\\n X\n", "if a: \\\n Y\n"),
        ("if a: b\nelse: X\n", "if a: b\nelse: Y\n"),
        ("if a:\n b; X\n", "if _:\n b; Y\n"),
        ("if X:\n b\n", "if Y:\n pass\n"),
        ("for a in b:\n c\nelse:\n X\n", "while _:\n pass\nelse:\n Y\n"),
        ("while a:\n X\n", "while _:\n Y\n"),
        ("with a as b, c:\n X\n", "with _:\n Y\n"),
        ("async def f():\n async with a: b\n async for c in d:\n  X\n",
         "with _:\n pass\n while _:\n  Y\n"),
        ("class A(b):\n 'doc'\n @a\n @b\n def f(self,\n  c): X\n",
         "with _:\n pass\n @a\n @b\n def f(self,\n  c): Y\n"),
        ("@a(\n 1)\n# why\n@b\nclass A:\n X\n", "with _:\n\n\n\n\n Y\n"),
        ("@a\ndef f(): pass\nX\n", "pass\n\nY\n"),
        ("@(\n a)\ndef f(): pass\nX\n", "@(\n a)\ndef f(): pass\nY\n"),
        ("class A:\n @(\n  a)\n def f():\n  X\n", "class A:\n @(\n  a)\n def f():\n  Y\n"),
        ("try:\n a\nexcept b as c:\n X\nfinally:\n d\n",
         "try:\n pass\nexcept b as c:\n Y\nfinally:\n pass\n"),
        ("match a:\n case b if c:\n  d\n  X\n", "match a:\n case b if c:\n  pass\n  Y\n"),
    ],
)  # fmt: skip
def test_unchanged_statements_and_headers_are_left_out(before: str, expected: str) -> None:
    assert shortened(before, before.replace("X", "Y")) == expected


MODULE = """\
from __future__ import annotations
import sys, os  # modules
a = b = t(1) + u; c = t(2)
d = '''
if x:
''' + t[
  0]; e = [
  1]
if a: t(3)
elif b: u(4)
else: pass
@t.decorate
@(
  u(5))
class A(B, metaclass=t(6)):
    '''doc'''
    x: t[int] = u[0]

    def f(self, x: t(7) = u(8), *y) -> v(9):  # why
        if x:
            return self.g(x)[1:2]
        elif t(y) \\
            and u:
            x += t(10); del y[0]
        else:
            # nothing
            pass
        for x in t.items(), y:
            while x < t: break
        else:
            with t(11) as z, \\
                    u(12):
                yield z
        try:
            raise E(t(13)) from None
        except (E, F) as error: print(error.x)
        except:
            pass
        finally:
            x = lambda: -t(14)

\tasync def g(self, s):
\t\tasync with s.lock:
\t\t\tasync for x in s: await x(15)
\t\tmatch s:
\t\t\tcase [x, *_] if t(16):
\t\t\t\tpass
\t\t\tcase A(x=1): x = f"{t(17)!r:>{u[1]}} {v}"
\t\treturn [y(18) for y in s if y]
if t(19): \\
    u(20)
z = t(
    21,  # one
) if u else \\
    v.w
""".replace("\t", "    ")
PIECES = (
    *("\n", "\n\n", " ", "    ", "\t", "\x0c", "\\\n", ";", ":", ",", ".", "(", ")", "[", "]"),
    *("'", "'''", '"""', "#", "@", "=", "==", "+", "-", "not ", "*", "x", "0", "if x else y"),
    *("pass", "pass\n", "if _:", "with _:", "while _:", "else:", "else: pass\n", "elif x:"),
    *("except: pass\n", "finally: pass\n", "case _:", "async ", "await ", "lambda: "),
    *("def f(): ", "class C: ", "return "),
)


def tampered(text: str, chance: random.Random) -> str:
    """The text with a piece put in, taken out, doubled, or moved."""
    lines = text.splitlines(keepends=True)
    start = chance.randrange(len(text))
    end = start + chance.choice((0, 0, 1, 2, 4, 9))
    number = chance.randrange(len(lines))
    way = chance.randrange(5)
    if way == 0:
        return text[:start] + chance.choice(PIECES) + text[end:]
    if way == 1:
        start = text.rfind("\n", 0, start) + 1  # where statements begin
        return text[:start] + chance.choice(PIECES) + text[start:]
    if way == 2:
        lines[number] = chance.choice(lines)
    elif way == 3:
        other = chance.randrange(len(lines))
        lines[number], lines[other] = lines[other], lines[number]
    else:
        lines[number] = " " * chance.choice((0, 1, 4, 8, 12)) + lines[number].lstrip(" ")
    return "".join(lines)


def meaning(text: str) -> str | None:
    """Everything that a text is parsed to, but for columns and inserted imports."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    tree.body = [node for node in tree.body if not inserted_names(node)]
    for node in ast.walk(tree):
        if hasattr(node, "col_offset"):
            node.col_offset = node.end_col_offset = 0
    return ast.dump(tree, include_attributes=True)


def test_whatever_passes_means_what_the_rewriting_made(all_sites: AllSites) -> None:
    chance = random.Random(7)
    sites = all_sites(MODULE.encode())
    passed = 0
    for _ in range(1500):
        parsed = ParsedSource.of(MODULE.encode())
        chosen = chance.sample(sites, chance.choice((1, 2, 5, 20)))
        text = rewrite(parsed, chosen)
        changed = tampered(text, chance)
        try:
            verify(parsed, changed, chosen)
        except RewriteError:
            continue
        passed += 1
        assert meaning(changed) == meaning(text)
    assert passed > 100
