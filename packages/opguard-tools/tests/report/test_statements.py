from __future__ import annotations

from dataclasses import replace

import pytest
from capture_builders import Recording, align_by_callee, view

from opguard.tools.compare import CaptureView, compare_captures
from opguard.tools.report import document, render_text

SOURCES = {
    "a continued assignment": ("angles = cat(\n    a,\n)\n", (1, 0), "angles = cat( a, )"),
    "the header of a compound": ("if cat(a): b = 1\n", (1, 0), "if cat(a):"),
    "the header of a long compound": ("with cat(a) as x:\n    pass\n", (1, 0), "with cat(a) as x:"),
    "a match": ("match cat(a):\n    case 1:\n        pass\n", (1, 0), "match cat(a): case"),
    "after a wide character": ('"é"; z = cat(a)\n', (1, 6), "z = cat(a)"),
    "a later line": ("x = 1\ny = cat(x)\n", (2, 0), "y = cat(x)"),
}  # fmt: skip


def side(callee: str, value: str, source: str, statement: tuple[int, int]) -> CaptureView:
    run = Recording()
    run.call(callee, inputs={"self": "x"}, outputs={"out": value})
    found = view(run)
    (site,) = found.sites.values()
    sites = {site.id: replace(site, statement=statement)}
    return replace(found, sites=sites, sources={"train.py": source.encode()})


def origin(left: CaptureView, right: CaptureView) -> tuple[dict[str, dict[str, object]], str]:
    comparison = compare_captures(left, right, align_by_callee(left, right), [0])
    found = document(comparison)
    return found["first"], render_text(found)


@pytest.mark.parametrize("name", SOURCES)
def test_statement_that_differs_is_shown_whole(name: str) -> None:
    source, statement, text = SOURCES[name]
    left = side("cat", "y", source, statement)
    right = side("cat", "z", "angles = cat(b)\n", (1, 0))

    first, printed = origin(left, right)

    assert (first["baseline"]["statement"], first["candidate"]["statement"]) == (
        text, "angles = cat(b)",
    )  # fmt: skip
    assert f"             statement: {text}\n" in printed


def test_statement_that_both_sides_have_is_not_repeated() -> None:
    sides = [side("cat", value, "angles = cat(b)\n", (1, 0)) for value in ("y", "z")]

    first, printed = origin(sides[0], sides[1])

    assert "statement" not in first["baseline"] | first["candidate"]
    assert "statement:" not in printed


def test_source_that_this_interpreter_cannot_parse_shows_no_statement() -> None:
    left = side("cat", "y", "angles = cat(\n", (1, 0))
    right = side("cat", "z", "angles = cat(b)\n", (1, 0))

    first, _ = origin(left, right)

    assert "statement" not in first["baseline"]
    assert first["candidate"]["statement"] == "angles = cat(b)"
