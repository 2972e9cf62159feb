"""Captures: recording, verifying and materialising, and what a record costs on disk."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import polars as pl
import protobuf_peer
import torch
import workloads
from harness import Area, Claim, Figure, Group, Settings, Subject
from harness.machine import REPOSITORY

import xorsig

sys.path.append(str(REPOSITORY / "tests" / "support"))
from opguard_e2e import Protocol, make_checkout

CRATE = REPOSITORY / "crates" / "xorsig" / "Cargo.toml"
CAPTURE_ID = "0123456789abcdef0123456789abcdef"
REGIONS = 4
EVENT_TENSORS = 6
EVENT_POOL = 4999
SLOTS = ("arg[0]", "arg[1]", "param.weight", "param.bias", "out", "grad.out")
SHAPES = [(8, 128, 64 * width) for width in range(1, 9)]
PEAK = """
    import sys, xorsig
    directory, output, capture_id = sys.argv[1:]
    xorsig.materialize(directory, output, capture_id=capture_id, rank=0)
    # Not ru_maxrss, which a process inherits from the one that started it.
    print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def area(settings: Settings) -> Area:
    """Recording first, then what becomes of the records."""
    notes = ["peak memory of materialising is that of a process of its own"]
    return Area("recording, verifying, materialising", _groups(settings, notes), notes)


def _groups(settings: Settings, notes: list[str]) -> Iterator[Group]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        yield _events(root)
        if settings.smoke:
            notes.append("the Rust interface and the real capture were left out")
        else:
            yield _events_of_rust(settings)
            yield _real_capture(root)
        yield _steps(settings, root)
        yield _reading(settings, root)


