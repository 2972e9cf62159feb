"""Writing a capture, verifying it, and turning it into tables."""

from __future__ import annotations

import os
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest

import xorsig

Write = Callable[[xorsig.CaptureWriter, int], None]
SIGNATURE = struct.pack("<8I", 1, 2, 3, 4, 5, 6, 7, 0xFFFFFFFF)


def records_of_every_kind(writer: xorsig.CaptureWriter) -> None:
    """One outer call that never ends, one inner call that raises, and the rest."""
    slot, callee = writer.intern("arg[0]"), writer.intern("torch.mm")
    strided = writer.layout("torch.float32", (2, 3), (3, 1), "cpu", "strided", 24)
    meta = writer.layout("torch.int64", (), None, "meta", "meta", 8)
    outer = writer.begin(0, 7, -1, 0, 0, 4, callee)
    inner = writer.begin(outer, 8, 5, 2, 3, 1, callee)
    writer.tensor(inner, 0, slot, strided, SIGNATURE)
    writer.tensor(inner, 1, writer.intern("out"), meta, None, writer.intern("no data"))
    writer.value(inner, 0, writer.intern("value.arg[1]"), "0.5")
    writer.end(inner, 1, 2, writer.intern("KeyError"))
    writer.mark(0, 6, writer.intern("step"), "")
    file, function = writer.intern("train.py"), writer.intern("main")
    writer.span(file, function, 3, 4, 8, -1, callee, 2, 1, 0)
    writer.span(file, function, 3, 4, 8, -1, callee, 5, 4, slot)
    writer.span(file, function, 3, 4, 8, -1, slot, 1, 0, 0)


def test_tables_hold_every_field(capture: Any) -> None:
    writer = capture.writer(max_batch_records=3)
    records_of_every_kind(writer)
    stats = writer.close()
    outcome = capture.materialize(
        expected_batches=stats["batches"], expected_records=stats["records"]
    )
    assert outcome == capture.verify() | {"complete": True, "reason": None}
    assert (outcome["batches"], outcome["records"], outcome["last_tick"]) == (4, 10, 7)
    tables = {path.stem: pl.read_parquet(path) for path in capture.tables.iterdir()}
    times = ["time_begin_ns", "time_end_ns"]
    assert tables["calls"]["call"].to_list() == [2, 1], "the call that never ended comes last"
    tables["calls"] = tables["calls"].sort("call")
    assert tables["calls"].drop(times).rows(named=True) == [
        {
            "call": 1, "parent": 0, "site": 7, "step": -1, "phase": 0, "thread": 0, "flags": 4,
            "callee": "torch.mm", "tick_end": None, "status": None, "error": None,
        },
        {
            "call": 2, "parent": 1, "site": 8, "step": 5, "phase": 2, "thread": 3, "flags": 3,
            "callee": "torch.mm", "tick_end": 6, "status": 1, "error": "KeyError",
        },
    ]  # fmt: skip
    outer, inner = tables["calls"].select(times).rows()
    assert 0 < outer[0] <= inner[0] <= inner[1]
    assert outer[1] is None
    assert tables["tensors"].rows(named=True) == [
        {
            "call": 2, "tick": 3, "role": 0, "slot": "arg[0]", "layout": 0,
            "xor_sig": [1, 2, 3, 4], "mix_sig": [5, 6, 7, 0xFFFFFFFF], "note": None,
        },
        {
            "call": 2, "tick": 4, "role": 1, "slot": "out", "layout": 1,
            "xor_sig": None, "mix_sig": None, "note": "no data",
        },
    ]  # fmt: skip
    assert tables["layouts"].rows(named=True) == [
        {
            "layout": 0, "dtype": "torch.float32", "shape": [2, 3], "strides": [3, 1],
            "device": "cpu", "kind": "strided", "logical_nbytes": 24,
        },
        {
            "layout": 1, "dtype": "torch.int64", "shape": [], "strides": None,
            "device": "meta", "kind": "meta", "logical_nbytes": 8,
        },
    ]  # fmt: skip
    assert tables["values"].rows(named=True) == [
        {"call": 2, "tick": 5, "role": 0, "slot": "value.arg[1]", "value": "0.5"}
    ]
    assert tables["marks"].drop("time_ns").rows(named=True) == [
        {"tick": 7, "kind": 0, "step": 6, "name": "step", "value": ""}
    ]
    span = {
        "file": "train.py", "qualname": "main", "line": 3, "end_line": 4, "col": 8, "end_col": -1,
    }  # fmt: skip
    assert tables["spans"].rows(named=True) == [
        span | {"operator": "torch.mm", "count": 7, "flags": 5, "example": "arg[0]"},
        span | {"operator": "arg[0]", "count": 1, "flags": 0, "example": ""},
    ]


