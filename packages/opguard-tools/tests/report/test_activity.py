"""Device activity in the reports: figures of both sides, per callsite and per call."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from capture_builders import Recording, align_by_callee, view
from perfetto.protos.perfetto.trace import perfetto_trace_pb2

from opguard.tools.activity import Activity, Attribution, CallRange, read_activity
from opguard.tools.compare import CaptureView, Comparison, compare_captures
from opguard.tools.report import document, render_text, write_reports
from opguard.tools.report.activity import ACTIVITY_COLUMNS
from opguard.tools.report.perfetto import perfetto_frames

sys.path.insert(0, str(Path(__file__).parents[1] / "activity"))

from recorded_traces import DDP_TRAINING, as_part_of_capture, recorded_trace

CUPTI, RUNTIME = "OPGUARD_CALLSITE_CUPTI", "OPGUARD_CALLSITE_CUDAAPI"
COLLECTED = {"device_activity": {CUPTI: "collected", RUNTIME: "collected"}}
NONE = {"kernels": 0, "copies": 0, "device_ns": 0, "runtime_calls": 0, "runtime_ns": 0}


def activity(count: int, total_ns: int) -> Activity:
    return Activity(count, total_ns, {"k": (count, total_ns)})


def recording(*callees: str) -> tuple[Recording, dict[str, int]]:
    """Three steps of a program; and the number of the first call of each callee."""
    run = Recording()
    calls: dict[str, int] = {}
    for step in range(3):
        run.step = step
        for callee in callees:
            calls.setdefault(callee, run.call(callee, outputs={"out": "x"}))
    return run, calls


def with_activity(run: Recording, attribution: Attribution) -> CaptureView:
    return replace(view(run, receipts={0: COLLECTED}), activity={0: attribution})


@pytest.fixture
def collected() -> Comparison:
    """`step` is slower in the candidate, `old` and `new` are on one side, `load` does nothing."""
    sides = []
    for own, slow in (("old", 1), ("new", 4)):
        run, calls = recording("load", "step", own)
        found = Attribution()
        step, alone = CallRange(1, calls["step"]), CallRange(2, calls[own])
        found.calls[step] = {
            "direct": {"kernel": activity(6, 3000 * slow), "runtime": activity(7, 500)},
            "backward": {"kernel": activity(4, 2000), "memset": activity(1, 100)},
        }
        found.calls[alone] = {"direct": {"memcpy": activity(2, 10)}}
        found.others["tracer"] = {"kernel": activity(8, 800)}
        found.warnings["rows repaired"] = 2
        sides.append(with_activity(run, found))
    return compare_captures(*sides, align_by_callee(*sides), [0])


def located(comparison: Comparison, side: str, callee: str) -> dict[str, Any]:
    sites = getattr(comparison, side).sites.values()
    (site,) = [site for site in sites if site.callee == callee]
    return {
        "file": "train.py", "line": site.line, "end_line": site.end_line, "qualname": "main",
        "call": callee, "text": site.text,
    }  # fmt: skip


@pytest.mark.requirement("B11")
def test_document_sets_the_callsites_of_both_sides_next_to_each_other(
    collected: Comparison,
) -> None:
    found = document(collected)["device_activity"]
    assert found["states"] == dict.fromkeys(("baseline", "candidate"), COLLECTED["device_activity"])
    backward = NONE | {"kernels": 4, "copies": 1, "device_ns": 2100}
    direct = NONE | {"kernels": 6, "runtime_calls": 7, "runtime_ns": 500}

    def alone(side: str, callee: str) -> dict[str, Any]:
        figures = {"calls": 1, "direct": NONE | {"copies": 2, "device_ns": 10}, "backward": NONE}
        return {"rank": 0, "baseline": None, "candidate": None} | {
            side: located(collected, side, callee) | figures
        }

    assert found["callsites"] == [
        {
            "rank": 0,
            **{
                side: located(collected, side, "step")
                | {"calls": 1, "direct": direct | {"device_ns": ns}, "backward": backward}
                for side, ns in (("baseline", 3000), ("candidate", 12000))
            },
        },
        alone("baseline", "old"),
        alone("candidate", "new"),
    ]
    assert found["others"] == [
        {"rank": 0, "side": side, "reason": "tracer"} | NONE | {"kernels": 8, "device_ns": 800}
        for side in ("baseline", "candidate")
    ]
    assert found["warnings"] == [
        {"rank": 0, "side": side, "text": "rows repaired", "count": 2}
        for side in ("baseline", "candidate")
    ]
    assert json.loads(json.dumps(document(collected), allow_nan=False)) == document(collected)


def test_terminal_shows_the_longest_callsites_of_both_sides(collected: Comparison) -> None:
    text = render_text(document(collected))
    step, old, new = (
        located(collected, side, callee)["line"]
        for side, callee in (("baseline", "step"), ("baseline", "old"), ("candidate", "new"))
    )
    assert (
        "Time on the device by callsite:\n"
        f"  train.py:{step}  step(...)\n"
        "    baseline   0.005 ms, 10.0 kernels a call (0.002 ms of backward)\n"
        "    candidate  0.014 ms, 10.0 kernels a call (0.002 ms of backward)\n"
        f"  train.py:{old}  old(...)\n"
        "    baseline   0.000 ms, 0.0 kernels a call\n"
        "    candidate  absent\n"
        f"  train.py:{new}  new(...)\n"
        "    baseline   absent\n"
        "    candidate  0.000 ms, 0.0 kernels a call\n"
        "  baseline, rank 0: rows repaired\n"
        "  candidate, rank 0: rows repaired\n"
    ) in text


def test_page_shows_figures_and_what_no_call_caused(collected: Comparison, tmp_path: Path) -> None:
    page = write_reports(collected, tmp_path).html.read_text()
    assert "<h2>Time on the device by callsite</h2>" in page
    assert "0.014 ms, 10.0 kernels a call (0.002 ms of backward)" in page
    assert "0.001 ms and 0 runtime calls of the recorder itself (baseline, rank 0)" in page


def test_slices_of_calls_carry_their_figures(collected: Comparison) -> None:
    slices = perfetto_frames(collected, collected.ranks[0]).slices
    found = slices.filter(pl.col("track") == "candidate", pl.col("device_kernels").is_not_null())
    step, new = found.select("name", *ACTIVITY_COLUMNS).rows()
    assert step == ("step", 6, 0, 12000, 7, 500, 4, 1, 2100, 0, 0)
    assert new == ("new", 0, 2, 10, 0, 0, *(None,) * 5)
    assert slices.filter(pl.col("name") == "load")["device_ns"].null_count() == 6


@pytest.mark.requirement("B11")
def test_without_a_device_the_reason_stands_in_the_reports(tmp_path: Path) -> None:
    reason = "unavailable: this build of torch has no CUDA"
    receipt = {"device_activity": {CUPTI: reason, RUNTIME: "off"}}
    sides = [view(recording("step")[0], receipts={0: receipt}) for _ in range(2)]
    comparison = compare_captures(*sides, align_by_callee(*sides), [0])
    data = document(comparison)
    assert data["device_activity"] == {
        "states": {side: {CUPTI: reason, RUNTIME: "off"} for side in ("baseline", "candidate")},
        "callsites": [],
        "others": [],
        "warnings": [],
    }
    page = write_reports(comparison, tmp_path).html.read_text()
    assert page.count(reason) == 2
    assert "on the device" not in render_text(data)
    slices = perfetto_frames(comparison, comparison.ranks[0]).slices
    assert slices["device_ns"].null_count() == len(slices)


@pytest.mark.requirement("B11")
def test_figures_of_a_recorded_training_reach_every_report(tmp_path: Path) -> None:
    """On an A100; both sides have the same trace."""
    path = recorded_trace(DDP_TRAINING)
    callees = ("forward", "backward", "optimizer")
    run = Recording()
    ranges: dict[str, list[tuple[int, int]]] = {f"## {callee} ##": [] for callee in callees}
    for step in range(3):
        run.step = step
        for site, callee in enumerate(callees):
            call = run.call(callee, outputs={"out": "x"})
            ranges[f"## {callee} ##"].append((site, call))
    as_part_of_capture(path, tmp_path / "activity/rank-0.0.json.gz", ranges)
    attribution = read_activity(tmp_path, 0, {})
    assert attribution is not None
    sides = [with_activity(run, attribution) for _ in range(2)]
    comparison = compare_captures(*sides, align_by_callee(*sides), [0])
    reports = write_reports(comparison, tmp_path)

    data = json.loads(reports.summary.read_text())
    figures = {
        entry["baseline"]["call"]: (
            entry["baseline"]["direct"]["kernels"],
            entry["baseline"]["backward"]["kernels"],
        )
        for entry in data["device_activity"]["callsites"]
    }
    assert figures == {"forward": (879, 1215), "backward": (18, 12), "optimizer": (27, 0)}
    assert next(iter(figures)) == "forward"
    line = "109.005 ms, 698.0 kernels a call (70.237 ms of backward)"
    assert line in render_text(data)
    assert line in reports.html.read_text()
    trace = perfetto_trace_pb2.Trace()
    trace.ParseFromString(reports.ranks[0].path.read_bytes())
    names: dict[int, str] = {}
    kernels = 0
    for packet in trace.packet:
        for entry in packet.interned_data.debug_annotation_names:
            names[entry.iid] = entry.name
        for annotation in packet.track_event.debug_annotations:
            if names.get(annotation.name_iid) == "device_kernels":
                kernels += annotation.int_value or annotation.uint_value
    assert kernels == 2 * (879 + 18 + 27)
