"""Tests of which definitions are taken for one another."""

from __future__ import annotations

import ast

from opguard.tools.source.matching import content, match_scopes, similarity
from opguard.tools.source.scopes import Scope
from opguard.tools.source.statements import defined_names, module_scope


def scope(source: str, file: str = "m.py") -> Scope:
    tree = ast.parse(source)
    return module_scope(file, tree, frozenset(defined_names(tree)))


def test_content_is_equal_up_to_the_names_a_scope_binds() -> None:
    one = scope("def f(a, b):\n  c = g(a)\n  def h(): return c + b\n  return h\n")
    two = scope("def f(x, y):\n  z = g(x)\n  def k(): return z + y\n  return k\n")
    assert content(one.children[0]) == content(two.children[0])


def test_content_tells_swapped_parameters_apart() -> None:
    one = scope("def f(a, b):\n  return a - b\n")
    two = scope("def f(b, a):\n  return a - b\n")
    assert content(one.children[0]) != content(two.children[0])


def test_content_keeps_names_from_outside() -> None:
    one = scope("def f(a):\n  return relu(a)\n")
    two = scope("def f(a):\n  return gelu(a)\n")
    assert content(one.children[0]) != content(two.children[0])


def test_similarity_is_the_share_of_common_statements() -> None:
    assert similarity(scope("f(1)\ng(2)\n"), scope("g(2)\nh(3)\nf(1)\n")) == 2 / 3
    assert (
        similarity(scope("def f(x): return relu(x)\n"), scope("def f(x): return gelu(x)\n"))
        == 1 / 2
    )
    assert similarity(scope(""), scope("")) == 0.0


def test_class_that_was_renamed_brings_its_methods_along() -> None:
    body = "  def a(self):\n    return 1\n  def b(self):\n    return f(self)\n"
    left, right = scope(f"class Old(B):\n{body}"), scope(f"class New(B):\n{body}")
    matches = match_scopes({"m.py": left}, {"m.py": right})
    assert {a.qualname: b.qualname for a, b in matches.items()} == {
        "<module>": "<module>",
        "Old": "New",
        "Old.a": "New.a",
        "Old.b": "New.b",
    }


def test_tiny_function_is_recognised_only_by_its_own_name() -> None:
    left = scope("class A:\n  def one(self): return 1\n")
    renamed = scope("class B:\n  x = 2\n  def two(self): return 1\n")
    moved = scope("class B:\n  x = 2\n  def one(self): return 1\n")
    assert len(match_scopes({"m.py": left}, {"m.py": renamed})) == 1
    assert {b.qualname for b in match_scopes({"m.py": left}, {"m.py": moved}).values()} == {
        "<module>",
        "B.one",
    }
