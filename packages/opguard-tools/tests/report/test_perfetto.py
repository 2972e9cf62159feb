from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from capture_builders import Recording, align_by_callee, view
from perfetto.protos.perfetto.trace import perfetto_trace_pb2

from opguard.tools.compare import Comparison, compare_captures
from opguard.tools.report.perfetto import perfetto_frames, write_rank_trace


def compare(
    baseline: Recording, candidate: Recording, *, candidate_ended: str | None = None
) -> Comparison:
    left = view(baseline)
    right = view(candidate, incomplete={0: candidate_ended} if candidate_ended else None)
    return compare_captures(left, right, align_by_callee(left, right), [0])


def small() -> Comparison:
    """Two nested pairs, the inner one different; a call of each side alone."""
    sides = Recording(), Recording()
    for run, out in zip(sides, ("y", "z"), strict=True):
        with run.nest("model", inputs={"arg[0]": "x"}, outputs={"out": out}):
            inner = run.call("linear", inputs={"arg[0]": "x"}, outputs={"out": out})
        run.call("left" if run is sides[0] else "right", outputs={"out": "s"})
        run.gradient(inner, "grad.out", "g")
    return compare(*sides)


def rows(frame: pl.DataFrame, *names: str) -> list[tuple[Any, ...]]:
    return frame.select(names).rows()


def test_calls_differences_and_calls_of_one_side_have_tracks_of_their_own() -> None:
    comparison = small()

    frames = perfetto_frames(comparison, comparison.ranks[0])

    assert rows(frames.slices, "id", "track", "name", "relation", "counterpart") == [
        (2, "baseline", "model", "different", 1),
        (4, "baseline", "linear", "different", 2),
        (6, "baseline", "left", "unpaired", None),
        (3, "candidate", "model", "different", 1),
        (5, "candidate", "linear", "different", 2),
        (7, "candidate", "right", "unpaired", None),
        (2**62, "differences", "different: model", "different", 1),
        (2**62 + 1, "differences", "different: linear", "different", 2),
        (2**62 + 2, "differences", "unpaired: left", "unpaired", None),
        (2**62 + 3, "candidate only", "right", "unpaired", None),
    ]


def test_origin_is_annotated_at_its_slices() -> None:
    comparison = small()

    slices = perfetto_frames(comparison, comparison.ranks[0]).slices

    marked = slices.filter(pl.col("origin").is_not_null())
    assert rows(marked, "track", "origin", "why") == [
        (track, "outputs_differ", "inputs equal, outputs differ")
        for track in ("baseline", "candidate", "differences")
    ]


def test_flows_tie_paired_calls() -> None:
    comparison = small()

    assert perfetto_frames(comparison, comparison.ranks[0]).flows.rows() == [(1, 2, 3), (2, 4, 5)]


def test_slots_carry_the_relation_of_their_values() -> None:
    comparison = small()

    slots = perfetto_frames(comparison, comparison.ranks[0]).slots

    side = [
        ("arg[0]", "input", "equal"),
        ("out", "output", "different"),
        ("arg[0]", "input", "equal"),
        ("out", "output", "different"),
        ("grad.out", "gradient", "equal"),
        ("out", "output", "unpaired"),
    ]
    assert rows(slots, "slot", "role", "relation") == side * 2
    assert rows(slots.head(1), "regions", "logical_nbytes", "dtype") == [(4, 64, "float32")]


def test_a_thread_has_a_track_of_its_own() -> None:
    sides = Recording(), Recording()
    for run in sides:
        run.call("main")
        run.call("worker", thread=99)

    comparison = compare(*sides)

    tracks = perfetto_frames(comparison, comparison.ranks[0]).slices["track"].to_list()
    assert tracks == ["baseline", "baseline thread 1", "candidate", "candidate thread 1"]


@pytest.mark.requirement("B13")
def test_a_call_that_never_ended_lasts_to_the_end_and_its_missing_slots_are_incomplete() -> None:
    sides = Recording(), Recording()
    for run in sides:
        with run.nest("f", inputs={"arg[0]": "x"}, outputs={"out": "y"}, ends=run is sides[0]):
            run.call("g")

    comparison = compare(*sides, candidate_ended="killed")
    frames = perfetto_frames(comparison, comparison.ranks[0])

    cut = frames.slices.filter((pl.col("track") == "candidate") & (pl.col("name") == "f"))
    assert rows(cut, "status", "relation", "dur_ns") == [("never ended", "incomplete", 3000)]
    assert rows(frames.slots, "slot", "relation") == [
        ("arg[0]", "equal"),
        ("out", "incomplete"),
        ("arg[0]", "equal"),
    ]


def test_a_candidate_call_lies_after_the_calls_that_precede_it() -> None:
    baseline, candidate = Recording(), Recording()
    for run in (baseline, candidate):
        run.call("a", outputs={"out": "x"})
        if run is candidate:
            run.call("log")
        run.call("b", outputs={"out": "y"})

    comparison = compare(baseline, candidate)
    slices = perfetto_frames(comparison, comparison.ranks[0]).slices

    end_of_a = slices.filter(pl.col("name") == "a")["dur_ns"][0] + slices["ts_ns"][0]
    only = slices.filter(pl.col("track") == "candidate only")
    assert rows(only, "ts_ns", "dur_ns") == [(end_of_a, 0)]


@pytest.mark.requirement("E1", "F7")
def test_written_trace_holds_every_slice_flow_and_layout(tmp_path: Path) -> None:
    comparison = small()
    path = tmp_path / "rank-0.perfetto-trace"

    write_rank_trace(comparison, comparison.ranks[0], path)

    trace = perfetto_trace_pb2.Trace()
    trace.ParseFromString(path.read_bytes())
    events = [p.track_event for p in trace.packet if p.HasField("track_event")]
    kinds = Counter(event.type for event in events)
    assert kinds[events[0].TYPE_SLICE_BEGIN] == kinds[events[0].TYPE_SLICE_END] == 10
    flows = Counter(
        flow for event in events for flow in (*event.flow_ids, *event.terminating_flow_ids)
    )
    assert sorted(flows.values()) == [2, 2]
    names = {
        entry.str.decode() if isinstance(entry.str, bytes) else entry.str
        for packet in trace.packet
        for entry in packet.interned_data.debug_annotation_string_values
    }
    assert {"different", "unpaired", "flat-u32-le-v1", "flat-u32-mix-v1"} <= names
