"""Stands in for a launcher and its workers: makes the capture that its arguments describe.

Started as ``python fake_launcher.py -m opguard.tools.worker REQUEST SCRIPT BEHAVIOUR``, where
BEHAVIOUR is JSON. It lets the tests produce captures that a real worker must never leave.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any

import xorsig


def make_rank(request: dict[str, Any], rank: int, behaviour: dict[str, Any]) -> None:
    capture = Path(request["capture"])
    staging = Path(request["local_root"]) / f"staging-{request['capture_id']}-{rank}"
    staging.mkdir(parents=True)
    folder = capture / f"rank-{rank}"
    folder.mkdir(parents=True)
    writer = xorsig.CaptureWriter(
        str(folder), str(staging), capture_id=request["capture_id"], rank=rank
    )
    for step in range(behaviour.get("batches", 2)):
        if request["plan"] is None:
            for record in behaviour.get("spans", [{}]):
                add_span(writer, request, record)
        else:
            add_calls(writer, request, step)
        writer.flush()
    totals = writer.close()
    if behaviour.get("receipt", True):
        write_receipt(request, rank, totals, behaviour)
    damage(folder, behaviour)


def add_span(writer: Any, request: dict[str, Any], record: dict[str, Any]) -> None:
    file = str(Path(request["checkout"]) / record.get("file", "train.py"))
    line, end_line, col, end_col = record.get("span", (1, 1, 4, 9))
    writer.span(
        writer.intern(file),
        writer.intern(record.get("qualname", "<module>")),
        line,
        end_line,
        col,
        end_col,
        writer.intern(record.get("operator", "aten::add")),
        1,
        1,
        writer.intern("float32[2]"),
    )


def add_calls(writer: Any, request: dict[str, Any], step: int) -> None:
    """One call per callsite of the plan; its output is the content of ``value.txt``."""
    plan = json.loads(Path(request["plan"]).read_text())
    value = Path(request["checkout"], "value.txt")
    data = value.read_bytes() if value.exists() else b"same"
    signature = struct.pack("<8I", *xorsig.region_xor(data), *xorsig.region_mix(data))
    layout = writer.layout("uint8", (len(data),), (1,), "cpu", "strided", len(data))
    for site in plan["sites"]:
        call = writer.begin(0, site["id"], step, 0, 1, 0, writer.intern(site["callee"]))
        writer.tensor(call, 1, writer.intern("out"), layout, signature)
        writer.end(call, 0, 0, 0)


def write_receipt(
    request: dict[str, Any], rank: int, totals: dict[str, int], behaviour: dict[str, Any]
) -> None:
    document = {
        "protocol_version": 1,
        "format_version": xorsig.FORMAT_VERSION,
        "capture_id": request["capture_id"],
        "action": request["action"],
        "rank": rank,
        "rank_source": "RANK",
        "world_size": 1,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "batches": totals["batches"],
        "records": totals["records"],
        "exit_status": 0,
        "exit_kind": "returned",
        "exception": None,
        "versions": {"python": "3.11"},
        "fingerprint": {"schemes": [xorsig.XOR_SCHEME, xorsig.MIX_SCHEME], "regions": 4},
        "determinism": {"requested": request["deterministic"], "settings": {}},
        "observer_effects": ["a fake one"],
        "started_unix_ns": time.time_ns(),
        "ended_unix_ns": time.time_ns(),
        **behaviour.get("receipt_fields", {}),
    }
    folder = Path(request["capture"]) / "receipts"
    folder.mkdir(parents=True, exist_ok=True)
    xorsig.write_receipt(str(folder / f"rank-{rank}.receipt"), json.dumps(document))
    if behaviour.get("duplicate"):
        name = f"rank-{rank}.duplicate-host-1.receipt"
        xorsig.write_receipt(str(folder / name), json.dumps(document))
    if behaviour.get("damage_receipt"):
        path = folder / f"rank-{rank}.receipt"
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)


def damage(folder: Path, behaviour: dict[str, Any]) -> None:
    batches = sorted(folder.glob("*.xsb"))
    if behaviour.get("flip"):
        data = bytearray(batches[-1].read_bytes())
        data[-1] ^= 1
        batches[-1].write_bytes(data)
    if behaviour.get("remove"):
        batches[0].unlink()
    if behaviour.get("swap"):
        batches[0].rename(folder / "batch-00000099.xsb")


def main() -> None:
    assert sys.argv[1:3] == ["-m", "opguard.tools.worker"], sys.argv
    request = json.loads(Path(sys.argv[3]).read_text())
    behaviour = json.loads(sys.argv[5])
    # Both sides of a comparison get the same arguments; this file is for one of them.
    own = Path(request["checkout"], "behaviour.json")
    if own.exists():
        behaviour |= json.loads(own.read_text())
    # What stands under an action's name holds for that action only.
    behaviour |= behaviour.get(request["action"], {})
    print("fake workload says hello", flush=True)
    for rank in behaviour.get("ranks", [0]):
        make_rank(request, rank, behaviour)
    if "worker_error" in behaviour:
        errors = Path(request["capture"]) / "errors"
        errors.mkdir(parents=True)
        (errors / "rank-0-1.json").write_text(behaviour["worker_error"])
    if behaviour.get("kill_parent"):
        os.kill(os.getppid(), signal.SIGKILL)
    if behaviour.get("kill"):
        os.kill(os.getpid(), signal.SIGKILL)
    if "ready" in behaviour:
        Path(behaviour["ready"]).write_text(str(os.getpid()))
        signal.pause()
    sys.exit(behaviour.get("exit", 0))


main()
