"""Small programs, one per form that Python's grammar allows on a line.

Each runs with ``V`` (a value whose every operation is noted with the line that asked for it),
``note`` (a function of the workload that does the same) and ``a``, ``b``, ``c``: three values.
"""

PROGRAMS = {
    "calls": """
note(a(1)(2).x(3)[b(4)](*[b, c], **{'k': a}, z=note(5)))
note(note(note(1), note(2)), note(3)); note(4)
note(
    a(  # a comment )
        b(1)
    ),
    c,
)
""",
    "operators": """
note(-a + b * c // a % b ** -c @ a << b >> c & a | b ^ ~c, not a, +b)
note(a < b, a <= b, a == b, a != b, a > b, a >= b, a < b < c, a in b, a is b)
note(a if b else c, a and b or c, not a == b, - - a, (a)+(b))
""",
    "lambdas and defaults": """
f = lambda x=a(1), *y, k=b(2), **z: (x(3), k(4), y, z)
note(f(), f(b, c, k=c), (lambda: a(1))(), (lambda x: x(2))(b))
def g(x=a(5), /, y=b[6], *, z=-c): return x(1), y(2), z(3)
note(g(), g(z=a))
""",
    "comprehensions": """
note([x(1) for x in a], {x(1) for x in [b]}, {x: y for x in a for y in x(2)})
note(list(x + y for x in a if x for y in [b, c] if y(3)))
note([[y for y in x] for x in [a, b]], [x for x in [y(1) for y in a]])
lazy = (x(1) for x in a)
note('made')
note(next(lazy), sum((0 for _ in a), 0), max([1 for i in range(3)]))
class K:
    here = [a, b]
    made = [x(1) for x in here]
    last = [i for i in range(3)][-1]
note(K.made, K.last)
try:
    (x for x in 5)
except TypeError as error:
    note(str(error))
""",
    "walrus": """
note((x := a(1))(x), [y := b(2), y ** 2], [z := i for i in [1, 2]], z)
if (n := c(3)) and (m := n(4)): note(n, m)
while (n := 0): pass
a[(k := 1)] += b[k]
note(a[k := 2], k)
""",
    "f-strings": """
w = 6
note(f'{a(1)} {b[0]!r:>{w}} {c.x} {a + b}', f"{a(1) = }{w=}", f'{w:=+5}', f'{w!s:^{w + 2}}')
note(f'''{
    a(1)
}''' 'tail' f'{b(2)}', rf'\\{w}', f'{{{w}}}', f'{ {1: 2}[1] }', f'{(lambda x: x)(w)}')
note(f'{[x(1) for x in [a]]}', f'é{a(1)}ü{b(2)}', f'{w!=7}', f'{w if w > 2 else 0}')
""",
    "decorators and classes": """
def deco(arg):
    note('deco', arg)
    return lambda f: f
class Tool:
    add = staticmethod(deco)
@deco(a(1))
@Tool.add(b(2))
@(lambda f: f)
def f(x: a(3) = b(4)) -> c(5): return x(6)
note(f())
@deco(a)
class Base:
    x = a(1)
    __secret = b(2)
    y = [x, x]
    def __init_subclass__(cls, **kw): note(kw)
    def __init__(self, v): self.__v = v; self.__v += self.__secret; self.w = self.__v
    def get(self): return self.__v(1)
    @property
    def p(self): return self.__get()
    def __get(self): return self.w(7)
class Derived(Base, k=a(9)):
    def __init__(self, v):
        super().__init__(v(1))
        super(Derived, self).__init__(v)
        self.name = __class__.__name__
    def get(self): return super().get()(2)
d = Derived(c)
note(d.get(), d.p, d.name, type(d).__name__, isinstance(d, Base))
""",
    "statements on one line": """
if a: x = b(1); note(x)
elif b: pass
else: note(c)
for x in [a, b]: note(x(1)); continue
while a: note(b(1)); break
else: note(9)
with a(1) as x, b(2) as c[0]: note(x)
try: note(a(1))
except ValueError: pass
finally: note(b)
def f(): return(a)(1)
note(f()); del f
assert a(1), b(2)
""",
    "augmented": """
x = a; x += b; x -= c; x *= b(1),; x @= [b][0]; x //= b; x %= b; x **= b; x |= b; x <<= b
a.x += b; a.x.y -= b(1); a[0] += b; a[b(1)][c] *= c; a[1:2, ..., b] /= (b)
(a).x |= b; a['k'] @= b; a(1)[2] += c; a[(b)] ^= c
def f():
    global g
    g += a
    y = b
    def h():
        nonlocal y
        y += c(1)
        return y
    return h()
g = a
note(f(), g)
class K:
    n = a
    n += b
note(K.n)
items = [1, 2]
items += (3,); items[0] += 5; items *= 2
note(items)
def late():
    n += 1
try: late()
except UnboundLocalError as error: note(str(error))
""",
    "targets": """
a[0], b.x, *rest = c[1], a(2), 3, b(4)
(a[b(1)]) = [c.y, (a.z)] = b(2), c(3)
for a[0] in [1]: pass
for b.x, a[c(1)] in [(1, 2)]: pass
del a[b(1)], (b.x), [c[2]]
a[1:2], a[::b(3)] = 1, 2
x: a(1) = b(2)
c[0]: a(3) = 4
y: a[b(5)]
note(rest, x)
""",
    "subscripts": """
note(a[b, c], a[1:b(2):c], a[...][b][c], a[*[b, c]], a[(b)], a[-1], 'text'[1], [1, 2][0])
note({'k': a}['k'](1), (b)[0], list[int], dict[str, list[int]], a[b][c](1)[2])
""",
    "match": """
class P:
    __match_args__ = ('x', 'y')
    def __init__(self, x, y): self.x, self.y = x, y
class E:
    one = 1
for v in [P(1, a), {'k': b, 'r': 2}, [1, c, 3], 1, 'text', None]:
    match v:
        case P(1, y=q) if q(1): note('P', q)
        case {'k': q, **rest}: note('map', q, rest)
        case [1, q, *more] | (q, *more): note('seq', q, more)
        case E.one | -1: note('one')
        case str() as s: note(s)
        case _: note('other')
match a(1), b(2):
    case x, y if x == y: note(x, y)
""",
    "exceptions": """
five = 5
def f(x):
    return x(1) / (1 // 0)
try:
    f(a)
except (ValueError, ZeroDivisionError) as error: lines(error)
else: note('no')
finally: note(b(1))
try:
    try: {}[a(1)]
    except KeyError as error: raise ValueError(b(2)) from error
except ValueError as error: lines(error); lines(error.__cause__)
try:
    note(
        a(1),
        five(b(2)),
    )
except TypeError as error: lines(error); note(str(error))
try: f()
except TypeError as error: note(str(error))
try: None.missing
except AttributeError as error: note(str(error), error.name)
try: 1 + a.nothing_at_all.real / ''
except TypeError as error: note(type(error).__name__)
try: raise ExceptionGroup('g', [ValueError(1), KeyError(2)])
except* ValueError as error: note(a(error.exceptions[0].args[0]))
except* KeyError: note(b(1))
for x in iter([a, b]):
    try: continue
    finally: note(x(1))
try:
    for x in 5: pass
except TypeError as error: lines(error); note(str(error))
try:
    for x in map(lambda n: 1 // n, [1, 0]): note(x)
except ZeroDivisionError as error: note(error.__traceback__.tb_lineno)
""",
    "generators": """
def g(x):
    y = yield x(1)
    z = (yield)(2)
    w = yield from (lambda: (yield 7))()
    x[(yield 3)] = b
    a.x = -(yield 4) + (yield 5)
    note((yield), [(yield 6)(1)])
    return x
i = g(c)
note(next(i))
try: [note(i.send(a)) for _ in range(9)]
except StopIteration as stop: note(stop.value)
def closing():
    try:
        for x in [a, b]: yield x(1)
    finally: note('closed')
for x in closing(): break
i = closing(); next(i); i.close()
i = closing(); next(i); del i
it = iter([a, b, c])
for x in it: break
note(list(it))
def stops():
    for x in [a]: yield next(iter([]))
try: list(stops())
except RuntimeError as error: note(str(error))
""",
    "asynchronous": """
class Ctx:
    async def __aenter__(self): return a
    async def __aexit__(self, *e): note('exit')
async def one(x): return x(1)
async def many():
    for x in [a, b]: yield x(2)
async def main():
    x = await one(a) + -await one(b)
    async with Ctx() as y, Ctx() as z: note(y(1))
    async for v in many(): note(v)
    note([v(3) async for v in many() if v], {await one(v) for v in [c]}, (await one(a))[0])
    note([[w async for w in many()] for _ in range(2)], await one(b) if a else c)
    lazy = (v async for v in many())
    note(await anext(lazy))
    x += await one(c)
    a[0] = await one(b)
    return [w async for v in many() for w in [v(5)]]
import asyncio
note(asyncio.run(main()))
""",
    "scopes": """
x = a
def outer():
    x = b
    class K:
        y = x(1)
        def f(self): return x(2), __class__
    def inner():
        nonlocal x
        x = c(3)
        def deep(): return x(4)
        return deep()
    return inner(), K.y, K().f()[0], x
note(outer(), sorted(outer.__code__.co_varnames), locals() is globals())
def f():
    here = a(1)
    return sorted(locals()), [k for k in sorted(vars())], eval('here(2)')
note(f())
exec('note(a(1))')
import sys
def who(): return sys._getframe(1).f_code.co_name, sys._getframe(1).f_lineno
def caller(): return who()
note(caller(), who())
""",
    "literals": """
note([*[a(1)], *b], {**{'k': a(2)}, 'z': b(3)}, {a(4).x: b}, (c(5),), *[1], (), 1 .real, 2..imag)
note('%s %d' % (b.x and 'q', 3), b'x' + b'y', 'a' 'b'[0], ..., 1_000 + 0x1f, 3j * 2, -1 ** 2)
""",
    "continuation lines": """
x = a \\
    (1) \\
    . y \\
    + b[
        0
    ]
note(x, \\
     -\\
     c)
if a(1) \\
        and b: note(c
                    (2))
note(a .
     x (1) [
    2])
""",
    "annotations": """
from __future__ import annotations
def f(x: a(1), *y: b[2]) -> c.z: return x(3)
v: a(4) = b(5)
class K:
    w: a[6]
    z: int = c(7)
note(f(a), f.__annotations__, v, K.__annotations__)
""",
    "futures and docstring": '''"""A docstring."""
from __future__ import annotations, generator_stop  ; note(__doc__)
note(a(1))
''',
    "begins with a definition": """def f(x):
    x += a(1)
    x[0] -= x.y
    return [v(2) for v in x if -v] + [f'{x}']
note(f(b))
""",
    "begins with a decorated class": """@note
class K:
    x = a(1)
note(K.x + b)
""",
    "begins with one line": "for x in [a, b]: note(x(1))\n",
    "docstring and definition": """'doc'
def f(): 'doc of f'; return a(1)
note(f(), f.__doc__, __doc__)
""",
    "introspection": """
import functools, operator, collections, enum, typing
P = collections.namedtuple('P', 'x y')
E = enum.Enum('E', 'one two')
N = typing.NewType('N', int)
note(P(a, b(1)).x, E.one.value, P.__module__, E.__module__, functools.reduce(operator.add, [1, 2]))
note(functools.partial(a, 1)(2), getattr(a, 'x')(3), operator.attrgetter('x')(b), callable(a))
""",
}

