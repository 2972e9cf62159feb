"""Instrumenting everything in real modules, and in generated ones."""

from __future__ import annotations

import random
import sysconfig
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from opguard.tools.source import RewriteError, Site, UnusableSourceError, instrument

AllSites = Callable[..., list[Site]]

MODULES = 150
LARGEST_BYTES = 30_000  # keeps the test to a few seconds
SEED = 20


def standard_library() -> list[Path]:
    """A fixed sample of the standard library, tests of the language included."""
    root = Path(sysconfig.get_paths()["stdlib"])
    files = [
        path
        for path in sorted(root.rglob("*.py"))
        if "site-packages" not in path.parts and path.stat().st_size < LARGEST_BYTES
    ]
    return random.Random(SEED).sample(files, min(MODULES, len(files)))


def compiles(content: bytes) -> bool:
    """Whether Python accepts a source, whatever it warns about."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            compile(content, "m.py", "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            return False
    return True


def test_real_modules_are_the_same_without_their_wrappers(all_sites: AllSites) -> None:
    # `instrument` itself proves equality and unchanged lines.
    chance = random.Random(SEED)
    sites = usable = 0
    for number, path in enumerate(standard_library()):
        content = path.read_bytes()
        if not compiles(content):
            continue  # a module that is wrong on purpose, or is in no encoding
        chosen = all_sites(content, file=path.name)
        if number % 2:
            chosen = [site for site in chosen if chance.random() < 0.3]
        changed = instrument(content, chosen)
        usable += 1
        sites += len(chosen)
        assert compiles(changed)
        assert len(changed.splitlines()) == len(content.splitlines())
    assert usable > MODULES * 0.8
    assert sites > MODULES * 50


NESTED = {
    "operands": lambda n: "+".join(["a"] * n),
    "calls": lambda n: "f(" * n + ")" * n,
    "chained calls": lambda n: "a" + ".b()" * n,
    "attributes": lambda n: "a" + ".b" * n,
    "subscripts": lambda n: "a[" * n + "0" + "]" * n,
    "signs": lambda n: "-" * n + "a",
    "functions": lambda n: "lambda: " * n + "f()",
    "comprehensions": lambda n: "[f(y) for y in " * n + "z" + "]" * n,
}


@pytest.mark.parametrize("form", NESTED)
def test_whatever_depth_the_parser_takes_compiles_too(form: str, all_sites: AllSites) -> None:
    taken = 0
    for depth in (10, 50, 90, 100, 150, 190, 250, 330, 400):
        content = NESTED[form](depth).encode()
        try:
            changed = instrument(content, all_sites(content))
        except (RewriteError, UnusableSourceError):
            continue
        taken += 1
        assert compiles(changed)
    assert taken >= 2


OPERATORS = ["+", "-", "*", "/", "@", "//", "%", "**", "<<", ">>", "&", "|", "^"]
OPERATORS += ["<", "<=", ">", ">=", "==", "!="]
NAMES = st.sampled_from(["a", "b", "_c", "é", "f"])
BREAKS = st.sampled_from(["", " ", "\t", "  ", "\\\n", " \\\n\t"])


def _join(*parts: st.SearchStrategy[str] | str) -> st.SearchStrategy[str]:
    strategies = [st.just(part) if isinstance(part, str) else part for part in parts]
    return st.tuples(*strategies).map("".join)


def _longer(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    gap = st.sampled_from(["", " ", "\n", " # (c\n", "\t"])
    operator = st.sampled_from(OPERATORS)
    grouped = _join("(", gap, inner, gap, ")")
    return st.one_of(
        grouped,
        _join("(", inner, gap, operator, gap, inner, ")"),
        _join("(", st.sampled_from(["not ", "-", "~", "not", "+"]), grouped, ")"),
        _join(grouped, BREAKS, "(", inner, ", *", inner, ", k=", inner, gap, ")"),
        _join(NAMES, "(", inner, " for ", NAMES, " in ", inner, " if ", inner, ")"),
        _join(grouped, BREAKS, ".", BREAKS, NAMES),
        _join(grouped, BREAKS, "[", inner, ":", inner, ", ", inner, "]"),
        _join("(", grouped, "if", grouped, "else", grouped, ")"),
        _join("(lambda ", NAMES, "=", inner, ": ", inner, ")"),
        _join("[", inner, " for ", NAMES, ", in ", inner, " for ", NAMES, " in(", inner, ")]"),
        _join("{", inner, ": ", inner, ", **", inner, "}"),
        _join("f'{", NAMES, "(1)!r:>{", NAMES, "[0]}} {", NAMES, "=}'"),
        _join("(", NAMES, " := ", inner, ")"),
    )


EXPRESSION = st.recursive(
    st.one_of(NAMES, st.sampled_from(["1", "'s'", "..."])), _longer, max_leaves=8
)
TARGET = st.one_of(
    NAMES,
    _join(NAMES, ".", NAMES),
    _join(NAMES, "[0]"),
    _join(NAMES, "(1)[", NAMES, "]"),
    _join(NAMES, "[", NAMES, "(2)].", NAMES),
)
SIMPLE = st.one_of(
    EXPRESSION,
    _join(TARGET, " = ", EXPRESSION),
    _join(TARGET, " += ", EXPRESSION),
    _join(TARGET, "@=", EXPRESSION, ", ", EXPRESSION),
    _join("del ", TARGET),
    _join("assert(", EXPRESSION, ")"),
    _join(NAMES, ": ", EXPRESSION, " = ", EXPRESSION),
    _join("for ", TARGET, " in ", EXPRESSION, ", ", EXPRESSION, ": ", EXPRESSION),
)
ENDS = st.sampled_from(["\n", "\r\n", "\r"])
HEADS = st.sampled_from(
    ["", "'doc'\n", "from __future__ import annotations\n", "# c\n", "#!x\n", "\n", "\x0c\n", "x\n"]
)


@settings(
    max_examples=120,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(head=HEADS, statements=st.lists(SIMPLE, min_size=1, max_size=4), end=ENDS)
def test_generated_modules_are_the_same_without_their_wrappers(
    head: str, statements: list[str], end: str, all_sites: AllSites
) -> None:
    body = "".join(f"{statement}\n" for statement in statements)
    content = f"{head}{body}".replace("\n", end).encode()
    if not compiles(content):
        return  # the grammar above is a little wider than Python's
    changed = instrument(content, all_sites(content))
    assert compiles(changed)
    assert changed.count(end.encode()) == content.count(end.encode())
