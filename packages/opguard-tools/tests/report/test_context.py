from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from opguard.tools.compare import Comparison
from opguard.tools.compare.records import Side
from opguard.tools.report import document, render_text
from opguard.tools.report.html import render_html
from opguard.tools.report.writer import write_reports


def html(comparison: Comparison) -> str:
    return render_html(comparison, document(comparison) | {"reports": {"perfetto": []}})


def test_document_lists_circumstances_by_kind_with_their_places(around: Comparison) -> None:
    seed, order = document(around)["circumstances"]

    assert (seed["kind"], seed["subject"], seed["baseline"]) == ("arguments", "--seed", "0")
    assert seed["locations"] == {"baseline": None, "candidate": None}
    assert (seed["before_first"], seed["step"], seed["ranks"]) == (True, None, [0])
    assert (order["kind"], order["step"], order["also_between_equal_runs"]) == (
        "data_order", 1, False,
    )  # fmt: skip
    assert order["locations"]["baseline"]["line"] == 1


def test_origin_at_a_loader_says_that_it_is_no_operation(around: Comparison) -> None:
    first = document(around)["first"]

    assert (first["kind"], first["circumstance"]) == ("outputs_differ", "data_order")
    assert "First difference: the data come in another order, not an operation" in render_text(
        document(around)
    )


def test_text_leads_with_warnings_and_circumstances(around: Comparison) -> None:
    lines = render_text(document(around)).splitlines()

    assert lines[0] == (
        "Warning: the recorder could not make 2 records of the candidate's rank 0, so this capture "
        "is not complete knowledge: what is missing was not compared."
    )
    assert lines[1].startswith("  first noted: call 0: <script>")
    assert lines[3] == "Before the first difference: the runs differ in what may explain it."
    assert lines[4].startswith("  arguments      --seed is 0 in the baseline and <script>")
    assert lines[5].startswith("  data order     train.py:1 `<script>")


def test_circumstances_of_a_workload_cannot_control_terminal_or_page(around: Comparison) -> None:
    assert all(c.isprintable() or c == "\n" for c in render_text(document(around)))
    assert "<script" not in html(around)


def test_warning_holds_the_larger_of_notes_and_receipt(around: Comparison) -> None:
    (warning,) = document(around)["warnings"]

    assert (warning["kind"], warning["side"], warning["count"], len(warning["notes"])) == (
        "recorder_failures", "candidate", 2, 1,
    )  # fmt: skip


def test_origins_that_equal_runs_share_are_listed_apart(around: Comparison) -> None:
    found = document(around)

    assert [origin["baseline"]["line"] for origin in found["origins"]] == [1, 1]
    assert [origin["baseline"]["line"] for origin in found["not_repeatable"]] == [2, 2, 2]
    assert found["not_repeatable"][0]["repeats"] == {"count": 2, "ranks": [0], "steps": [[1, 2]]}
    assert found["repeatability"]["runs"] == 1
    (callsite,) = found["repeatability"]["callsites"]
    assert (callsite["line"], callsite["runs"], callsite["first_step"]) == (2, 1, 0)
    assert found["repeatability"]["circumstances"] == []


def test_other_side_of_equal_runs_is_called_a_repeat(around: Comparison) -> None:
    assert around.repeatability is not None
    (callsite,) = around.repeatability.callsites
    why = replace(callsite, why="x is 1 in the baseline and 2 in the candidate")
    found = replace(around, repeatability=replace(around.repeatability, callsites=[why]))

    (entry,) = document(found)["repeatability"]["callsites"]

    assert entry["why"] == "x is 1 in the baseline and 2 in a repeat"


def test_only_unrepeatable_origins_are_said_plainly(unsteady: Comparison) -> None:
    found = document(unsteady)
    text = render_text(found)

    assert (found["first"], found["origins"], len(found["not_repeatable"])) == (None, [], 3)
    assert "No difference beyond what equal runs of the baseline show" in text
    assert "No difference over" not in text
    assert "Repeatability: 1 of 1 further run of the baseline differs from it." in text
    assert "train.py:2  scatter(...)" in text
    assert "(step 0, also in steps 1-2); this callsite also stops agreeing" in text


def test_page_shows_circumstances_repeatability_and_warnings(around: Comparison) -> None:
    page = html(around)

    assert "Before the first difference: the runs differ" in page
    assert "<b>Warning:</b>" in page
    assert "Repeatability: 1 of 1 further run" in page
    assert "Not repeatable: equal runs of the baseline differ here as well" in page
    assert page.index("Before the first difference") < page.index("<h2>First difference</h2>")


def test_page_of_only_unrepeatable_origins_does_not_say_that_nothing_differs(
    unsteady: Comparison,
) -> None:
    page = html(unsteady)

    assert "No difference beyond what equal runs" in page
    assert "<b>No difference</b>" not in page


def test_comparison_without_circumstances_or_repeats_says_nothing_of_them(
    differing: Comparison,
) -> None:
    found = document(differing)

    assert (found["circumstances"], found["repeatability"], found["warnings"]) == ([], None, [])
    for text in (render_text(found), html(differing)):
        assert "Before the first difference" not in text
        assert "epeatab" not in text.replace("not_repeatable", "")


def test_circumstance_alone_is_said_and_is_no_origin(equal: Comparison) -> None:
    found = document(equal)
    found["circumstances"] = [
        {
            "kind": "threads", "subject": "T", "text": "T is 1 in the baseline and 2 in the "
            "candidate", "baseline": "1", "candidate": "2", "ranks": [0], "before_first": True,
            "step": None, "locations": {"baseline": None, "candidate": None},
            "also_between_equal_runs": None,
        }
    ]  # fmt: skip

    lines = render_text(found).splitlines()

    assert lines[0] == "The runs differ in their circumstances; no recorded value differs."
    assert lines[1] == "  threads        T is 1 in the baseline and 2 in the candidate"
    assert lines[3].startswith("No difference over")


def test_circumstances_that_come_later_are_printed_after_the_origins(around: Comparison) -> None:
    found = document(around)
    found["circumstances"][1]["before_first"] = False

    text = render_text(found)

    assert text.index("First difference") < text.index("After the first difference")
    assert text.index("After the first difference") < text.index("data order")


def test_written_summary_and_trace_hold_what_was_set_apart(
    around: Comparison, tmp_path: Path
) -> None:
    reports = write_reports(around, tmp_path)

    assert '"not_repeatable": [' in reports.summary.read_text()
    assert "not repeatable: this callsite" in reports.ranks[0].path.read_bytes().decode(
        "utf-8", "ignore"
    )


@pytest.mark.parametrize(
    ("candidate", "text"),
    [
        ({"steps": "0-3"}, "both captures are limited to steps 0-3: what lies outside was not "),
        (None, "the baseline's capture is limited to steps 0-3: what lies outside was not "),
    ],
)
def test_limited_recordings_are_warned_of(
    differing: Comparison, candidate: dict[str, str] | None, text: str
) -> None:
    stated = {Side.BASELINE: {"steps": "0-3"}, Side.CANDIDATE: candidate}
    views = {
        side: replace(differing.capture(side), receipts={0: {"selection": stated[side]}})
        for side in Side
    }
    found = replace(differing, **{side.value: view for side, view in views.items()})

    warnings = [w for w in document(found)["warnings"] if w["kind"] == "selection"]

    assert [w["text"].startswith(text) for w in warnings] == [True]