SINCE_312 = {
    "nested quotes": """
d = {'k': a}
note(f'{d['k'](1)} {f'{b(2)}'} {'\\n'.join(['x', 'y'])}', f'{
    c(3)  # a comment
}', f'{d['k'].x:{5 + 5}}', f'{[f'{x(1)}' for x in [a]]}')
""",
    "type parameters": """
class K[T: a(1), *Ts, **P]:
    x: T = b(2)
    def f[U: (int, str)](self, y: U = c(3)) -> U: return y(4)
def g[T](x: T) -> list[T]: return [x(5)]
type A[T] = dict[T, list[T]]
type B = a(6)
note(K[int, str]().f(), g(b), A[int], K.__type_params__[0].__bound__, B.__value__)
""",
    "inlined comprehensions": """
def f():
    x = a
    out = [x(1) for x in [b, c]], x
    return out, [locals() for _ in [1]][0].keys() >= {'x'}
note(f())
class K:
    y = [i for i in [1, 2]]
    z = [[i + j for i in [1]] for j in [2]]
note(K.y, K.z, [x for x in [lambda: x for x in [1, 2]]][0]())
""",
}

SINCE_313 = {
    "defaults of type parameters": """
class K[T = a(1)]: x = b(2)
type A[T = list[int]] = dict[str, T]
note(K.__type_params__[0].__default__, A.__type_params__[0].__default__)
""",
}

