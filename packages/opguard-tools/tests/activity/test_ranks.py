"""The activity of a rank: parts of a collection, kinds that are off, files that are damaged."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from recorded_traces import DDP_TRAINING, as_part_of_capture, recorded_trace

from opguard.tools.activity import CallRange, Figures, callsite_figures, read_activity

CUPTI, RUNTIME = "OPGUARD_CALLSITE_CUPTI", "OPGUARD_CALLSITE_CUDAAPI"


def row(category: str, name: str, start: int, duration: int, **args: Any) -> dict[str, Any]:
    where = {"pid": 1, "tid": 1, "ts": start, "dur": duration}
    return {"ph": "X", "cat": category, "name": name, **where, "args": args}


def part(capture: Path, name: str, call: int, kernels: int) -> None:
    """A part of a collection: one call of callsite 5 with kernels of 2 µs and a copy of 3 µs."""
    rows = [row("user_annotation", f"opguard:call:5:{call}", 100, 50)]
    for number in range(1, kernels + 2):
        rows.append(row("cuda_runtime", "cudaLaunchKernel", 100 + number, 1, correlation=number))
        rows.append(row("kernel", "k", 200, 2, correlation=number))
    rows[-1] |= {"cat": "gpu_memcpy", "dur": 3}
    path = capture / "activity" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": rows}).encode()))


def test_all_parts_of_the_rank_count_and_those_of_others_do_not(tmp_path: Path) -> None:
    for number in range(11):
        part(tmp_path, f"rank-1.{number}.json.gz", call=number + 1, kernels=2)
    part(tmp_path, "rank-11.0.json.gz", call=1, kernels=100)
    part(tmp_path, ".rank-1.11.json.gz", call=1, kernels=100)
    found = read_activity(tmp_path, 1, {})
    assert found is not None
    assert list(found.calls) == [CallRange(5, call) for call in range(1, 12)]
    figures = callsite_figures(found)[5]
    assert (figures.calls, figures.backward) == (11, Figures())
    assert figures.direct == Figures(22, 11, 11 * 7000, 33, 33_000)


def test_a_rank_that_collected_nothing_has_no_activity(tmp_path: Path) -> None:
    assert read_activity(tmp_path, 0, {}) is None


@pytest.mark.requirement("B11")
@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ({CUPTI: "off", RUNTIME: "collected"}, Figures(0, 0, 0, 3, 3000)),
        ({CUPTI: "collected", RUNTIME: "off"}, Figures(2, 1, 7000, 0, 0)),
        ({CUPTI: "collected", RUNTIME: "collected"}, Figures(2, 1, 7000, 3, 3000)),
    ],
)
def test_a_kind_that_is_off_is_left_out(
    states: dict[str, str], expected: Figures, tmp_path: Path
) -> None:
    part(tmp_path, "rank-0.0.json.gz", call=1, kernels=2)
    found = read_activity(tmp_path, 0, states)
    assert found is not None
    assert callsite_figures(found)[5].direct == expected


def test_a_part_that_cannot_be_read_is_a_warning(tmp_path: Path) -> None:
    part(tmp_path, "rank-0.0.json.gz", call=1, kernels=2)
    (tmp_path / "activity/rank-0.1.json.gz").write_bytes(b"nothing")
    found = read_activity(tmp_path, 0, {})
    assert found is not None
    assert len(found.calls) == 1
    (warning,) = found.warnings
    assert warning.startswith("rank-0.1.json.gz is left out: ")


@pytest.mark.requirement("B11")
def test_kernels_of_a_recorded_training_belong_to_its_callsites(tmp_path: Path) -> None:
    """On an A100: what forward, backward and optimizer of three steps launched."""
    ranges = {
        f"## {name} ##": [(site, 10 * site + step) for step in range(3)]
        for site, name in enumerate(("forward", "backward", "optimizer"), 1)
    }
    target = tmp_path / "activity/rank-0.0.json.gz"
    as_part_of_capture(recorded_trace(DDP_TRAINING), target, ranges)
    found = read_activity(tmp_path, 0, {})
    assert found is not None
    assert not found.warnings
    figures = callsite_figures(found)
    kernels = {site: (f.direct.kernels, f.backward.kernels) for site, f in figures.items()}
    assert kernels == {1: (879, 1215), 2: (18, 12), 3: (27, 0)}
    assert [f.calls for f in figures.values()] == [3, 3, 3]
    (apart,) = (Figures.of(kinds) for kinds in found.others.values())
    assert apart.kernels == 2700 - 879 - 1215 - 18 - 12 - 27
    assert figures[1].direct.device_ns == 38_768_022
    assert figures[1].direct.kernels == kernels_launched_in(target, "opguard:call:1:")
    assert figures[3].direct.kernels == kernels_launched_in(target, "opguard:call:3:")


def kernels_launched_in(trace: Path, prefix: str) -> int:
    """Kernels whose launch lies in a range of its thread, counted in the simplest way."""
    with gzip.open(trace) as file:
        rows = [row for row in json.load(file)["traceEvents"] if row.get("ph") == "X"]
    ranges = [row for row in rows if row["name"].startswith(prefix)]
    launches = {
        row["args"]["correlation"]: row
        for row in rows
        if row["cat"] == "cuda_runtime" and "correlation" in row["args"]
    }
    started = [launches[row["args"]["correlation"]] for row in rows if row["cat"] == "kernel"]
    return sum(
        any(
            around["tid"] == launch["tid"]
            and around["ts"] <= launch["ts"] <= around["ts"] + around["dur"]
            for around in ranges
        )
        for launch in started
    )
