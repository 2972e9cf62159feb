"""Signatures that arrive after their records: from another thread, across forks, or never."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from typing import Any

import polars as pl
import pytest

import xorsig

NOT_ARRIVED = "its fingerprint did not arrive from the device"


def signature(value: int) -> bytes:
    return value.to_bytes(4, "little") * 8


def record(
    writer: xorsig.CaptureWriter,
    pending: xorsig.PendingSignature | bytes,
    unless: xorsig.PendingSignature | None = None,
) -> int:
    layout = writer.layout("torch.float32", (2, 3), (3, 1), "cuda:0", "strided", 24)
    return writer.tensor(0, 1, 0, layout, pending, 0, unless)


def recorded(capture: Any) -> list[tuple[int, int | None, str | None]]:
    """Tick, value and note of every tensor."""
    capture.materialize()
    rows = pl.read_parquet(capture.tables / "tensors.parquet")
    found = []
    for row in rows.iter_rows(named=True):
        values = row["xor_sig"]
        assert values == row["mix_sig"]
        assert values is None or values == [values[0]] * 4
        found.append((row["tick"], None if values is None else values[0], row["note"]))
    return found


@pytest.mark.requirement("F9")
def test_another_thread_brings_the_signatures_while_the_queue_is_full(capture: Any) -> None:
    writer = capture.writer(max_batch_records=16, queue_batches=2)
    pending = [xorsig.PendingSignature() for _ in range(500)]

    def bring() -> None:
        while writer.stats()["blocked"] == 0:
            pass
        for first in reversed(range(0, 500, 10)):
            part = range(first, first + 10)
            data = b"".join(signature(value) for value in part)
            writer.resolve([pending[value] for value in part], data)

    thread = threading.Thread(target=bring)
    thread.start()
    for item in pending:
        record(writer, item)
    thread.join()
    stats = writer.close()
    assert (stats["records"], stats["withdrawn"], stats["blocked"] > 0) == (500, 0, True)
    assert recorded(capture) == [(value + 1, value, None) for value in range(500)]
    assert [item.value for item in pending] == [signature(value) for value in range(500)]


def test_a_record_is_withdrawn_if_nothing_has_changed(capture: Any) -> None:
    writer = capture.writer()
    before, same, other = (xorsig.PendingSignature() for _ in range(3))
    record(writer, before)
    record(writer, same, unless=before)
    record(writer, other, unless=before)
    writer.resolve([other, same, before], signature(2) + signature(1) + signature(1))
    assert writer.close()["withdrawn"] == 1
    assert recorded(capture) == [(1, 1, None), (3, 2, None)]
    assert capture.verify(expected_records=2)["last_tick"] == 3


def test_signatures_are_equal_to_themselves_alone() -> None:
    first, second = xorsig.PendingSignature(), xorsig.PendingSignature()
    assert first == first
    assert first != second
    assert (first.resolved, first.value) == (False, None)


def test_lost_signatures_are_tensors_that_could_not_be_read(capture: Any) -> None:
    writer = capture.writer()
    lost, never = xorsig.PendingSignature(), xorsig.PendingSignature()
    record(writer, signature(1))
    record(writer, lost)
    record(writer, never)
    writer.resolve([lost], None)
    assert writer.close()["records"] == 3
    assert recorded(capture) == [(1, 1, None), (2, None, NOT_ARRIVED), (3, None, NOT_ARRIVED)]
    assert (lost.resolved, lost.value, never.resolved) == (True, None, False)


def test_wrong_arguments_are_refused(capture: Any) -> None:
    writer = capture.writer()
    pending = xorsig.PendingSignature()
    with pytest.raises(ValueError, match="8 bytes per region"):
        writer.resolve([pending], bytes(31))
    with pytest.raises(ValueError, match="unless needs a pending signature"):
        record(writer, signature(1), unless=pending)
    with pytest.raises(TypeError):
        record(writer, "text")  # type: ignore[arg-type]
    assert writer.close()["records"] == 0


def test_a_fork_does_not_wait_for_signatures(capture: Any) -> None:
    """Whoever brings them may need the GIL, which the forking thread holds."""
    writer = capture.writer(max_batch_records=2)
    pending = [xorsig.PendingSignature() for _ in range(6)]
    for item in pending:
        record(writer, item)
    child = os.fork()
    if child == 0:
        # The capture is the parent's.
        writer.resolve(pending, bytes(6 * 32))
        os._exit(0 if writer.close()["batches"] == 0 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    writer.resolve(pending, b"".join(signature(value) for value in range(6)))
    assert writer.close()["records"] == 6
    assert recorded(capture) == [(value + 1, value, None) for value in range(6)]


def test_a_killed_process_leaves_the_batches_before_the_first_missing_signature(
    capture: Any,
) -> None:
    script = """
        import sys, time, xorsig
        directory, staging, capture_id = sys.argv[1:]
        writer = xorsig.CaptureWriter(
            directory, staging, capture_id=capture_id, rank=0, max_batch_records=2
        )
        layout = writer.layout("torch.float32", (1,), (1,), "cuda:0", "strided", 4)
        pending = [xorsig.PendingSignature() for _ in range(8)]
        for item in pending:
            writer.tensor(0, 1, 0, layout, item)
        there = pending[:3] + pending[4:]
        writer.resolve(there, b"".join(n.to_bytes(4, "little") * 8 for n in range(len(there))))
        while writer.stats()["batches"] < 1:
            time.sleep(0.001)
        print("published", flush=True)
        time.sleep(600)
    """
    arguments = [str(capture.directory), str(capture.staging), capture.capture_id]
    command = [sys.executable, "-c", textwrap.dedent(script), *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "published\n"
        process.send_signal(signal.SIGKILL)
    found = capture.verify()
    assert (found["batches"], found["records"]) == (1, 2)
