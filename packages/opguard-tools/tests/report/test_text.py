from __future__ import annotations

import pytest

from opguard.tools.compare import Comparison
from opguard.tools.report import document, render_text


def test_origin_is_printed_with_place_source_slots_and_reason(differing: Comparison) -> None:
    text = render_text(document(differing))

    lines = text.splitlines()
    assert lines[0] == ("First difference: inputs equal, outputs differ  (rank 0, step 1, forward)")
    assert lines[1] == "  baseline   train.py:2  in main"
    assert lines[5] == "    output out: float32[4, 4]: different, regions 0, 1, 2, 3 of 4"
    assert lines[6] == "    why: inputs equal, outputs differ"
    assert "  candidate  train.py:4  log  (2 calls, rank 0, first in step 0)" in lines
    assert text.endswith("\n")


def test_text_of_a_workload_cannot_control_the_terminal(differing: Comparison) -> None:
    assert all(c.isprintable() or c == "\n" for c in render_text(document(differing)))


@pytest.mark.requirement("E3")
def test_nothing_differing_names_the_scope_and_what_it_is_not(equal: Comparison) -> None:
    assert render_text(document(equal)) == (
        "No difference over 3 observed callsites, 10 tensors compared; this is not a "
        "numerical-equivalence result.\n\n"
    )


@pytest.mark.requirement("B13")
def test_how_a_run_ended_without_success_is_said_first(cut: Comparison) -> None:
    heading, entry, _, result = render_text(document(cut)).splitlines()[:4]

    assert heading == (
        "Only the candidate did not end with success; what both recorded until then was compared."
    )
    assert entry.startswith("  candidate  raised ValueError: <script>")
    assert entry.endswith("(train.py:2) after 1 step; recorded to that point")
    assert result.startswith("No difference over")


def test_many_origins_are_cut_with_a_pointer_to_the_page(differing: Comparison) -> None:
    found = document(differing)
    found["origins"] = [found["first"] | {"order": n} for n in range(25)]
    found["first"] = found["origins"][3]

    text = render_text(found)

    assert text.count("why:") == 10
    assert "… and 15 more origins in report.html" in text


def test_report_files_come_last(differing: Comparison) -> None:
    found = document(differing)
    found["reports"] = {
        "html": "out/report.html",
        "summary": "out/summary.json",
        "perfetto": [{"rank": 0, "path": "out/rank-0.perfetto-trace", "sha256": "ab"}],
    }

    assert render_text(found).splitlines()[-3:] == [
        "report   out/report.html",
        "data     out/summary.json",
        "rank 0   out/rank-0.perfetto-trace",
    ]


def test_a_missing_side_is_said(differing: Comparison) -> None:
    found = document(differing)
    found["first"] = found["origins"][0] = found["origins"][0] | {"candidate": None}

    assert "  candidate  (no such call)" in render_text(found)
