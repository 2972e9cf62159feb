"""Every damage to a capture is found, and nothing damaged passes for complete."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import xorsig

Write = Callable[[xorsig.CaptureWriter, int], None]


@pytest.fixture
def finished(capture: Any, write_calls: Write) -> Any:
    """A capture of three batches of four records."""
    writer = capture.writer(max_batch_records=4)
    write_calls(writer, 3)
    assert writer.close()["batches"] == 3
    return capture


def damage(capture: Any, **expected: int) -> xorsig.CorruptBatchError:
    with pytest.raises(xorsig.CorruptBatchError) as caught:
        capture.verify(**expected)
    return caught.value


def test_flipped_bits_of_a_batch_are_found(capture: Any) -> None:
    """Every 13th bit; the Rust tests flip every bit of a fuller one."""
    writer = capture.writer()
    writer.mark(0, 0, 0, "")
    writer.close()
    path = capture.batch(0)
    content = path.read_bytes()
    for bit in range(0, 8 * len(content), 13):
        damaged = bytearray(content)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        error = damage(capture)
        assert (error.path, error.sequence) == (str(path), 0), f"bit {bit}"


def test_truncated_batches_are_found(finished: Any) -> None:
    path = finished.batch(2)
    content = path.read_bytes()
    for length in [*range(0, len(content), 7), len(content) - 1]:
        path.write_bytes(content[:length])
        assert damage(finished).sequence == 2, f"{length} bytes"


@pytest.mark.requirement("B6")
def test_missing_batches_are_found(finished: Any) -> None:
    finished.batch(2).unlink()
    assert damage(finished, expected_batches=3).sequence == 2
    assert damage(finished, expected_records=12).sequence is None
    finished.batch(0).unlink()
    assert damage(finished).sequence == 0


def test_extra_batches_are_found(finished: Any) -> None:
    assert damage(finished, expected_batches=2).sequence == 2


def test_swapped_and_duplicated_batches_are_found(finished: Any) -> None:
    first, second = finished.batch(0).read_bytes(), finished.batch(1).read_bytes()
    finished.batch(0).write_bytes(second)
    finished.batch(1).write_bytes(first)
    assert damage(finished).reason == "the batch is number 1 under another name"
    finished.batch(0).write_bytes(first)
    assert damage(finished).reason == "the batch is number 0 under another name"


def test_foreign_batches_are_found(finished: Any, write_calls: Write, tmp_path: Path) -> None:
    """Of another capture, another rank, and another writer of the same rank."""
    for name, identity in (
        ("capture", {"capture_id": "f" * 32, "rank": 0}),
        ("rank", {"capture_id": finished.capture_id, "rank": 1}),
        ("writer", {"capture_id": finished.capture_id, "rank": 0}),
    ):
        folder = tmp_path / name
        writer = xorsig.CaptureWriter(folder, folder / "staging", max_batch_records=4, **identity)
        write_calls(writer, 3)
        writer.close()
        own = finished.batch(1).read_bytes()
        finished.batch(1).write_bytes((folder / "batch-00000001.xsb").read_bytes())
        assert name in damage(finished).reason
        finished.batch(1).write_bytes(own)
    assert finished.verify()["batches"] == 3


def test_partial_tables_end_before_the_damage(finished: Any) -> None:
    finished.batch(1).write_bytes(b"")
    with pytest.raises(xorsig.CorruptBatchError):
        finished.materialize()
    assert not finished.tables.exists() or list(finished.tables.iterdir()) == []
    outcome = finished.materialize(partial=True)
    assert (outcome["complete"], outcome["batches"]) == (False, 1)
    assert str(finished.batch(1)) in outcome["reason"]
    assert len(pl.read_parquet(finished.tables / "calls.parquet")) == 1


def test_partial_tables_of_a_lost_end_are_not_complete(finished: Any) -> None:
    finished.batch(2).unlink()
    outcome = finished.materialize(partial=True, expected_batches=3)
    assert (outcome["complete"], outcome["batches"]) == (False, 2)


def test_error_carries_its_attributes_and_can_be_pickled(finished: Any) -> None:
    finished.batch(0).unlink()
    error = damage(finished)
    copy = pickle.loads(pickle.dumps(error))
    attributes = (str(finished.batch(0)), 0, "the batch is missing")
    assert (copy.path, copy.sequence, copy.reason) == attributes
    assert str(copy) == str(error)
    assert isinstance(error, ValueError)
    assert type(error).__module__ == "xorsig"


def test_receipts_round_trip_and_are_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "receipts" / "rank-0.receipt"
    xorsig.write_receipt(path, '{"größe": 1}')
    with pytest.raises(FileExistsError):
        xorsig.write_receipt(path, "{}")
    assert xorsig.read_receipt(path) == '{"größe": 1}'
    assert [entry.name for entry in path.parent.iterdir()] == ["rank-0.receipt"]
    with pytest.raises(FileNotFoundError):
        xorsig.read_receipt(tmp_path / "none")


def test_every_damage_to_a_receipt_is_found(tmp_path: Path) -> None:
    path = tmp_path / "rank-0.receipt"
    xorsig.write_receipt(path, '{"rank": 0}')
    content = path.read_bytes()
    flipped = [
        content[: bit // 8] + bytes([content[bit // 8] ^ 1 << bit % 8]) + content[bit // 8 + 1 :]
        for bit in range(8 * len(content))
    ]
    truncated = [content[:length] for length in range(len(content))]
    for damaged in [*flipped, *truncated, content + b"\n"]:
        path.write_bytes(damaged)
        with pytest.raises(xorsig.CorruptBatchError) as caught:
            xorsig.read_receipt(path)
        assert (caught.value.path, caught.value.sequence) == (str(path), None)
