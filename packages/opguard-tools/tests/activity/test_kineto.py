"""Rows of Kineto traces are read, and their activity is attributed to the calls that caused it."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from opguard_cases import shared_folder

from opguard.tools.activity import CallRange, KinetoError, attribute, read_rows

FIRST, SECOND = CallRange(3, 7), CallRange(4, 9)


def row(category: str, name: str, start: float, duration: float, **more: Any) -> dict[str, Any]:
    where = {"pid": 1, "tid": more.pop("tid", 1)}
    return (
        {"ph": "X", "cat": category, "name": name, "ts": start, "dur": duration}
        | where
        | {"args": more}
    )


def kernel(name: str, correlation: int, start: float = 500, duration: float = 2) -> dict[str, Any]:
    return row("kernel", name, start, duration, tid=7, correlation=correlation)


def launch(start: float, correlation: int, tid: int = 1) -> dict[str, Any]:
    return row("cuda_runtime", "cudaLaunchKernel", start, 1, tid=tid, correlation=correlation)


def write(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": rows, "traceName": "t"}))
    return path


def counts(rows: list[dict[str, Any]], tmp_path: Path) -> tuple[dict[Any, Any], dict[Any, Any]]:
    found = attribute(read_rows(write(tmp_path / "t.json", rows), Counter()))
    calls = {
        (call, direction, kind): (activity.count, activity.total_ns)
        for call, directions in found.calls.items()
        for direction, kinds in directions.items()
        for kind, activity in kinds.items()
    }
    others = {(r, k): a.count for r, kinds in found.others.items() for k, a in kinds.items()}
    return calls, others


def test_a_kernel_belongs_to_the_innermost_call_open_at_its_launch(tmp_path: Path) -> None:
    rows = [
        kernel("inner", 1, duration=2.5),
        kernel("outer", 2),
        kernel("own", 3),
        kernel("after", 4),
        kernel("other thread", 5),
        kernel("older", 6),
        row("gpu_memcpy", "Memcpy HtoD", 600, 4, tid=7, correlation=2),
        row("cpu_op", "opguard:call:3:7", 100, 100),
        row("cpu_op", "opguard:call:4:9", 120, 20),
        row("cpu_op", "opguard:own", 150, 10),
        launch(125, 1),
        launch(141, 2),
        launch(155, 3),
        launch(201, 4),
        launch(125, 5, tid=2),
    ]
    calls, others = counts(rows, tmp_path)
    assert calls == {
        (SECOND, "direct", "kernel"): (1, 2500),
        (SECOND, "direct", "runtime"): (1, 1000),
        (FIRST, "direct", "kernel"): (1, 2000),
        (FIRST, "direct", "memcpy"): (1, 4000),
        (FIRST, "direct", "runtime"): (1, 1000),
    }
    assert others == {
        ("tracer", "kernel"): 1,
        ("tracer", "runtime"): 1,
        ("outside_calls", "kernel"): 2,
        ("outside_calls", "runtime"): 2,
        ("no_launch", "kernel"): 1,
    }


def test_a_kernel_of_the_engines_thread_belongs_to_the_backward_of_the_call(
    tmp_path: Path,
) -> None:
    arrow = {"cat": "fwdbwd", "name": "fwdbwd", "id": 5, "pid": 1}
    rows = [
        row("cpu_op", "opguard:call:3:7", 100, 50),
        row("cpu_op", "aten::mm", 110, 10, **{"Sequence number": 2}),
        arrow | {"ph": "s", "tid": 1, "ts": 110},
        row("cpu_op", "MmBackward0", 300, 20, tid=2, **{"Sequence number": 2}),
        arrow | {"ph": "f", "tid": 2, "ts": 300},
        launch(305, 1, tid=2),
        kernel("gradient", 1),
    ]
    calls, others = counts(rows, tmp_path)
    assert calls[FIRST, "backward", "kernel"] == (1, 2000)
    assert not others


def test_activity_of_a_callsite_is_the_sum_over_its_calls(tmp_path: Path) -> None:
    rows = [row("cpu_op", f"opguard:call:3:{call}", 100 * call, 50) for call in (1, 2)]
    rows += [launch(110, 1), launch(210, 2), launch(220, 3)]
    rows += [kernel("a", 1), kernel("a", 2, duration=3), kernel("b", 3, duration=4)]

    found = attribute(read_rows(write(tmp_path / "t.json", rows), Counter())).callsites()

    kernels = found[3]["direct"]["kernel"]
    assert (kernels.count, kernels.total_ns) == (3, 9000)
    assert kernels.names == {"a": (2, 5000), "b": (1, 4000)}


def test_a_kernel_without_a_launch_belongs_to_the_operator_that_it_names(tmp_path: Path) -> None:
    """Some libraries report all of their kernels under correlation 0, and launches as well."""
    rows = [
        row("cpu_op", "opguard:call:3:7", 100, 50),
        row("cpu_op", "aten::mm", 110, 10, **{"External id": 4}),
        launch(400, 0),
        row("kernel", "k", 500, 2, tid=7, correlation=0, **{"External id": 4}),
        row("kernel", "earlier", 105, 2, tid=7, correlation=0, **{"External id": 4}),
    ]
    calls, others = counts(rows, tmp_path)
    assert calls == {(FIRST, "direct", "kernel"): (1, 2000)}
    assert others == {("no_launch", "kernel"): 1, ("outside_calls", "runtime"): 1}


def test_a_range_that_rounding_makes_outlive_the_one_around_it_ends_with_it(tmp_path: Path) -> None:
    rows = [
        row("cpu_op", "opguard:call:3:7", 100, 50),
        row("cpu_op", "opguard:call:4:9", 120, 31),
        launch(150.5, 1),
        kernel("after", 1),
    ]
    _, others = counts(rows, tmp_path)
    assert others == {("outside_calls", "kernel"): 1, ("outside_calls", "runtime"): 1}


def test_launches_without_any_kernel_leave_device_time_unknown(tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", [launch(125, 1)])
    assert any("unknown" in text for text in attribute(read_rows(path, Counter())).warnings)


def test_times_are_exact_nanoseconds_of_large_clocks(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text('[{"ph":"X","cat":"kernel","name":"k","ts":5130033718448.279,"dur":0.001}]')
    (only,) = read_rows(path, Counter())
    assert (only.start, only.duration) == (5130033718448279, 1)


@pytest.mark.parametrize(
    "damaged",
    [
        '"name": "k<"tag">"',
        '"name": "C:\\kernels\\k"',
        '"name": "k", "bw": inf',
        '"name": "k\udcff"',
    ],
)
def test_a_damaged_row_is_repaired_and_its_neighbours_are_read(
    damaged: str, tmp_path: Path
) -> None:
    sound = '{"ph": "X", "cat": "kernel", "ts": 5, "dur": 1, "name": "sound"}'
    broken = f'{{"ph": "X", "cat": "kernel", "ts": 5, "dur": 1, {damaged}}}'
    text = f'{{"traceEvents": [{sound}, {broken}, {sound}]}}'
    path = tmp_path / "t.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    warnings: Counter[str] = Counter()
    names = [found.name for found in read_rows(path, warnings)]
    assert [names[0], len(names), names[2]] == ["sound", 3, "sound"]
    assert names[1].startswith(("k", "C:"))
    assert warnings.total() == 1


@pytest.mark.parametrize("packed", [False, True])
def test_a_file_that_ends_in_the_middle_gives_the_rows_until_there(
    packed: bool, tmp_path: Path
) -> None:
    rows = [kernel(f"k{number}", number + 1) for number in range(5000)]
    data = write(tmp_path / "t.json", rows).read_bytes()
    path = tmp_path / "cut.json"
    path.write_bytes(gzip.compress(data)[:-4000] if packed else data[: len(data) // 2])
    warnings: Counter[str] = Counter()
    names = [found.name for found in read_rows(path, warnings)]
    assert names == [f"k{number}" for number in range(len(names))]
    assert 0 < len(names) < 5000
    assert any("ends in the middle" in text for text in warnings)


def test_rows_before_damage_in_a_packed_file_are_read(tmp_path: Path) -> None:
    """The members of a packed file follow each other; the second one is damaged."""
    rows = [kernel(f"k{number}", number + 1) for number in range(5000)]
    data = write(tmp_path / "t.json", rows).read_bytes()
    second = bytearray(gzip.compress(data[len(data) // 2 :]))
    second[len(second) // 2 : len(second) // 2 + 64] = bytes(64)
    path = tmp_path / "damaged.json"
    path.write_bytes(gzip.compress(data[: len(data) // 2]) + second)
    warnings: Counter[str] = Counter()
    names = [found.name for found in read_rows(path, warnings)]
    assert len(names) > 2000
    assert names[:2000] == [f"k{number}" for number in range(2000)]
    assert any("gzip stream is damaged" in text for text in warnings)


def test_rows_without_usable_times_are_left_out_and_counted(tmp_path: Path) -> None:
    sound = kernel("sound", 1)
    bad = [sound | {"ts": 0}, sound | {"ts": "now"}, sound | {"dur": -1}, sound | {"dur": None}]
    warnings: Counter[str] = Counter()
    found = list(read_rows(write(tmp_path / "t.json", [*bad, sound]), warnings))
    assert [only.name for only in found] == ["sound"]
    assert list(warnings.values()) == [4]


@pytest.mark.parametrize("content", [b"", b"{}", b"not JSON", b'{"traceEvents": [{"ph'])
def test_what_is_no_trace_is_refused_by_name(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_bytes(content)
    with pytest.raises(KinetoError, match=r"t\.json"):
        list(read_rows(path, Counter()))


def _annotation(name: str) -> CallRange | None:
    return CallRange(0, 0) if name.startswith(("ProfilerStep", "##", "[param")) else None


@pytest.mark.parametrize(
    ("name", "kernels", "calls"),
    [
        ("nvidia_a100_alexnet_cuda_sync", 79, 361),
        ("nvidia_a100_ddp_rank0of2_train", 2700, 8740),
        ("nvidia_h100_bert_infer", 60, 132),
        ("amd_mi300x_bert_infer", 60, 161),
    ],
)
def test_every_activity_of_a_recorded_trace_is_counted_once(
    name: str, kernels: int, calls: int
) -> None:
    path = shared_folder() / "data" / "runner" / "kineto" / f"{name}.json.gz"
    if not path.exists():
        pytest.skip(f"{path} is not here")
    warnings: Counter[str] = Counter()
    found = attribute(read_rows(path, warnings), label=_annotation)
    assert not warnings
    totals: Counter[str] = Counter()
    for kinds in (*found.others.values(), *(k for d in found.calls.values() for k in d.values())):
        for kind, activity in kinds.items():
            totals[kind] += activity.count
    assert (totals["kernel"], totals["runtime"]) == (kernels, calls)
    # Every kernel of these traces has its launch in them, and those of a step are found.
    assert "no_launch" not in found.others
    assert found.callsites()[0]["direct"]["kernel"].count > 0