class Stream:
    """A writer, and events of six tensors of a transformer's step for it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.writer = writer = xorsig.CaptureWriter(
            directory, directory / "staging", capture_id=CAPTURE_ID, rank=0, regions=REGIONS
        )
        slots = [writer.intern(name) for name in SLOTS]
        layouts = [
            writer.layout(
                "float32", shape, (shape[1] * shape[2], shape[2], 1), "cpu", "strided", 4 * size
            )
            for shape in SHAPES
            for size in [shape[0] * shape[1] * shape[2]]
        ]
        self.callee = writer.intern("torch.nn.Linear")
        noise = random.Random(0)
        # Fingerprints that recur after more bytes than a compressor looks back, as new as those of
        # a training; the peer's columns of them are as hard to shorten as ours.
        self.rows = [
            [
                (slots[index], layouts[(number + index) % 8], noise.randbytes(8 * REGIONS), 0)
                for index in range(EVENT_TENSORS)
            ]
            for number in range(EVENT_POOL)
        ]
        self.number = 0

    def event(self) -> None:
        """Begin, four tensors in, two out, end."""
        self.number = number = self.number + 1
        rows = self.rows[number % EVENT_POOL]
        writer = self.writer
        call = writer.begin(0, number % 120, number // 120, 0, 0, 4, self.callee)
        writer.tensors(call, 0, rows[:4])
        writer.tensors(call, 1, rows[4:])
        writer.end(call, 0, 0, 0)


def _events(root: Path) -> Group:
    stream = Stream(root / "events")
    number = iter(range(1 << 40))
    rows = stream.rows

    def protobuf() -> bytes:
        """The same event as a message of its own, encoded."""
        batch = protobuf_peer.Batch()
        tick = next(number)
        batch.calls.add(call=tick, site=tick % 120, step=tick // 120, flags=4, callee=1)
        for slot, layout, signature, _ in rows[tick % EVENT_POOL]:
            batch.tensors.add(call=tick, tick=tick, slot=slot, layout=layout, signature=signature)
        encoded: bytes = batch.SerializeToString()
        return encoded

    def figures(samples: Any) -> Iterator[Figure]:
        stats = stream.writer.close()
        yield Figure("one event", median(samples["CaptureWriter"]) * 1e6, "µs", at_most=2.0)
        yield Figure("waits for the queue", stats["blocked"], "times")

    return Group(
        name="event of six tensors, from Python",
        subjects={
            "CaptureWriter": Subject(stream.event, 1),
            "protobuf": Subject(protobuf, 1),
        },
        claims=[Claim("CaptureWriter", "protobuf")],
        unit="events",
        figures=figures,
    )


def _events_of_rust(settings: Settings) -> Group:
    """The same event, appended as the native recorder does it; the program times itself."""
    command = ["cargo", "run", "--release", "--quiet", "--manifest-path", str(CRATE)]
    command += ["--example", "capture_rounds", "--", str(settings.rounds)]
    completed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    measured = json.loads(completed.stdout)

    def figures(samples: Any) -> Iterator[Figure]:
        yield Figure("one event", median(samples["Appender"]) * 1e6, "µs", at_most=2.0)
        yield Figure("waits for the queue", measured["blocked"], "times")

    return Group(
        name="event of six tensors, from Rust",
        subjects={"Appender": Subject(_never, 1)},
        unit="events",
        collect=lambda: {"Appender": measured["seconds"]},
        figures=figures,
    )


def _real_capture(root: Path) -> Group:
    """Bytes on disk of what ``trace`` records of workload A, everything included."""
    source = root / "source"
    source.mkdir()
    shutil.copy(Path(workloads.__file__), source)
    (source / "train.py").write_text(
        "from workloads import transformer_step\n\n"
        "step = transformer_step()\n"
        "for _ in range(8):\n"
        "    step()\n"
    )
    checkout = make_checkout(source, root / "checkout")
    folder = root / "operations"
    folder.mkdir()
    protocol = Protocol(folder)
    fields = protocol.launch_fields(checkout.path, "train.py")
    discovery = protocol.call("discover", **fields)
    plan = protocol.call("prepare", workload=fields["workload"], discovery=discovery)
    started = time.perf_counter()
    trace = protocol.call("trace", **fields, plan=plan)
    seconds = time.perf_counter() - started
    batches = next(Path(trace["output"]).rglob("rank-0/batch-*.xsb")).parent
    receipt = json.loads(xorsig.read_receipt(batches.parent / "receipts" / "rank-0.receipt"))
    tables = root / "real-tables"
    xorsig.materialize(batches, tables, capture_id=receipt["capture_id"], rank=0)

    def figures(_: Any) -> Iterator[Figure]:
        size = sum(path.stat().st_size for path in batches.iterdir())
        tensors = pl.scan_parquet(tables / "tensors.parquet").select(pl.len()).collect().item()
        yield Figure("tensor records", tensors, "")
        yield Figure("on disk, both schemes", size / tensors, "B/tensor record", at_most=48)

    return Group(
        name="real capture of workload A, 8 steps",
        subjects={"trace": Subject(_never, wall=True)},
        collect=lambda: {"trace": [seconds]},
        figures=figures,
    )


def _steps(settings: Settings, root: Path) -> Group:
    """Steps of a small training that records 50 events each, with a writer and without."""
    torch.set_num_threads(1)
    stream = Stream(root / "steps")
    train = workloads.narrow_step()

    class Dropped:
        """A writer whose records go nowhere."""

        def begin(self, *_: object) -> int:
            return 1

        def tensors(self, *_: object) -> None:
            pass

        def end(self, *_: object) -> int:
            return 1

    recording = stream.writer

    def step(writer: Any) -> tuple[float, float]:
        """Seconds by the wall clock, and of this thread's processor time."""
        stream.writer = writer
        wall, busy = time.perf_counter(), time.thread_time()
        train()
        for _ in range(50):
            stream.event()
        return time.perf_counter() - wall, time.thread_time() - busy

    # A batch is written about every 160 steps: in every block.
    block_steps, block_count = (5, 1) if settings.smoke else (200, 16)
    walls: dict[str, list[list[float]]] = {"recorded": [], "dropped": []}
    busies: dict[str, list[list[float]]] = {"recorded": [], "dropped": []}

    def collect() -> dict[str, list[float]]:
        for _ in range(block_count):
            for name, writer in (("recorded", recording), ("dropped", Dropped())):
                steps = [step(writer) for _ in range(block_steps)]
                walls[name].append([wall for wall, _ in steps])
                busies[name].append([busy for _, busy in steps])
        return {name: [median(block) for block in walls[name]] for name in walls}

    def worst(blocks: list[list[float]]) -> float:
        """The worst step over the median, in the block that other processes disturbed least."""
        return min(max(block) / median(block) for block in blocks)

    def figures(_: Any) -> Iterator[Figure]:
        stats = recording.close()
        # Waits for the writer are counted. What else the wall clock alone sees are others that
        # hold the core, and those disturb a training without a writer as much.
        yield Figure("worst step, processor time over median", worst(busies["recorded"]), "x", 3.0)
        yield Figure("worst step, wall clock over median", worst(walls["recorded"]), "x")
        yield Figure("the same where records are dropped", worst(walls["dropped"]), "x")
        yield Figure("batches written meanwhile", stats["batches"], "")
        yield Figure("waits for the queue", stats["blocked"], "times", at_most=0)
        yield Figure("threads afterwards", threading.active_count(), "")

    return Group(
        name="step of 50 events",
        subjects={name: Subject(_never, wall=True) for name in walls},
        claims=[Claim("recorded", "dropped", 1.10, "time")],
        collect=collect,
        figures=figures,
    )


