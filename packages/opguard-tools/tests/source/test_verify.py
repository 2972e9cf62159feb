"""Tests of the proof that instrumented source equals the original: what it does not let pass."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from opguard.tools.source import RewriteError, Site
from opguard.tools.source.rewrite import ParsedSource, rewrite, verify

AllSites = Callable[..., list[Site]]

SOURCE = (
    "'doc'\n"
    "x = f(a) + g(b, k=1)\n"
    "x += h(x)\n"
    "y.z += x\n"
    "w[0] = x[1]\n"
    "for i in x: i.T\n"
    "c = -x < y\n"
    "d = 1, 'a', 0.0\n"
)


def outcome(tamper: Callable[[str], str], all_sites: AllSites) -> RewriteError | None:
    """Instrument everything, tamper with the result, and verify it."""
    content = SOURCE.encode()
    sites = all_sites(content, only=lambda e: e.kind != "augmented" or e.span[0] in (3, 4))
    parsed = ParsedSource.of(content)
    text = rewrite(parsed, sites)
    changed = tamper(text)
    assert tamper is same or changed != text
    try:
        verify(parsed, changed, sites)
    except RewriteError as error:
        return error
    return None


def same(text: str) -> str:
    return text


def replacing(old: str, new: str) -> Callable[[str], str]:
    return lambda text: text.replace(old, new, 1)


IMPORT = "from opguard.core._site import site as __opguard_site__; "


def test_what_the_rewriting_makes_passes(all_sites: AllSites) -> None:
    assert outcome(same, all_sites) is None


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("(a)", "(b)"),
        ("k=1", "k=2"),
        ("k=1", "j=1"),
        ("1, 'a', 0.0", "1, 'a', -0.0"),
        ("1, 'a', 0.0", "1, 'a', 0"),
        ("1, 'a', 0.0", "True, 'a', 0.0"),
        ("1, 'a', 0.0", "1, 'a'"),
        ("1, 'a', 0.0", "1, 'b', 0.0"),
        (".add)", ".sub)"),
        (".add)", ".iadd)"),
        (".iadd)", ".isub)"),
        (".neg)", ".pos)"),
        (".lt)", ".gt)"),
        (".lt)", ".no_such)"),
        ("'T'", "'S'"),
        ("'T'", "T"),
        ("getattr)", "hasattr)"),
        ("(y.z,", "(y.w,"),
        ("y.z =", "y.w ="),
        ("__opguard_iter__(", "__opguard_iter__(1 + "),
        ("__opguard_site__(1,", "__opguard_site__(2,"),
        ("__opguard_site__(1,", "__opguard_site__(99,"),
        ("__opguard_site__(1,", "__opguard_site__(True,"),
        ("__opguard_site__(1,", "__opguard_site__(one,"),
        ("__opguard_site__(1,", "__opguard_sub__(1,"),
        ("__opguard_sub__(", "__opguard_iter__("),
        ("__opguard_sub__(", "__opguard_site__("),
        ("\nx = __opguard_site__(4", "\ny = __opguard_site__(4"),
        ("(x, ( ", "(y, ( "),
        ("\n", "\n\n"),
        ("\nd =", "; d ="),
        ("'doc'", "'dog'"),
        ("\nd =", "\ne; d ="),
        ("\nd =", "\nimport os; d ="),
        ("for i in", "for j in"),
        ("d = 1", "d: int = 1"),
        ("d = ", "d = d = "),
        ("(", "(("),
        ("d = 1", "return 1"),
        ("d = 1", "d = '\\ud800', 1"),
    ],
)
def test_any_other_change_is_found(old: str, new: str, all_sites: AllSites) -> None:
    error = outcome(replacing(old, new), all_sites)
    assert error is not None
    assert error.details["file"] == "m.py"
    assert error.details["reason"]


def test_operands_that_changed_places_are_found(all_sites: AllSites) -> None:
    def swap(text: str) -> str:
        start = text.index(".add)(") + len(".add)(")
        end = text.index("\nx = ", start) - 1
        left, right = text[start:end].split(" , ")
        return text[:start] + right.strip() + " , " + left + text[end:]

    assert outcome(swap, all_sites) is not None


def test_missing_wrapper_is_named_by_its_site(all_sites: AllSites) -> None:
    error = outcome(replacing("__opguard_iter__(9, (x))", "x"), all_sites)
    assert error is not None
    assert error.details["site"] == 9


def test_text_that_its_encoding_lacks_is_refused(all_sites: AllSites) -> None:
    content = b"# coding: latin-1\nx = f(1)\n"
    sites = all_sites(content)
    parsed = ParsedSource.of(content)
    text = rewrite(parsed, sites)
    with pytest.raises(RewriteError):
        verify(parsed, text + "# \u4e2d\n", sites)
    with pytest.raises(RewriteError):
        verify(parsed, text.replace("latin-1", "ascii  ") + "# \xe9\n", sites)


@pytest.mark.parametrize(
    "tamper",
    [
        lambda text: text.replace(IMPORT, "", 1),
        lambda text: text.replace(IMPORT, IMPORT + IMPORT, 1),
        lambda text: text.replace(IMPORT, "", 1).replace("x = ", IMPORT + "x = ", 1),
        lambda text: text.replace("import site as", "import subscript as", 1),
        lambda text: text.replace("import site as __opguard_site__", "import site as s", 1),
        lambda text: text.replace("from opguard", "from .opguard", 1),
    ],
)
def test_wrappers_that_are_not_imported_as_they_should_are_found(
    tamper: Callable[[str], str], all_sites: AllSites
) -> None:
    content = b"y = 1\nx = f(1)\n"
    sites = all_sites(content)
    parsed = ParsedSource.of(content)
    text = rewrite(parsed, sites)
    verify(parsed, text, sites)
    assert text.startswith(IMPORT)
    assert tamper(text) != text
    with pytest.raises(RewriteError):
        verify(parsed, tamper(text), sites)


@pytest.mark.parametrize("moved", ["if a\n else\n b)", "if\n a else b\n)"])
def test_a_name_on_another_line_is_found(moved: str, all_sites: AllSites) -> None:
    content = b"x = (f(1) if\n a else\n b)\n"
    sites = all_sites(content)
    parsed = ParsedSource.of(content)
    text = rewrite(parsed, sites)
    verify(parsed, text, sites)
    assert "if\n a else\n b)" in text
    with pytest.raises(RewriteError):
        verify(parsed, text.replace("if\n a else\n b)", moved), sites)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    y = 2\n", "    y = 3\n"),
        ("    y = 2\n", "   y = 2\n"),
        ("'''\n    z", "'''\n    w"),
        ("if x:\n", "while x:\n"),
        ("    y = 2\n", "    '''\n"),
        ("# end\n", "k = 1\n"),
    ],
)
def test_a_change_where_no_site_is_is_found(old: str, new: str, all_sites: AllSites) -> None:
    content = b"x = f(1)\nif x:\n    y = 2\n    z = '''\n    z = 2\n    '''\n# end\n"
    sites = all_sites(content)
    parsed = ParsedSource.of(content, sites)
    text = rewrite(parsed, sites)
    verify(parsed, text, sites)
    assert old in text
    with pytest.raises(RewriteError):
        verify(parsed, text.replace(old, new, 1), sites)
