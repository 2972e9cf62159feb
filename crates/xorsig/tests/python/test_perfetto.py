"""Reports, decoded with Perfetto's own definitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as pb

import xorsig

SLICE = {"id": 1, "track": "baseline", "ts_ns": 0, "dur_ns": 10, "name": "mm"}
SLOT = {
    "slice": 1, "slot": "arg[0]", "role": "input", "dtype": "torch.float32", "shape": [2, 1],
    "device": "cpu", "xor_sig": [1, 2], "mix_sig": [3, 4], "regions": 2, "logical_nbytes": 7,
    "relation": "different", "note": None,
}  # fmt: skip
SLOT_SCHEMA: Any = {
    "slice": pl.UInt64, "slot": pl.String, "role": pl.String, "dtype": pl.String,
    "shape": pl.List(pl.Int64), "device": pl.String, "xor_sig": pl.List(pl.UInt32),
    "mix_sig": pl.List(pl.UInt32), "regions": pl.UInt32, "logical_nbytes": pl.UInt64,
    "relation": pl.String, "note": pl.String,
}  # fmt: skip
FLOW_SCHEMA: Any = {"id": pl.UInt64, "from": pl.UInt64, "to": pl.UInt64}


def write(
    path: Path,
    slices: pl.DataFrame | list[dict[str, Any]],
    slots: list[dict[str, Any]] = (),  # type: ignore[assignment]
    flows: list[dict[str, Any]] = (),  # type: ignore[assignment]
    **options: str,
) -> dict[str, int]:
    table = slices if isinstance(slices, pl.DataFrame) else pl.DataFrame(slices)
    return xorsig.write_perfetto(
        path,
        table,
        pl.DataFrame(list(slots), schema=SLOT_SCHEMA),
        pl.DataFrame(list(flows), schema=FLOW_SCHEMA),
        **options,
    )


class Decoded:
    """A trace with its interned texts looked up again."""

    def __init__(self, path: Path) -> None:
        self.trace = pb.Trace()
        self.trace.ParseFromString(path.read_bytes())
        self.tracks: dict[int, Any] = {}
        self.events: list[dict[str, Any]] = []
        names: dict[str, dict[int, str]] = {"event": {}, "annotation": {}, "text": {}}
        for packet in self.trace.packet:
            data = packet.interned_data
            names["event"] |= {entry.iid: entry.name for entry in data.event_names}
            names["annotation"] |= {entry.iid: entry.name for entry in data.debug_annotation_names}
            names["text"] |= {
                entry.iid: entry.str.decode() for entry in data.debug_annotation_string_values
            }
            if packet.HasField("track_descriptor"):
                self.tracks[packet.track_descriptor.uuid] = packet.track_descriptor
            elif packet.HasField("track_event"):
                self.events.append(self._event(packet, names))

    def _event(self, packet: Any, names: dict[str, dict[int, str]]) -> dict[str, Any]:
        event = packet.track_event
        decoded = {
            "ts": packet.timestamp,
            "track": self.tracks[event.track_uuid].name,
            "type": {1: "begin", 2: "end"}[event.type],
        }
        if event.type == 1:
            decoded["name"] = names["event"][event.name_iid]
            decoded["flows"] = list(event.flow_ids)
            decoded["args"] = {
                names["annotation"][a.name_iid]: self._value(a, names)
                for a in event.debug_annotations
            }
        return decoded

    def _value(self, annotation: Any, names: dict[str, dict[int, str]]) -> Any:
        if annotation.array_values:
            return [self._value(item, names) for item in annotation.array_values]
        if annotation.dict_entries:
            return {
                names["annotation"][entry.name_iid]: self._value(entry, names)
                for entry in annotation.dict_entries
            }
        kind = annotation.WhichOneof("value")
        if kind is None:
            return []
        value = getattr(annotation, kind)
        return names["text"][value] if kind == "string_value_iid" else value


@pytest.mark.requirement("F7")
def test_tensors_are_annotations_with_their_layout(tmp_path: Path) -> None:
    path = tmp_path / "report.perfetto-trace"
    unread = SLOT | {
        "slot": "out",
        "xor_sig": None,
        "mix_sig": None,
        "note": "no data",
        "shape": [],
    }
    written = write(path, [SLICE], [SLOT, unread])
    assert written == {"events": 1, "bytes": path.stat().st_size}
    layout = {"regions": 2, "logical_nbytes": 7, "byte_ranges": [[0, 4], [4, 7]]}
    common = {"role": "input", "dtype": "torch.float32", "device": "cpu", "relation": "different"}
    begin, end = Decoded(path).events
    assert begin == {
        "ts": 0, "track": "baseline", "type": "begin", "name": "mm", "flows": [],
        "args": {
            "io": [
                common | {
                    "slot": "arg[0]",
                    "shape": [2, 1],
                    "stats": {
                        "xor_sig": [1, 2],
                        "xor_sig_layout": {"scheme": xorsig.XOR_SCHEME} | layout,
                        "mix_sig": [3, 4],
                        "mix_sig_layout": {"scheme": xorsig.MIX_SCHEME} | layout,
                    },
                },
                common | {"slot": "out", "shape": [], "note": "no data"},
            ]
        },
    }  # fmt: skip
    assert end == {"ts": 10, "track": "baseline", "type": "end"}


def test_other_columns_are_annotations_and_nulls_are_omitted(tmp_path: Path) -> None:
    path = tmp_path / "report"
    second = SLICE | {"id": 2, "ts_ns": 20}
    slices = pl.DataFrame([SLICE, second]).with_columns(
        text=pl.Series(["größe", None]),
        category=pl.Series(["a", "a"], dtype=pl.Categorical),
        yes=pl.Series([True, False]),
        small=pl.Series([-1, None], dtype=pl.Int8),
        large=pl.Series([2**64 - 1, 0], dtype=pl.UInt64),
        real=pl.Series([0.5, -2.0], dtype=pl.Float32),
        items=pl.Series([["x", "y"], []]),
        nested=pl.Series([[[1, 2], [3]], None]),
        nothing=pl.Series([None, None]),
    )
    write(path, slices)
    assert [event["args"] for event in Decoded(path).events if event["type"] == "begin"] == [
        {
            "text": "größe", "category": "a", "yes": True, "small": -1, "large": 2**64 - 1,
            "real": 0.5, "items": ["x", "y"], "nested": [[1, 2], [3]],
        },
        {"category": "a", "yes": False, "large": 0, "real": -2.0, "items": []},
    ]  # fmt: skip


def test_one_sequence_clears_its_state_first(tmp_path: Path) -> None:
    write(tmp_path / "report", [SLICE])
    packets = Decoded(tmp_path / "report").trace.packet
    cleared, needs = 1, 2
    assert [packet.sequence_flags for packet in packets] == [cleared | needs] + [needs] * 3
    assert {packet.trusted_packet_sequence_id for packet in packets} == {1}
    assert [packet.first_packet_on_sequence for packet in packets] == [True, False, False, False]
    assert not any(packet.HasField("timestamp_clock_id") for packet in packets)


def test_tracks_keep_their_order_and_are_not_merged(tmp_path: Path) -> None:
    names = ["differences", "baseline", "candidate"]
    slices = [SLICE | {"id": i, "track": name} for i, name in enumerate(names)]
    write(tmp_path / "report", slices, trace_name="rank 0")
    root, *tracks = Decoded(tmp_path / "report").tracks.values()
    assert (root.name, root.child_ordering) == ("rank 0", pb.TrackDescriptor.EXPLICIT)
    assert [track.name for track in tracks] == names
    assert [track.sibling_order_rank for track in tracks] == [0, 1, 2]
    assert {track.parent_uuid for track in tracks} == {root.uuid}
    none = pb.TrackDescriptor.SIBLING_MERGE_BEHAVIOR_NONE
    assert {track.sibling_merge_behavior for track in (root, *tracks)} == {none}


def test_slices_nest_whatever_their_order_in_the_table(tmp_path: Path) -> None:
    rows = [
        (5, 0, 100),
        (1, 10, 20),
        (2, 30, 0),
        (3, 30, 70),
        (4, 40, 60),
        (6, 100, 5),
        (7, 0, 100),
    ]
    slices = [
        SLICE | {"id": i, "name": str(i), "ts_ns": begin, "dur_ns": length}
        for i, begin, length in rows
    ]
    write(tmp_path / "report", slices)
    events = Decoded(tmp_path / "report").events
    assert [event["ts"] for event in events] == sorted(event["ts"] for event in events)
    stack, spans = [], {}
    for event in events:
        if event["type"] == "begin":
            stack.append(event)
        else:
            begin = stack.pop()
            depth = [outer["name"] for outer in stack]
            spans[begin["name"]] = (begin["ts"], event["ts"] - begin["ts"], depth)
    assert stack == []
    assert spans == {
        "5": (0, 100, []),
        "7": (0, 100, ["5"]),
        "1": (10, 20, ["5", "7"]),
        "2": (30, 0, ["5", "7", "3"]),
        "3": (30, 70, ["5", "7"]),
        "4": (40, 60, ["5", "7", "3"]),
        "6": (100, 5, []),
    }


def test_flows_join_their_two_slices(tmp_path: Path) -> None:
    slices = [SLICE, SLICE | {"id": 2, "track": "candidate"}]
    write(tmp_path / "report", slices, flows=[{"id": 9, "from": 2, "to": 1}])
    begins = [e for e in Decoded(tmp_path / "report").events if e["type"] == "begin"]
    assert [(event["track"], event["flows"]) for event in begins] == [
        ("baseline", [9]),
        ("candidate", [9]),
    ]


def test_long_annotations_survive(tmp_path: Path) -> None:
    """Lengths around the points where a length needs one byte more."""
    for length in (126, 127, 128, 129, 16_382, 16_383, 16_384):
        write(tmp_path / "report", [SLICE | {"items": list(range(length)), "text": "x" * length}])
        args = Decoded(tmp_path / "report").events[0]["args"]
        assert args == {"items": list(range(length)), "text": "x" * length}


def test_empty_report_has_only_its_root(tmp_path: Path) -> None:
    table = pl.DataFrame(
        schema={
            "id": pl.UInt64, "track": pl.String, "ts_ns": pl.UInt64, "dur_ns": pl.UInt64,
            "name": pl.String,
        }
    )  # fmt: skip
    assert write(tmp_path / "report", table)["events"] == 0
    assert len(Decoded(tmp_path / "report").tracks) == 1


@pytest.mark.parametrize(
    ("slices", "slots", "flows", "message"),
    [
        ([SLICE, SLICE], [], [], "not unique"),
        ([SLICE, SLICE | {"id": 2, "ts_ns": 5}], [], [], "overlap without nesting"),
        ([SLICE | {"ts_ns": -1}], [], [], "not negative"),
        ([SLICE | {"ts_ns": 2**63 - 1, "dur_ns": -1}], [], [], "not negative"),
        ([SLICE | {"name": None}], [], [], "a text"),
        ([{"id": 1}], [], [], "needs a column"),
        ([SLICE], [SLOT | {"slice": 2}], [], "slots names no slice"),
        ([SLICE], [SLOT | {"regions": 65}], [], "1 to 64"),
        ([SLICE], [], [{"id": 1, "from": 1, "to": 3}], "flows names no slice"),
    ],
)
def test_tables_that_make_no_report_are_refused(
    tmp_path: Path, slices: Any, slots: Any, flows: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        write(tmp_path / "report", slices, slots, flows)
    assert list(tmp_path.iterdir()) == []


def test_columns_without_annotation_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cast it to text"):
        write(tmp_path / "report", pl.DataFrame([SLICE]).with_columns(raw=pl.lit(b"x")))


def test_arguments_without_arrow_stream_are_refused(tmp_path: Path) -> None:
    empty = pl.DataFrame(schema=FLOW_SCHEMA)
    with pytest.raises(TypeError, match="__arrow_c_stream__"):
        xorsig.write_perfetto(tmp_path / "report", [], empty, empty)  # type: ignore[arg-type]


def test_missing_folder_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write(tmp_path / "none" / "report", [SLICE])
