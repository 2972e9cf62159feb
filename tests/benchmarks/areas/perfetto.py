"""Perfetto reports: our encoder against the ``perfetto`` package's builder and against JSON."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
from harness import Area, Claim, Figure, Group, Settings, Subject
from harness.optional import optional

import xorsig

# What is shown beside every slice; numbers and texts of the lengths that reports have.
ANNOTATIONS = ("file", "line", "qualname", "relation", "step", "phase", "calls", "ratio")
SLOTS: Any = {
    "slice": pl.UInt64, "slot": pl.String, "role": pl.String, "dtype": pl.String,
    "shape": pl.List(pl.Int64), "device": pl.String, "xor_sig": pl.List(pl.UInt32),
    "mix_sig": pl.List(pl.UInt32), "regions": pl.UInt32, "logical_nbytes": pl.UInt64,
    "relation": pl.String, "note": pl.String,
}  # fmt: skip
FLOWS: Any = {"id": pl.UInt64, "from": pl.UInt64, "to": pl.UInt64}


def area(settings: Settings) -> Area:
    """One group: the same slices written three ways."""
    notes: list[str] = []
    return Area("flat reports with eight annotations a slice", _groups(settings, notes), notes)


def _rows(count: int) -> list[dict[str, Any]]:
    return [
        {
            "id": index + 1,
            "track": ("baseline", "candidate")[index % 2],
            "ts_ns": 1_000 * index,
            "dur_ns": 900,
            "name": f"torch.nn.functional.linear_{index % 97}",
            "file": f"models/block_{index % 23}.py",
            "line": index % 811,
            "qualname": f"Transformer.layer_{index % 23}.forward",
            "relation": ("equal", "different", "unpaired")[index % 3],
            "step": index // 500,
            "phase": ("forward", "backward", "optimizer")[index // 200 % 3],
            "calls": index,
            "ratio": index / 7,
        }
        for index in range(count)
    ]


def _groups(settings: Settings, notes: list[str]) -> Iterator[Group]:
    rows = _rows(200 if settings.smoke else 50_000)
    table = pl.DataFrame(rows).with_columns(pl.col("id", "ts_ns", "dur_ns").cast(pl.UInt64))
    slots, flows = pl.DataFrame(schema=SLOTS), pl.DataFrame(schema=FLOWS)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "report.perfetto-trace")
        subjects: dict[str, Callable[[], Any]] = {
            "write_perfetto": lambda: xorsig.write_perfetto(path, table, slots, flows)
        }
        claims = []
        if optional("perfetto", notes):
            subjects["TraceProtoBuilder"] = lambda: _with_builder(rows, Path(folder, "builder"))
            claims.append(Claim("write_perfetto", "TraceProtoBuilder", 22.0))
        orjson = optional("orjson", notes)
        if orjson is not None:
            subjects["orjson"] = lambda: _with_json(orjson, rows, Path(folder, "report.json"))
            claims.append(Claim("write_perfetto", "orjson", 4.0))

        def figures(_: Any) -> Iterator[Figure]:
            yield Figure("size", path.stat().st_size / len(rows), "B/slice")
            if optional("perfetto", notes):
                same = _decoded(path) == _decoded(Path(folder, "builder"))
                yield Figure("decoded alike", float(same), "(1: yes)", at_least=1)

        yield Group(
            name=f"{len(rows):,} slices",
            subjects={name: Subject(run, len(rows)) for name, run in subjects.items()},
            claims=claims,
            unit="slices",
            figures=figures,
        )


def _with_builder(rows: list[dict[str, Any]], path: Path) -> None:
    """As the package's documentation does it: one packet for a begin, one for an end."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TrackEvent
    from perfetto.trace_builder.proto_builder import TraceProtoBuilder

    builder = TraceProtoBuilder()
    uuids: dict[str, int] = {}
    for row in rows:
        track = row["track"]
        uuid = uuids.get(track)
        if uuid is None:
            uuid = uuids[track] = len(uuids) + 1
            descriptor = builder.add_packet().track_descriptor
            descriptor.uuid, descriptor.name = uuid, track
        packet = builder.add_packet()
        packet.timestamp = row["ts_ns"]
        packet.trusted_packet_sequence_id = 1
        event = packet.track_event
        event.type = TrackEvent.TYPE_SLICE_BEGIN
        event.track_uuid = uuid
        event.name = row["name"]
        for name in ANNOTATIONS:
            annotation = event.debug_annotations.add()
            annotation.name = name
            value = row[name]
            if isinstance(value, str):
                annotation.string_value = value
            elif isinstance(value, int):
                annotation.int_value = value
            else:
                annotation.double_value = value
        packet = builder.add_packet()
        packet.timestamp = row["ts_ns"] + row["dur_ns"]
        packet.trusted_packet_sequence_id = 1
        packet.track_event.type = TrackEvent.TYPE_SLICE_END
        packet.track_event.track_uuid = uuid
    path.write_bytes(builder.serialize())


def _with_json(orjson: Any, rows: list[dict[str, Any]], path: Path) -> None:
    """Complete events of the JSON format, which the viewer reads too."""
    events = [
        {
            "ph": "X",
            "pid": 1,
            "tid": row["track"],
            "ts": row["ts_ns"] / 1000,
            "dur": row["dur_ns"] / 1000,
            "name": row["name"],
            "args": {name: row[name] for name in ANNOTATIONS},
        }
        for row in rows
    ]
    path.write_bytes(orjson.dumps({"traceEvents": events}))


def _decoded(path: Path) -> list[tuple[Any, ...]]:
    """Begin, end, name and annotations of every slice, interned texts looked up."""
    from perfetto.protos.perfetto.trace import perfetto_trace_pb2

    trace = perfetto_trace_pb2.Trace.FromString(path.read_bytes())
    names: dict[int, str] = {}
    keys: dict[int, str] = {}
    texts: dict[int, str] = {}
    tracks: dict[int, str] = {}
    open_slices: dict[int, list[list[Any]]] = {}
    slices = []
    for packet in trace.packet:
        data = packet.interned_data
        names.update((entry.iid, entry.name) for entry in data.event_names)
        keys.update((entry.iid, entry.name) for entry in data.debug_annotation_names)
        texts.update(
            (entry.iid, entry.str.decode()) for entry in data.debug_annotation_string_values
        )
        if packet.HasField("track_descriptor"):
            tracks[packet.track_descriptor.uuid] = packet.track_descriptor.name
        if not packet.HasField("track_event"):
            continue
        event = packet.track_event
        if event.type == event.TYPE_SLICE_END:
            begun = open_slices[event.track_uuid].pop()
            slices.append((tracks[event.track_uuid], begun[0], packet.timestamp, *begun[1:]))
            continue
        arguments = {}
        for annotation in event.debug_annotations:
            kind = annotation.WhichOneof("value")
            value = getattr(annotation, kind)
            key = keys[annotation.name_iid] if annotation.name_iid else annotation.name
            arguments[key] = texts[value] if kind == "string_value_iid" else value
        name = names[event.name_iid] if event.name_iid else event.name
        open_slices.setdefault(event.track_uuid, []).append([packet.timestamp, name, arguments])
    return sorted(slices, key=lambda entry: entry[:3])
