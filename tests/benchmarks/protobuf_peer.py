"""The peer of the capture format: the same records in Python's protobuf, the same tables.

The messages are what one would write for this purpose: names and layouts are defined once in a
file and referred to by number, a file holds one batch, and a checksum stands before it. The code
follows what the library's documentation recommends for speed (repeated fields, one pass).
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_FIELD = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "u32": _FIELD.TYPE_UINT32,
    "u64": _FIELD.TYPE_UINT64,
    "i64": _FIELD.TYPE_INT64,
    "text": _FIELD.TYPE_STRING,
    "bytes": _FIELD.TYPE_BYTES,
}
_MESSAGES: dict[str, list[tuple[str, str]]] = {
    "Layout": [
        ("dtype", "u32"), ("shape", "i64*"), ("strides", "i64*"), ("device", "u32"),
        ("kind", "u32"), ("logical_nbytes", "u64"),
    ],
    "Call": [
        ("call", "u64"), ("parent", "u64"), ("site", "u32"), ("step", "i64"), ("phase", "u32"),
        ("thread", "u32"), ("flags", "u32"), ("callee", "u32"), ("time_begin_ns", "u64"),
        ("tick_end", "u64"), ("time_end_ns", "u64"), ("status", "u32"),
    ],
    "Tensor": [
        ("call", "u64"), ("tick", "u64"), ("role", "u32"), ("slot", "u32"), ("layout", "u32"),
        ("note", "u32"), ("signature", "bytes"),
    ],
    "Batch": [
        ("names", "text*"), ("layouts", "Layout*"), ("calls", "Call*"), ("tensors", "Tensor*"),
    ],
}  # fmt: skip


def _batch_class() -> Any:
    file = descriptor_pb2.FileDescriptorProto(name="peer.proto", package="peer", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields, 1):
            base = kind.removesuffix("*")
            entry = message.field.add(name=field, number=number)
            entry.label = _FIELD.LABEL_REPEATED if kind != base else _FIELD.LABEL_OPTIONAL
            if base in _SCALARS:
                entry.type = _SCALARS[base]
            else:
                entry.type, entry.type_name = _FIELD.TYPE_MESSAGE, f".peer.{base}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("peer.Batch"))


Batch: Any = _batch_class()


def write_batch(path: Path, batch: Any) -> None:
    """Write a batch behind its checksum."""
    content = batch.SerializeToString()
    path.write_bytes(zlib.crc32(content).to_bytes(4, "little") + content)


def _read(folder: Path) -> Iterator[Any]:
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        content = data[4:]
        if zlib.crc32(content).to_bytes(4, "little") != data[:4]:
            raise ValueError(f"{path} is damaged")
        yield Batch.FromString(content)


def materialize(folder: Path, output: Path, regions: int) -> None:
    """Check the batches and write their tables as Parquet, as ``xorsig.materialize`` does."""
    names = [""]
    layouts: list[Any] = []
    calls: list[tuple[Any, ...]] = []
    tensors: list[pl.DataFrame] = []
    last_tick = 0
    for batch in _read(folder):
        names.extend(batch.names)
        layouts.extend(batch.layouts)
        begun = [
            (
                c.call, c.parent, c.site, c.step, c.phase, c.thread, c.flags, names[c.callee],
                c.time_begin_ns, c.tick_end, c.time_end_ns, c.status,
            )
            for c in batch.calls
        ]  # fmt: skip
        calls.extend(begun)
        frame, ticks = _tensors(batch.tensors, names, len(layouts), regions)
        tensors.append(frame)
        last_tick = _check_ticks(last_tick, begun, ticks)
    output.mkdir(exist_ok=True)
    columns = [name for name, _ in _MESSAGES["Call"]]
    table = pl.DataFrame(calls, schema=columns, orient="row")
    layout_table = pl.DataFrame(
        {
            "dtype": [names[entry.dtype] for entry in layouts],
            "shape": [list(entry.shape) for entry in layouts],
            "strides": [list(entry.strides) for entry in layouts],
            "device": [names[entry.device] for entry in layouts],
            "kind": [names[entry.kind] for entry in layouts],
            "logical_nbytes": [entry.logical_nbytes for entry in layouts],
        }
    )
    tables = {"calls": table, "tensors": pl.concat(tensors), "layouts": layout_table}
    for name in tables:
        _write_durably(output / f".{name}.tmp", tables[name])
    for name in tables:
        (output / f".{name}.tmp").rename(output / f"{name}.parquet")


def _write_durably(path: Path, table: pl.DataFrame) -> None:
    with path.open("wb") as file:
        table.write_parquet(file, compression="lz4")
        file.flush()
        os.fsync(file.fileno())


def _check_ticks(last: int, calls: list[tuple[Any, ...]], tensors: np.ndarray) -> int:
    """Every tick after ``last`` comes once; returns the last one of the batch."""
    begins = np.fromiter((call[0] for call in calls), np.uint64, len(calls))
    ends = np.fromiter((call[9] for call in calls), np.uint64, len(calls))
    ticks = np.sort(np.concatenate([begins, ends, tensors]))
    if not np.array_equal(ticks, np.arange(last + 1, last + 1 + len(ticks), dtype=np.uint64)):
        raise ValueError(f"ticks after {last} are missing or repeated")
    return last + len(ticks)


def _tensors(
    records: Any, names: list[str], layouts: int, regions: int
) -> tuple[pl.DataFrame, np.ndarray]:
    call, tick, role, slot, layout, note, signature = zip(
        *[(r.call, r.tick, r.role, r.slot, r.layout, r.note, r.signature) for r in records],
        strict=True,
    )
    ticks = np.array(tick, np.uint64)
    if max(layout) >= layouts or max(slot) >= len(names) or max(note) >= len(names):
        raise ValueError("a number is not defined")
    if (np.array(call, np.uint64) >= ticks).any():
        raise ValueError("a tensor comes before its call")
    words = np.frombuffer(b"".join(signature), np.uint32).reshape(-1, 2, regions)
    texts = pl.Series(names)
    frame = pl.DataFrame(
        {
            "call": pl.Series(call, dtype=pl.UInt64),
            "tick": ticks,
            "role": pl.Series(role, dtype=pl.UInt8),
            "slot": texts.gather(slot),
            "layout": pl.Series(layout, dtype=pl.UInt32),
            "xor_sig": pl.Series(np.ascontiguousarray(words[:, 0])).arr.to_list(),
            "mix_sig": pl.Series(np.ascontiguousarray(words[:, 1])).arr.to_list(),
            "note": texts.gather(note),
        }
    )
    return frame, ticks
