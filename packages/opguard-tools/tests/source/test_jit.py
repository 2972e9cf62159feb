"""Tests of functions that a compiler reads as source."""

from __future__ import annotations

import pytest

from opguard.tools.source.rewrite import ParsedSource


def compiled(source: str) -> dict[str, str]:
    index = ParsedSource.of(source.encode()).index
    return {definition.name: name for definition, name in index.compiled.items()}


@pytest.mark.parametrize(
    ("imports", "decorator", "compiler"),
    [
        ("import torch", "torch.jit.script", "torch.jit.script"),
        ("import torch.jit as tj", "tj.script", "torch.jit.script"),
        ("from torch import jit", "jit.script", "torch.jit.script"),
        ("from torch.jit import script as s", "s", "torch.jit.script"),
        ("import torch", "torch.jit.script_if_tracing", "torch.jit.script_if_tracing"),
        ("import torch", "torch.jit.export", "torch.jit.export"),
        ("import triton", "triton.jit", "triton.jit"),
        ("import triton as tr", "tr.jit(do_not_specialize=['n'])", "triton.jit"),
        ("from triton import jit", "jit", "triton.jit"),
        ("import triton", "triton.autotune(configs=[], key=[])\n@triton.jit", "triton.autotune"),
        ("from somewhere import *", "jit", "jit"),
        ("from numba import njit", "njit(parallel=True)", "numba.njit"),
        ("import functools, jax", "functools.partial(jax.jit, static_argnums=0)", "jax.jit"),
    ],
)
def test_decorated_function_is_compiled_from_source(
    imports: str, decorator: str, compiler: str
) -> None:
    source = f"{imports}\n@{decorator}\ndef f(x):\n  return g(x)\ndef g(x): return x + h(1)\n"
    assert compiled(source)["f"] == compiler


@pytest.mark.parametrize(
    ("imports", "decorator"),
    [
        ("import click", "click.script"),
        ("import torch", "torch.jit.ignore"),
        ("import torch", "torch.compile"),
        ("import app", "app.jit"),
        ("", "self.script"),
        ("", "registry['jit']"),
    ],
)
def test_other_decorators_change_nothing(imports: str, decorator: str) -> None:
    assert compiled(f"{imports}\n@{decorator}\ndef f(x):\n  return g(x)\n") == {}


def test_function_handed_to_a_compiler_and_what_it_calls_are_excluded() -> None:
    source = (
        "import torch\n"
        "def helper(x): return deep(x) + x.helper2()\n"
        "def deep(x): return f(x)\n"
        "def other(x): return x\n"
        "def f(x): return helper(x)\n"
        "class Model:\n  def forward(self, x): return x\n"
        "fast = torch.jit.script(f)\n"
        "model = torch.jit.script(Model())\n"
    )
    assert compiled(source) == dict.fromkeys(["f", "helper", "deep", "Model"], "torch.jit.script")


@pytest.mark.parametrize(
    ("imports", "call"),
    [
        ("from torch.jit import script as s", "s(f)"),
        ("from torch.jit import export as s", "s(f)"),
        ("from torch import jit as j", "j.export(f)"),
        ("import torch.jit as j", "[\n  j\n  .script(\n    f)]"),
        ("import functools, numba", "functools.partial(numba.njit, cache=True)(f)"),
    ],
)
def test_function_handed_to_a_compiler_under_another_name_is_excluded(
    imports: str, call: str
) -> None:
    assert list(compiled(f"{imports}\ndef f(x): return x\ndef g():\n  fast = {call}\n")) == ["f"]


def test_nothing_in_a_compiled_function_is_wrapped_and_the_rest_is() -> None:
    source = (
        "import triton\n"
        "@triton.autotune(configs=[triton.Config({})], key=['n'])\n"
        "@triton.jit\n"
        "def kernel(x, n: f(1), b=f(2)):\n  y = load(x) + n\n  return [z for z in y][0]\n"
        "kernel[grid](1)\n"
    )
    index = ParsedSource.of(source.encode()).index
    refusals = {found.refusal for found in index.expressions if found.span[0] < 7}
    assert refusals == {"function kernel (line 4) is compiled from its source by triton.autotune"}
    usable = [found.kind for found in index.expressions if found.refusal is None]
    assert usable == ["call", "subscript"]
