"""Operators recorded inside a call, with the library's lines: which correspond, and what is named.

A hand-made library of one file stands for an installed package.
"""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from capture_builders import BACKWARD, FORWARD, OPTIMIZER, Recording
from comparing import compare

from opguard.tools.compare import Comparison
from opguard.tools.report.document import document
from opguard.tools.report.html import render_html
from opguard.tools.report.perfetto import perfetto_frames
from opguard.tools.report.text import render_text

LIBRARY = """\
def function(x):
    y = lib.first(x)
    z = lib.second(y)
    return lib.third(z)
"""
CHANGED = LIBRARY.replace("lib.second(y)", "lib.second(y, 2)")
MOVED = "import lib\n\n\n" + LIBRARY
TORCH = "def function(x):\n    return torch.softmax(x)\n"


def first(comparison: Comparison) -> dict[str, Any]:
    found = document(comparison)["first"]
    assert found is not None
    return dict(found)


def run(source: str, *, second: str = "b", name: str = "pkg/layer.py") -> Recording:
    """``trainer`` runs the library's three lines; ``second`` is what the second one returns."""
    recording = Recording()
    recording.library(name, source)
    lines = [line.strip().partition(" = ")[2] for line in source.split("\n") if " = lib." in line]
    places = [recording.place(name, line) for line in [*lines, "lib.third(z)"]]
    with recording.nest("trainer", outputs={"out": f"end {second}"}):
        recording.operator(
            "trainer", "lib::first", places[0], inputs={"arg[0]": "x"}, outputs={"out": "a"}
        )
        recording.operator(
            "trainer", "lib::second", places[1], inputs={"arg[0]": "a"}, outputs={"out": second}
        )
        recording.operator(
            "trainer",
            "lib::third",
            places[2],
            inputs={"arg[0]": second},
            outputs={"out": f"end {second}"},
        )
    return recording


def test_a_differing_operator_is_named_at_the_line_of_the_library() -> None:
    found = first(compare(run(LIBRARY), run(LIBRARY, second="other")))

    assert (found["kind"], found["baseline"]["library"]) == ("outputs_differ", True)
    assert found["baseline"]["file"] == "/env/pkg/layer.py"
    assert (found["baseline"]["line"], found["baseline"]["text"]) == (3, "lib.second(y)")
    assert found["baseline"]["operator"] == "lib::second"
    assert found["baseline"]["callsite"]["file"] == "train.py"


def test_only_the_operator_is_an_origin_and_not_the_call_around_it() -> None:
    comparison = compare(run(LIBRARY), run(LIBRARY, second="other"))

    assert [o.baseline.operator for o in comparison.ranks[0].origins if o.baseline] == [
        "lib::second"
    ]


@pytest.mark.parametrize("source", [CHANGED, MOVED], ids=["changed statement", "moved lines"])
def test_operators_pair_across_versions_of_the_library(source: str) -> None:
    comparison = compare(run(LIBRARY), run(source))

    assert len(comparison.ranks[0].pairs) == 4
    assert comparison.first is None


def test_each_side_shows_the_line_of_its_own_version() -> None:
    found = first(compare(run(LIBRARY), run(MOVED, second="other")))

    assert (found["baseline"]["line"], found["candidate"]["line"]) == (3, 6)
    assert found["candidate"]["text"] == "lib.second(y)"


def test_a_file_that_was_renamed_pairs_by_its_content() -> None:
    comparison = compare(run(LIBRARY), run(LIBRARY, second="other", name="pkg/blocks/layer.py"))

    assert first(comparison)["candidate"]["file"] == "/env/pkg/blocks/layer.py"
    assert len(comparison.ranks[0].pairs) == 4


def test_a_wrapper_around_a_library_function_leaves_its_operators_paired() -> None:
    sides = []
    for wrapped in (False, True):
        recording = Recording()
        recording.library("pkg/layer.py", LIBRARY)
        recording.library("pkg/wrap.py", "def function(f):\n    return f(1)\n")
        outer = recording.place("pkg/wrap.py", "f(1)") if wrapped else 0
        place = recording.place("pkg/layer.py", "lib.first(x)", outer)
        with recording.nest("trainer"):
            for number in range(3):
                value = f"{number}{wrapped and number == 2}"
                recording.operator(
                    "trainer", "lib::first", place, inputs={"arg[0]": "x"}, outputs={"out": value}
                )
        sides.append(recording)

    comparison = compare(*sides)

    assert [v.source.value for v in comparison.ranks[0].pairs] == ["exact", *["inferred"] * 3]
    assert len(comparison.ranks[0].origins) == 1


