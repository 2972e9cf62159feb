from __future__ import annotations

import json
from pathlib import Path

import pytest
from capture_builders import Recording, align_by_callee, view

from opguard.tools.compare import Comparison, compare_captures
from opguard.tools.report import RankReportFile, Reports, document, render_text
from opguard.tools.report.html import render_html


def test_document_has_the_promised_fields(differing: Comparison) -> None:
    found = document(differing)

    assert found["schema"] == {"name": "opguard-diff", "version": 1}
    assert (found["ranks"], found["coverage"]) == ([0, 1], "observed_callsites_only")
    assert set(found) >= {
        "observed", "origins", "first", "unpaired", "incomplete", "inherited", "reports", "verdict",
        "endings", "circumstances", "not_repeatable", "repeatability", "warnings",
    }  # fmt: skip
    assert json.loads(json.dumps(found, allow_nan=False)) == found


@pytest.mark.requirement("E2", "E3")
def test_document_gives_no_verdict_and_says_what_it_is_not(differing: Comparison) -> None:
    found = document(differing)

    assert found["verdict"] == "not_evaluated"
    assert "not a numerical-equivalence result" in found["notice"]
    assert "not a root-cause finding" in found["notice"]


def test_origin_names_both_sides_slots_and_regions(differing: Comparison) -> None:
    found = document(differing)

    (origin,) = found["origins"]
    callee = differing.baseline.sites[1].callee
    place = {
        "file": "train.py", "line": 2, "end_line": 2, "qualname": "main", "call": callee,
        "text": f"{callee}(...)",
    }  # fmt: skip
    value = {"dtype": "float32", "shape": [4, 4]}
    assert found["first"] == origin
    assert origin == {
        "rank": 0,
        "step": 1,
        "phase": "forward",
        "order": origin["order"],
        "kind": "outputs_differ",
        "why": "inputs equal, outputs differ",
        "circumstance": None,
        "relation_source": "exact",
        "baseline": place,
        "candidate": place,
        "slots_of": None,
        "slots": [
            {
                "slot": "out",
                "role": "output",
                "relation": "different",
                "reason": "xor_sig and mix_sig differ in 4 of 4 regions",
                "regions_differing": [0, 1, 2, 3],
                "schemes_differing": ["xor_sig", "mix_sig"],
                "regions": 4,
                "logical_nbytes": 64,
                "baseline": value,
                "candidate": value,
            }
        ],
        "slots_differing": 1,
        "repeats": None,
        "repeat_of": None,
    }


def test_slots_that_show_an_unpaired_origin_name_the_call_they_belong_to() -> None:
    sides = Recording(), Recording()
    for run, angles, value in zip(sides, ("cat", "repeat"), ("y", "z"), strict=True):
        run.call(angles, inputs={"self": "x"}, outputs={"out": value})
        run.call("cos", inputs={"self": value}, outputs={"out": "cos" + value})
    left, right = view(sides[0]), view(sides[1])
    comparison = compare_captures(left, right, align_by_callee(left, right), [0])

    found = document(comparison)

    assert (found["first"]["kind"], found["first"]["candidate"]["call"]) == ("unpaired", "repeat")
    assert {side: place["call"] for side, place in found["first"]["slots_of"].items()} == {
        "baseline": "cos", "candidate": "cos",
    }  # fmt: skip
    line = found["first"]["slots_of"]["baseline"]["line"]
    assert f"    input self of train.py:{line}: float32[4, 4]: different" in render_text(found)
    html = render_html(comparison, found | {"reports": {"perfetto": []}})
    assert "None but those at the origins above." in html
    assert f"train.py:{line} cos(...)" in html


def test_observed_counts_what_was_compared(differing: Comparison) -> None:
    assert document(differing)["observed"] == {
        "callsites": {"baseline": 3, "candidate": 4},
        "calls": {"baseline": 12, "candidate": 16},
        "tensors": {"baseline": 20, "candidate": 24},
        "pairs": 12,
        "pairs_by_source": {"exact": 12, "inferred": 0},
        "relations": {
            "equal": 10, "different": 2, "incompatible": 0, "unpaired": 4, "incomplete": 0,
        },
        "slots": {
            "compared": 20, "equal": 17, "different": 3, "incompatible": 0, "metadata_only": 0,
        },
    }  # fmt: skip


def test_unpaired_calls_are_grouped_by_callsite(differing: Comparison) -> None:
    assert document(differing)["unpaired"] == [
        {
            "rank": rank, "side": "candidate", "file": "train.py", "line": 4, "end_line": 4,
            "qualname": "main", "call": "log", "text": "log(...)", "of_origin": False, "calls": 2,
            "calls_inside": 0, "first_step": 0, "phase": "forward",
        }
        for rank in (0, 1)
    ]  # fmt: skip


def test_steps_count_relations_per_rank_and_step(differing: Comparison) -> None:
    counts = {"incompatible": 0, "incomplete": 0, "unpaired": 1}

    assert document(differing)["steps"] == [
        {"rank": 0, "step": 0, "equal": 3, "different": 0, **counts},
        {"rank": 0, "step": 1, "equal": 1, "different": 2, **counts},
        {"rank": 1, "step": 0, "equal": 3, "different": 0, **counts},
        {"rank": 1, "step": 1, "equal": 3, "different": 0, **counts},
    ]


def test_nothing_differing_has_no_first(equal: Comparison) -> None:
    found = document(equal)

    assert (found["first"], found["origins"], found["unpaired"]) == (None, [], [])


@pytest.mark.requirement("B13")
def test_incomplete_sides_are_listed_with_their_reason(cut: Comparison) -> None:
    found = document(cut)

    (entry,) = found["incomplete"]
    assert (entry["rank"], entry["side"]) == (0, "candidate")
    assert entry["reason"].startswith("the rank raised ValueError: <script>")
    assert found["observed"]["relations"]["incomplete"] == 5


def test_ends_without_success_are_listed_by_rank_and_side(cut: Comparison, hostile: str) -> None:
    assert document(cut)["endings"] == {
        "alike": False,
        "ranks": [
            {
                "rank": 0,
                "side": "candidate",
                "kind": "exception",
                "exit_status": 1,
                "exception": {
                    "type": "ValueError", "message": hostile, "file": "train.py", "line": 2,
                },
                "steps": 1,
                "recorded_to_end": True,
                "missing": None,
                "text": f"raised ValueError: {hostile} (train.py:2)",
            }
        ],
    }  # fmt: skip


def test_runs_that_succeeded_have_no_end_to_speak_of(equal: Comparison) -> None:
    assert document(equal)["endings"] == {"alike": True, "ranks": []}


def test_same_comparison_gives_the_same_document(differing: Comparison) -> None:
    assert document(differing) == document(differing)


def test_reports_are_named_with_their_digest(equal: Comparison) -> None:
    files = Reports([RankReportFile(0, Path("o/rank-0"), "ab")], Path("o/r.html"), Path("o/s.json"))

    assert document(equal, files)["reports"] == {
        "html": "o/r.html",
        "summary": "o/s.json",
        "perfetto": [{"rank": 0, "path": "o/rank-0", "sha256": "ab"}],
    }


def test_slots_of_an_origin_are_capped_and_their_number_kept() -> None:
    sides = Recording(), Recording()
    for run, mark in zip(sides, "ab", strict=True):
        run.call("step", outputs={f"param.p{n}": f"{mark}{n}" for n in range(100)})
    left, right = view(sides[0]), view(sides[1])

    first = document(compare_captures(left, right, align_by_callee(left, right), [0]))["first"]

    assert (len(first["slots"]), first["slots_differing"]) == (32, 100)