ENCODED = {
    "latin-1": "# -*- coding: latin-1 -*-\nnote('é', a('ü'), [x('ñ') for x in b])\n".encode(
        "latin-1"
    ),
    "byte order mark": b"\xef\xbb\xbf" + "note('日本', a('é')[0] + b)\n".encode(),
    "mark, docstring, carriage returns": b"\xef\xbb\xbf'doc'\rnote(a(1)); note(__doc__)\r",
    "shift_jis": "# coding: shift_jis\nnote('ソ表', a('能'))\n".encode("shift_jis"),
    "tabs and form feeds": b"\x0cif a:\n\tnote(a(1))\n\x0c\tnote(b[\t0\t])\n\x0c\nnote(c)\n",
    "unusual line separators": "note('a\x1c\u2028\x85', a(1))\nnote(b(2))\n".encode(),
    "no end of line": b"note(a(1) + b)",
    "windows line ends": b"def f(x):\r\n\treturn x(\r\n\t\t1,\r\n\t)\r\nnote(f(a) + \\\r\n b)\r\n",
    "identifiers": "é = a\nnote(é(1), é.ﬁ, ª := é[0], a)\né += b\nnote(é)\n".encode(),
    "shebang": b"#!/usr/bin/env python\n# coding: utf-8\ndef f(): return a(1)\nnote(f())\n",
}