def test_unchanged_lines_of_torch_itself_are_named_at_the_callsite() -> None:
    sides = []
    for value in "ab":
        recording = Recording()
        recording.library("torch/nn/functional.py", TORCH)
        place = recording.place("torch/nn/functional.py", "torch.softmax(x)")
        with recording.nest("encoder", outputs={"out": value}):
            recording.operator(
                "encoder", "aten::_softmax", place, inputs={"arg[0]": "x"}, outputs={"out": value}
            )
        sides.append(recording)

    found = first(compare(*sides))

    assert (found["baseline"]["file"], found["baseline"]["operator"]) == (
        "train.py",
        "aten::_softmax",
    )
    assert found["baseline"]["inside"]["file"] == "/env/torch/nn/functional.py"


def test_a_changed_line_of_torch_is_named_itself() -> None:
    sides = []
    for source in (TORCH, TORCH.replace("softmax(x)", "softmax(x * 2)")):
        recording = Recording()
        recording.library("torch/nn/functional.py", source)
        place = recording.place("torch/nn/functional.py", source.partition("return ")[2].strip())
        with recording.nest("encoder", outputs={"out": source}):
            recording.operator(
                "encoder", "aten::_softmax", place, inputs={"arg[0]": "x"}, outputs={"out": source}
            )
        sides.append(recording)

    found = first(compare(*sides))

    assert found["candidate"]["file"] == "/env/torch/nn/functional.py"
    assert found["candidate"]["line"] == 2


@pytest.mark.parametrize("known", [True, False], ids=["place known", "place unknown"])
def test_the_phase_keeps_forward_and_backward_at_one_line_apart(known: bool) -> None:
    sides = []
    for phases in ((FORWARD, BACKWARD), (BACKWARD,)):
        recording = Recording()
        recording.library("pkg/layer.py", LIBRARY)
        place = recording.place("pkg/layer.py", "lib.first(x)") if known else 0
        with recording.nest("trainer"):
            for phase in phases:
                recording.operator("trainer", "lib::first", place, phase=phase)
        sides.append(recording)

    (rank,) = compare(*sides).ranks

    operators = [v.pair for v in rank.pairs if v.pair.baseline.place or not known][1 - known :]
    assert [(pair.baseline.phase, pair.candidate.phase) for pair in operators] == [(1, 1)]
    assert [(u.side.value, u.call.phase) for u in rank.unpaired] == [("baseline", 0)]


def test_reports_show_the_lines_of_the_library() -> None:
    comparison = compare(run(LIBRARY), run(MOVED, second="other"))
    found = document(comparison)
    found["reports"] = {"html": "page", "summary": "data", "perfetto": []}

    page, text = render_html(comparison, found), render_text(found)
    frames = perfetto_frames(comparison, comparison.ranks[0])

    assert '<span class="no">6</span>    z = lib.second(y)' in page
    assert "/env/pkg/layer.py:6  in function  [installed library]" in text
    assert "lib::second" in text
    named = frames.slices.filter(pl.col("name") == "lib::second").sort("track")
    assert named["line"].to_list()[:2] == [3, 6]


def test_a_step_of_a_renamed_optimizer_class_pairs_with_the_old_ones() -> None:
    sides = []
    for name, value in (("Momentum", "a"), ("HeavyBall", "b")):
        recording = Recording()
        recording.library("pkg/layer.py", LIBRARY)
        place = recording.place("pkg/layer.py", "lib.first(x)")
        with recording.nest("trainer", outputs={"out": value}):
            recording.operator(
                "trainer",
                f"{name}.step",
                place,
                inputs={"param.w": "w"},
                outputs={"param.w": value},
                phase=OPTIMIZER,
            )
        sides.append(recording)

    found = first(compare(*sides))

    assert [found[side]["operator"] for side in ("baseline", "candidate")] == [
        "Momentum.step",
        "HeavyBall.step",
    ]
