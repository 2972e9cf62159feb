"""Processes that are killed while they record, and disks that are full."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import xorsig

# Says how many records it has made, four bytes for each call, and never ends.
ENDLESS = """
    import mmap
    import sys
    from pathlib import Path

    import xorsig

    directory, staging, capture_id, counter = sys.argv[1:]
    writer = xorsig.CaptureWriter(
        directory, staging, capture_id=capture_id, rank=0, max_batch_records=97, queue_batches=2
    )
    name = writer.intern("torch.mm")
    layout = writer.layout("torch.float32", (2, 3), (3, 1), "cpu", "strided", 24)
    with open(counter, "r+b") as file, mmap.mmap(file.fileno(), 8) as count:
        made = 0
        while True:
            call = writer.begin(0, 0, 0, 0, 0, 0, name)
            signature = made.to_bytes(8, "little") * 4
            writer.tensors(call, 0, [(name, layout, signature, 0), (name, layout, None, name)])
            writer.value(call, 0, name, str(made))
            writer.end(call, 0, 0, 0)
            made += 5
            count[:8] = made.to_bytes(8, "little")
"""

# Twenty instants in every run of the tests; `nox -s kills` asks for two hundred.
INSTANTS = int(os.environ.get("XORSIG_KILLS", "20"))


@pytest.mark.requirement("B6", "B13")
def test_killed_writer_leaves_valid_batches_and_the_exact_gap(capture: Any) -> None:
    """SIGKILL at random instants, from before the first batch to hundreds of batches later."""
    instants = random.Random(20260101)
    script = textwrap.dedent(ENDLESS)
    lengths = set()
    for number in range(INSTANTS):
        folder = type(capture)(capture.root / str(number))
        folder.root.mkdir()
        counter = folder.root / "counter"
        counter.write_bytes(bytes(8))
        arguments = [folder.directory, folder.staging, folder.capture_id, counter]
        process = subprocess.Popen([sys.executable, "-c", script, *map(str, arguments)])
        try:
            # The instant counts from the first record: how long Python takes to start is not
            # what is of interest.
            while not any(counter.read_bytes()):
                assert process.poll() is None
            time.sleep(instants.uniform(0, 0.08))
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()
        made = int.from_bytes(counter.read_bytes(), "little")
        lengths.add(_check_killed(folder, made))
    assert len(lengths) > min(INSTANTS, 20) // 4, "the instants differ"


def _check_killed(capture: Any, made: int) -> int:
    """Check what a killed process left; returns the number of its batches."""
    names = sorted(path.name for path in capture.directory.iterdir())
    batches = [name for name in names if name.startswith("batch-")]
    assert batches == [f"batch-{number:08}.xsb" for number in range(len(batches))]
    assert all(name.startswith(".") for name in names if name not in batches)
    found = capture.verify()
    assert found["batches"] == len(batches)
    # A call of `tensors` is not divided: it may fill a batch a little beyond its limit.
    assert 97 * len(batches) <= found["records"] <= 99 * len(batches)
    assert found["last_tick"] == found["records"]
    # The counter runs behind the records by up to one call, and the batches behind the queue:
    # one open batch, two that wait, one that is being written.
    missing = made - found["records"]
    assert -5 <= missing <= 4 * 99 + 5
    if missing > 0:
        # Without a receipt the capture counts as incomplete; with what a receipt would have
        # said, the reader tells how much is missing.
        outcome = capture.materialize(partial=True, expected_records=made)
        assert (outcome["complete"], outcome["records"]) == (False, found["records"])
        wanted = f"the receipt has {made} records, the batches {found['records']}"
        assert wanted in outcome["reason"]
        outcome = capture.materialize(partial=True, expected_batches=len(batches) + 1)
        assert outcome["reason"].startswith(str(capture.batch(len(batches))))
        ticks = pl.read_parquet(capture.tables / "tensors.parquet")["tick"]
        assert ticks.is_empty() or ticks.max() <= found["last_tick"]
    return len(batches)


@pytest.mark.requirement("B13")
def test_gap_between_batches_is_named_whole(capture: Any, write_calls: Any) -> None:
    writer = capture.writer(max_batch_records=4)
    write_calls(writer, 9)
    writer.close()
    for number in (3, 4, 5):
        capture.batch(number).unlink()
    with pytest.raises(xorsig.CorruptBatchError) as caught:
        capture.verify()
    assert caught.value.sequence == 3
    assert caught.value.reason == "the batch is missing, and those up to 5"
    outcome = capture.materialize(partial=True)
    assert (outcome["batches"], outcome["last_tick"], outcome["complete"]) == (3, 12, False)


LIMITED = """
    import random
    import resource
    import signal
    import sys

    import xorsig

    directory, staging, capture_id = sys.argv[1:]
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
    writer = xorsig.CaptureWriter(
        directory, staging, capture_id=capture_id, rank=0, max_batch_records=1000
    )
    layout = writer.layout("torch.float32", (2, 3), (3, 1), "cpu", "strided", 24)
    noise = random.Random(1)
    refused = 0
    for number in range(20_000):
        # Five small batches of equal fingerprints, then batches of 32 kB.
        signature = bytes(32) if number < 5000 else noise.randbytes(32)
        try:
            writer.tensor(0, 1, 0, layout, signature)
        except OSError:
            refused += 1
    try:
        writer.close()
    except OSError as error:
        print(refused > 0, error.errno, error.filename, error.strerror, sep="|")
"""


def test_refused_write_is_an_error_from_then_on(capture: Any) -> None:
    """A limit for the size of files stands in for a full disk: the system refuses alike."""
    script = textwrap.dedent(LIMITED)
    arguments = [str(capture.directory), str(capture.staging), capture.capture_id]
    completed = subprocess.run(
        [sys.executable, "-c", script, *arguments], check=True, capture_output=True, text=True
    )
    refused, number, filename, message = completed.stdout.strip().split("|")
    assert refused == "True", "records after the failure are refused, not dropped"
    assert Path(filename).parent == capture.staging
    assert int(number) == 27, "EFBIG"
    assert re.match("cannot write it: ", message)
    found = capture.verify()
    assert (found["batches"], found["records"]) == (5, 5000)
    assert list(capture.staging.iterdir()) == [], "what could not be published is removed"


@pytest.mark.parametrize("full", ["staging", "directory"])
def test_full_disk_is_an_error_and_loses_nothing_silently(
    capture: Any, write_calls: Any, tmp_path: Path, full: str
) -> None:
    """A file system of 256 KiB, as root may mount one."""
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(small)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("mounting a small file system needs root")
    try:
        # In the staging directory one batch is at a time, in the other one they add up.
        limit = {"staging": 20_000, "directory": 1000}[full]
        places = {"directory": capture.directory, "staging": capture.staging} | {full: small / full}
        writer = xorsig.CaptureWriter(
            *places.values(), capture_id=capture.capture_id, rank=0, max_batch_records=limit
        )
        layout = writer.layout("torch.float32", (2, 3), (3, 1), "cpu", "strided", 24)
        noise = random.Random(1)

        def record_without_end() -> None:
            for _ in range(100_000):
                writer.tensor(0, 1, 0, layout, noise.randbytes(32))

        with pytest.raises(OSError, match="No space left") as caught:
            record_without_end()
        assert caught.value.errno == 28
        with pytest.raises(OSError, match="No space left"):
            writer.close()
        found = xorsig.verify_capture(places["directory"], capture.capture_id, 0)
        assert found["records"] == limit * found["batches"]
        assert (found["batches"] > 0) == (full == "directory")
    finally:
        subprocess.run(["umount", str(small)], check=True)