def _reading(settings: Settings, root: Path) -> Group:
    tensors = 600 if settings.smoke else 1_000_000
    stream = Stream(root / "capture")
    for _ in range(tensors // EVENT_TENSORS + 1):
        stream.event()
    stats = stream.writer.close()
    directory, tables = stream.directory, root / "tables"
    peer = root / "peer"
    _write_peer(peer, stream, tensors // EVENT_TENSORS + 1)

    def materialize(threads: int | None) -> None:
        xorsig.materialize(directory, tables, capture_id=CAPTURE_ID, rank=0, threads=threads)

    def materialize_peer() -> None:
        protobuf_peer.materialize(peer, root / "peer-tables", REGIONS)

    def processor_time(run: Callable[[], None]) -> float:
        """Of all threads, since the peer's table library has some of its own."""
        start = time.process_time()
        run()
        return time.process_time() - start

    def figures(samples: Any) -> Iterator[Figure]:
        speed = stats["bytes"] / median(samples["verify"]) / 1e9
        yield Figure("verified payload, one core", speed, "GB/s", at_least=1.0)
        if not settings.smoke:
            peaks = [_peak(root, part) for part in (1, 3)]
            yield Figure("peak memory of 1,000,000 tensors", peaks[0] / 1024, "MiB")
            yield Figure("peak memory of 3,000,000 tensors", peaks[1] / 1024, "MiB")

    records = tensors
    return Group(
        name=f"{tensors:,} tensor records",
        subjects={
            "verify": Subject(
                lambda: xorsig.verify_capture(directory, CAPTURE_ID, 0, threads=1), records
            ),
            "materialize": Subject(lambda: materialize(None), records, wall=True),
            "protobuf": Subject(materialize_peer, records, wall=True),
            "materialize, processor time": Subject(
                lambda: processor_time(lambda: materialize(1)), records
            ),
            "protobuf, processor time": Subject(lambda: processor_time(materialize_peer), records),
        },
        claims=[
            Claim("materialize", "protobuf", 20.0),
            Claim("materialize, processor time", "protobuf, processor time", 20.0),
        ],
        unit="records",
        figures=figures,
    )


def _write_peer(folder: Path, stream: Stream, events: int) -> None:
    """The same stream of events, as the peer keeps it, about 65,000 records a file."""
    folder.mkdir()
    tick = 0
    for first in range(0, events, 8192):
        batch = protobuf_peer.Batch()
        if first == 0:
            batch.names.extend([*SLOTS, "torch.nn.Linear", "float32", "cpu", "strided"])
            for shape in SHAPES:
                size = shape[0] * shape[1] * shape[2]
                strides = (shape[1] * shape[2], shape[2], 1)
                batch.layouts.add(
                    dtype=8,
                    shape=shape,
                    strides=strides,
                    device=9,
                    kind=10,
                    logical_nbytes=4 * size,
                )
        for number in range(first, min(first + 8192, events)):
            call = tick = tick + 1
            for index, (slot, layout, signature, _) in enumerate(stream.rows[number % EVENT_POOL]):
                tick += 1
                batch.tensors.add(
                    call=call, tick=tick, role=int(index > 3), slot=slot, layout=layout,
                    signature=signature,
                )  # fmt: skip
            tick += 1
            batch.calls.add(
                call=call, site=number % 120, step=number // 120, flags=4, callee=7,
                time_begin_ns=1000 * call, tick_end=tick, time_end_ns=1000 * tick,
            )  # fmt: skip
        protobuf_peer.write_batch(folder / f"{first:08}.pb", batch)


def _peak(root: Path, parts: int) -> int:
    """Peak memory of materialising ``parts`` million tensors, KiB."""
    stream = Stream(root / f"peak-{parts}")
    for _ in range(parts * 1_000_000 // EVENT_TENSORS):
        stream.event()
    stream.writer.close()
    arguments = [str(stream.directory), str(root / "peak-tables"), CAPTURE_ID]
    command = [sys.executable, "-c", textwrap.dedent(PEAK), *arguments]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _never() -> None:
    raise AssertionError("the group times its steps itself")
