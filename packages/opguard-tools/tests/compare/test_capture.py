"""Reading trace outputs and tables that ``xorsig`` wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import xorsig
from opguard.tools.compare import (
    CaptureReadError,
    CaptureView,
    EndKind,
    RankEnding,
    compare_captures,
)
from opguard.tools.compare.fingerprints import FingerprintTable
from opguard.tools.compare.places import LibrarySources
from opguard.tools.compare.records import CallFlag, Phase, RankRecords
from opguard.tools.digests import sha256
from opguard.tools.source.align import align_sources

CAPTURE_ID = "0" * 31 + "1"
SOURCE = b"y = f(x)\nz = g(y)\n"


def write_trace(root: Path, out: bytes) -> Path:
    """A trace output with two calls of one rank, written by the real writer."""
    capture = root / "capture"
    (root / "sources").mkdir(parents=True)
    (root / "sources" / "train.py").write_bytes(SOURCE)
    plan = {
        "files": [{"path": "train.py", "size": len(SOURCE), "sha256": "0" * 64}],
        "sites": [
            {
                "id": number, "file": "train.py", "line": number + 1, "end_line": number + 1,
                "col": 4, "end_col": 8, "qualname": "<module>", "kind": "call", "callee": callee,
                "text": f"{callee}(x)", "statement": [number + 1, 0], "ordinal": 0,
                "depth": "call", "observed": True, "operators": ["aten.sin.default"], "count": 1,
            }
            for number, callee in enumerate("fg")
        ],
    }  # fmt: skip
    (root / "plan.json").write_text(json.dumps(plan))
    writer = xorsig.CaptureWriter(
        str(capture), str(root / "staging"), capture_id=CAPTURE_ID, rank=0, regions=4
    )
    layout = writer.layout("float32", (2,), (1,), "cpu", "strided", 8)
    arg, result, grad = (writer.intern(text) for text in ("arg[0]", "out", "grad.out"))
    names = [writer.intern(text) for text in "fg"]
    calls: list[int] = []
    values = [b"\x00" * 8, out, out]
    for number in range(2):
        call = writer.begin(0, number, 0, 0, 1, 0, names[number])
        calls.append(call)
        writer.tensor(call, 0, arg, layout, signature(values[number]))
        writer.value(call, 0, writer.intern("value.eps"), "0.1")
        writer.tensor(call, 1, result, layout, None, writer.intern("pending"))
        writer.tensor(call, 1, writer.intern("out[1]"), layout, signature(values[number + 1]))
        writer.end(call, 0, int(CallFlag.COMPILED), 0)
    writer.tensor(calls[0], 4, grad, layout, signature(out))
    writer.begin(0, 1, 1, int(Phase.BACKWARD), 1, 0, names[1])
    writer.close()
    (capture / "receipts").mkdir(exist_ok=True)
    xorsig.write_receipt(str(capture / "receipts" / "rank-0.receipt"), json.dumps({"rank": 0}))
    xorsig.materialize(str(capture), str(root / "tables" / "rank-0"), capture_id=CAPTURE_ID, rank=0)
    return root


def signature(data: bytes) -> bytes:
    """Both region signatures of some bytes, as the recorder stores them."""
    words = (*xorsig.region_xor(data), *xorsig.region_mix(data))
    return b"".join(word.to_bytes(4, "little") for word in words)


def test_records_of_a_real_capture_are_read_back(tmp_path: Path) -> None:
    root = write_trace(tmp_path / "a", b"\x01" * 8)
    view = CaptureView.open(root, root / "tables")
    table = FingerprintTable()

    records = RankRecords.build(view.tables(0), table)

    first, second, open_call = records.calls
    assert (first.callee, first.compiled, first.ended, open_call.ended) == ("f", True, True, False)
    assert open_call.phase == Phase.BACKWARD
    assert (set(first.inputs), set(first.arguments)) == ({"arg[0]"}, {"value.eps"})
    assert table[first.outputs["out"]].describe() == "float32[2] (pending)"
    assert second.inputs["arg[0]"] == first.outputs["out[1]"]
    assert [(g.slot, g.arrival) for g in first.gradients] == [("grad.out", 0)]
    assert table[first.outputs["out[1]"]].xor_sig == xorsig.region_xor(b"\x01" * 8)
    assert view.sources == {"train.py": SOURCE}
    assert view.receipts == {0: {"rank": 0}}


def test_two_real_captures_are_compared(tmp_path: Path) -> None:
    views = []
    for name, out in (("a", b"\x01" * 8), ("b", b"\x02" * 8)):
        root = write_trace(tmp_path / name, out)
        views.append(CaptureView.open(root, root / "tables"))

    found = compare_captures(*views, align_sources(views[0].sources, views[1].sources), [0])

    assert found.first is not None
    origin = found.first[1]
    assert (origin.kind.value, [slot.slot for slot in origin.slots]) == (
        "outputs_differ",
        ["out[1]"],
    )
    assert {str(r): n for r, n in found.ranks[0].relations().items() if n} == {
        "different": 2,
        "incomplete": 1,
    }


def test_a_missing_table_is_named(tmp_path: Path) -> None:
    root = write_trace(tmp_path / "a", b"\x01" * 8)
    (root / "tables" / "rank-0" / "values.parquet").unlink()

    with pytest.raises(CaptureReadError) as caught:
        CaptureView.open(root, root / "tables").tables(0)

    assert caught.value.details == {"path": str(root / "tables/rank-0/values.parquet")}


@pytest.mark.parametrize("name", ["plan.json", "sources/train.py"])
def test_a_missing_plan_or_source_is_named(tmp_path: Path, name: str) -> None:
    root = write_trace(tmp_path / "a", b"\x01" * 8)
    (root / name).unlink()

    with pytest.raises(CaptureReadError) as caught:
        CaptureView.open(root, root / "tables")

    assert caught.value.details == {"path": str(root / name)}


def test_a_damaged_receipt_is_left_out(tmp_path: Path) -> None:
    root = write_trace(tmp_path / "a", b"\x01" * 8)
    (root / "capture" / "receipts" / "rank-0.receipt").write_bytes(b"{}")

    assert CaptureView.open(root, root / "tables").receipts == {}


def test_why_a_rank_is_incomplete_reaches_its_tables(tmp_path: Path) -> None:
    root = write_trace(tmp_path / "a", b"\x01" * 8)

    ending = RankEnding(0, EndKind.OS_EXIT, 3)

    view = CaptureView.open(root, root / "tables", {0: ending})

    assert view.tables(0).incomplete == "the rank left through os._exit with status 3"


def test_source_of_a_library_is_the_one_that_ran_or_none(tmp_path: Path) -> None:
    for name, data in ((sha256(b"kept"), b"kept"), (sha256(b"ran"), b"changed since")):
        (tmp_path / name).write_bytes(data)
    sources = LibrarySources((tmp_path / "missing", tmp_path))

    assert sources.get(sha256(b"kept")) == b"kept"
    assert sources.get(sha256(b"ran")) is None
    assert sources.get(f"../{tmp_path.name}/{sha256(b'kept')}") is None
