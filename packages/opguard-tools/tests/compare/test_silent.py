"""Changed statements that no recorded call stands for."""

from __future__ import annotations

import dataclasses

import pytest
from capture_builders import Recording, view

from opguard.tools.compare import Comparison, compare_captures, name_silent_statements
from opguard.tools.compare.records import Side
from opguard.tools.source import align_sources

TRAIN = """\
def build():
    embed = make()
{inside}    return embed

def make():
    return 1

build()
"""


def compared(before: str, after: str, *, inner: str = "build") -> Comparison:
    """A call of ``build`` whose output differs, with a call inside that agrees."""
    sources = [{"train.py": TRAIN.format(inside=text).encode()} for text in (before, after)]
    views = []
    for source, out in zip(sources, "xy", strict=True):
        run = Recording()
        with run.nest("build", outputs={"out": out}):
            run.call("make", outputs={"out": "e"})
        found = view(run)
        last = source["train.py"].count(b"\n")
        places = {"build": ("<module>", last, (last, 0)), "make": (inner, 2, (2, 4))}
        sites = {
            number: dataclasses.replace(
                site,
                qualname=places[site.callee][0],
                line=places[site.callee][1],
                statement=places[site.callee][2],
            )
            for number, site in found.sites.items()
        }
        views.append(dataclasses.replace(found, sources=source, sites=sites))
    alignment = align_sources(*sources)
    return name_silent_statements(compare_captures(*views, alignment, [0]), alignment)


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("    embed.w = 1\n", "", {Side.BASELINE: 3}),
        ("", "    embed.w = 1\n", {Side.CANDIDATE: 3}),
        ("    embed.w = 1\n", "    embed.w = 2\n", {Side.BASELINE: 3, Side.CANDIDATE: 3}),
        ("", "    a = 1\n    print(a)\n    embed['w'] = a\n", {Side.CANDIDATE: 5}),
        ("", "    if embed:\n        return 2\n", {Side.CANDIDATE: 3}),
        ("", "    print(embed)\n", {}),
        ("", "    import math\n", {}),
        ("", "    # embed.w = 1\n", {}),
    ],
)
def test_statement_in_a_function_that_ran_inside_the_call_is_named(
    before: str, after: str, expected: dict[Side, int]
) -> None:
    found = compared(before, after)
    (origin,) = found.ranks[0].origins
    assert {side: statement.line for side, statement in origin.silent.items()} == expected
    assert ("a changed statement there runs no operation" in origin.why) == bool(expected)
    assert found.first == (0, origin)


def test_statement_of_a_function_that_did_not_run_inside_is_not_named() -> None:
    (origin,) = compared("", "    embed.w = 1\n", inner="other").ranks[0].origins
    assert origin.silent == {}