def test_tables_have_the_documented_types(capture: Any) -> None:
    capture.writer().close()
    capture.materialize()
    u8, u32, u64, i32, i64, text = pl.UInt8, pl.UInt32, pl.UInt64, pl.Int32, pl.Int64, pl.String
    expected = {
        "calls": {
            "call": u64, "parent": u64, "site": u32, "step": i64, "phase": u8, "thread": u32,
            "flags": u32, "callee": text, "time_begin_ns": u64, "tick_end": u64, "time_end_ns": u64,
            "status": u8, "error": text,
        },
        "tensors": {
            "call": u64, "tick": u64, "role": u8, "slot": text, "layout": u32,
            "xor_sig": pl.List(u32), "mix_sig": pl.List(u32), "note": text,
        },
        "layouts": {
            "layout": u32, "dtype": text, "shape": pl.List(i64), "strides": pl.List(i64),
            "device": text, "kind": text, "logical_nbytes": u64,
        },
        "values": {"call": u64, "tick": u64, "role": u8, "slot": text, "value": text},
        "marks": {
            "tick": u64, "time_ns": u64, "kind": u8, "step": i64, "name": text, "value": text,
        },
        "spans": {
            "file": text, "qualname": text, "line": i32, "end_line": i32, "col": i32,
            "end_col": i32, "operator": text, "count": u64, "flags": u32, "example": text,
        },
    }  # fmt: skip
    schemas = {path.stem: dict(pl.read_parquet_schema(path)) for path in capture.tables.iterdir()}
    assert schemas == expected


def test_duckdb_reads_the_tables_as_polars_does(capture: Any) -> None:
    writer = capture.writer(max_batch_records=3)
    records_of_every_kind(writer)
    writer.close()
    capture.materialize()
    for path in capture.tables.iterdir():
        with duckdb.connect() as connection:
            found = connection.execute(f"select * from read_parquet('{path}')").fetchall()
        assert found == pl.read_parquet(path).rows(), path.name


def test_threads_read_what_one_thread_reads(capture: Any, write_calls: Write) -> None:
    writer = capture.writer(max_batch_records=16)
    write_calls(writer, 200)
    assert writer.close()["batches"] == 50
    assert capture.verify(threads=1) == capture.verify(threads=3) == capture.verify()
    capture.materialize(threads=1)
    alone = {path.name: path.read_bytes() for path in capture.tables.iterdir()}
    capture.materialize(threads=4)
    assert {path.name: path.read_bytes() for path in capture.tables.iterdir()} == alone
    capture.batch(30).unlink()
    capture.batch(31).unlink()
    for threads in (1, 4):
        with pytest.raises(xorsig.CorruptBatchError) as caught:
            capture.verify(threads=threads)
        assert caught.value.sequence == 30
        assert caught.value.reason == "the batch is missing, and those up to 31"


def test_tensors_of_an_event_are_recorded_in_one_call(capture: Any) -> None:
    writer = capture.writer()
    layout = writer.layout("torch.float32", (2, 3), (3, 1), "cpu", "strided", 24)
    call = writer.begin(0, 0, 0, 0, 0, 0, 0)
    slot, note = writer.intern("arg[0]"), writer.intern("no data")
    writer.tensors(call, 1, [(slot, layout, SIGNATURE, 0), (slot, layout, None, note)])
    writer.tensors(call, 0, [])
    with pytest.raises(ValueError, match="layout_id"):
        writer.tensors(call, 1, [(slot, layout, None, 0), (slot, 9, None, 0)])
    with pytest.raises(ValueError, match="length 4"):
        writer.tensors(call, 1, [(slot, layout)])  # type: ignore[list-item]
    writer.close()
    capture.materialize()
    tensors = pl.read_parquet(capture.tables / "tensors.parquet")
    assert tensors.select("tick", "role", "xor_sig", "note").rows() == [
        (2, 1, [1, 2, 3, 4], None),
        (3, 1, None, "no data"),
        # What preceded the row that was refused.
        (4, 1, None, None),
    ]


def test_ids_are_stable_across_batches(capture: Any) -> None:
    writer = capture.writer(max_batch_records=1)
    ids = []
    for _ in range(3):
        ids.append((writer.intern(""), writer.intern("a"), writer.intern("b")))
        writer.mark(1, 0, writer.intern("a"), "b")
    assert ids == [(0, 1, 2)] * 3
    assert writer.close()["batches"] == 3
    capture.materialize()
    marks = pl.read_parquet(capture.tables / "marks.parquet")
    assert marks.select("name", "value").rows() == [("a", "b")] * 3


def test_flush_publishes_what_was_recorded(capture: Any, write_calls: Write) -> None:
    writer = capture.writer()
    write_calls(writer, 2)
    assert not capture.batch(0).exists()
    writer.flush()
    size = capture.batch(0).stat().st_size
    assert writer.stats() == {
        "batches": 1, "records": 8, "withdrawn": 0, "bytes": size, "blocked": 0, "blocked_ns": 0,
    }  # fmt: skip
    writer.flush()
    assert writer.close() == writer.stats()
    assert [path.name for path in capture.directory.iterdir()] == ["batch-00000000.xsb"]
    assert list(capture.staging.iterdir()) == []


def test_threads_share_a_writer(capture: Any, write_calls: Write) -> None:
    """Small batches and a short queue, so that threads meet at the lock and at the queue."""
    writer = capture.writer(max_batch_records=16, queue_batches=1)
    threads = [threading.Thread(target=write_calls, args=(writer, 100)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stats = writer.close()
    assert stats["records"] == 4 * 100 * 4
    assert capture.verify(expected_records=1600)["last_tick"] == 1600
    capture.materialize()
    calls = pl.read_parquet(capture.tables / "calls.parquet")
    assert calls["call"].is_unique().all()
    assert calls.select(pl.col("tick_end").null_count()).item() == 0


def test_dropped_writer_publishes_what_it_has(capture: Any, write_calls: Write) -> None:
    writer = capture.writer()
    write_calls(writer, 1)
    del writer
    assert capture.verify()["records"] == 4


def test_closed_writer_refuses_records(capture: Any) -> None:
    writer = capture.writer()
    writer.close()
    with pytest.raises(ValueError, match="closed"):
        writer.intern("a")
    with pytest.raises(ValueError, match="closed"):
        writer.flush()


def test_wrong_arguments_are_refused(capture: Any) -> None:
    for options, message in (
        ({"capture_id": "xyz"}, "32 hexadecimal"),
        ({"regions": 65}, "regions"),
        ({"max_batch_records": 0}, "max_batch_records"),
        ({"queue_batches": 0}, "queue_batches"),
    ):
        with pytest.raises(ValueError, match=message):
            capture.writer(**options)
    writer = capture.writer()
    for call, message in (
        (lambda: writer.tensor(0, 0, 0, 0, None), "layout_id"),
        (lambda: writer.value(5, 0, 0, ""), "tick"),
        (lambda: writer.value(0, 9, 0, ""), "role"),
        (lambda: writer.mark(0, 0, 77, ""), "name id"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(OverflowError):
        writer.mark(256, 0, 0, "")


def test_publish_error_is_raised_from_then_on(capture: Any, write_calls: Write) -> None:
    writer = capture.writer()
    capture.batch(0).write_bytes(b"taken")
    write_calls(writer, 1)
    for call in (writer.flush, lambda: writer.mark(0, 0, 0, ""), writer.close, writer.close):
        with pytest.raises(FileExistsError) as caught:
            call()
        assert caught.value.filename == str(capture.batch(0))
    assert capture.batch(0).read_bytes() == b"taken"


def test_directory_of_another_writer_is_refused(capture: Any, write_calls: Write) -> None:
    writer = capture.writer()
    write_calls(writer, 1)
    writer.close()
    with pytest.raises(FileExistsError) as caught:
        capture.writer()
    assert caught.value.filename == str(capture.batch(0))


def test_staging_on_another_file_system_is_copied(
    capture: Any, write_calls: Write, tmp_path: Path
) -> None:
    other = Path("/dev/shm")
    if not other.is_dir() or other.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system at /dev/shm")
    staging = other / f"xorsig-test-{os.getpid()}"
    writer = xorsig.CaptureWriter(capture.directory, staging, capture_id=capture.capture_id, rank=0)
    write_calls(writer, 3)
    writer.close()
    assert list(staging.iterdir()) == []
    staging.rmdir()
    assert [path.name for path in capture.directory.iterdir()] == ["batch-00000000.xsb"]
    assert capture.verify()["records"] == 12


def test_missing_directory_is_an_os_error(capture: Any) -> None:
    with pytest.raises(FileNotFoundError):
        capture.verify()


def test_tables_of_an_earlier_run_are_replaced(capture: Any, write_calls: Write) -> None:
    writer = capture.writer()
    write_calls(writer, 2)
    writer.close()
    capture.tables.mkdir(parents=True)
    (capture.tables / "calls.parquet").write_text("old")
    capture.materialize()
    assert len(pl.read_parquet(capture.tables / "calls.parquet")) == 2
    names = sorted(path.name for path in capture.tables.iterdir())
    assert names == [
        "calls.parquet", "layouts.parquet", "marks.parquet", "spans.parquet", "tensors.parquet",
        "values.parquet",
    ]  # fmt: skip
