"""What a trace says of device activity: sums in its result, every callsite in a file."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from action_requests import prepared, trace_request

from opguard.tools.actions import trace
from opguard.tools.actions.activity import activity_fields
from opguard.tools.actions.plans import CheckedPlan
from opguard.tools.launch.receipts import Receipt

VARIABLES = ("OPGUARD_CALLSITE_CUPTI", "OPGUARD_CALLSITE_CUDAAPI")
NONE = {"kernels": 0, "copies": 0, "device_ns": 0, "runtime_calls": 0, "runtime_ns": 0}


def collect(capture: Path, rank: int, site: int) -> None:
    """Two calls of a callsite: two kernels in the first one, one in the second, one outside."""
    rows: list[dict[str, Any]] = []
    for call in (1, 2):
        name = f"opguard:call:{site}:{call}"
        rows.append({"cat": "user_annotation", "name": name, "ts": 100 * call, "dur": 50})
    for number, start in enumerate((110, 120, 210, 300), 1):
        found = {"args": {"correlation": number}}
        rows.append({"cat": "cuda_runtime", "name": "launch", "ts": start, "dur": 1} | found)
        rows.append({"cat": "kernel", "name": "k", "ts": 400, "dur": 2} | found)
    text = json.dumps({"traceEvents": [{"ph": "X", "pid": 1, "tid": 1} | row for row in rows]})
    path = capture / f"activity/rank-{rank}.0.json.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()))


def receipt(rank: int) -> Receipt:
    states = dict.fromkeys(VARIABLES, "collected")
    return Receipt.model_construct(rank=rank, device_activity=states)


@pytest.mark.requirement("B11")
def test_result_has_sums_and_the_file_has_every_callsite(scratch: Any, tmp_path: Path) -> None:
    plan = CheckedPlan.read(prepared(scratch), scratch.checkout).plan
    site = plan.sites[0]
    for rank in (0, 1):
        collect(tmp_path / "capture", rank, site.id)

    receipts = [receipt(0), receipt(1), receipt(2)]
    fields = activity_fields(tmp_path, tmp_path / "capture", receipts, plan.sites)

    direct = {"kernels": 3, "copies": 0, "device_ns": 6000, "runtime_calls": 3, "runtime_ns": 3000}
    outside = NONE | {"kernels": 1, "device_ns": 2000, "runtime_calls": 1, "runtime_ns": 1000}
    others = {"outside_calls": outside}
    assert [rank.model_dump() for rank in fields["activity"]] == [
        {"rank": rank, "direct": direct, "backward": NONE, "others": others, "warnings": []}
        for rank in (0, 1)
    ]
    document = json.loads(Path(fields["activity_report"]).read_text())
    assert document["schema"] == {"name": "opguard-device-activity", "version": 1}
    callsite = {
        "site": site.id,
        "file": "train.py",
        "line": site.line,
        "qualname": site.qualname,
        "text": site.text,
        "calls": 2,
        "direct": direct,
        "backward": NONE,
    }
    assert document["ranks"] == [
        {"rank": rank, "callsites": [callsite], "others": others, "warnings": []} for rank in (0, 1)
    ]


@pytest.mark.requirement("B11")
def test_result_without_a_device_has_the_reason_and_no_file(scratch: Any) -> None:
    reason = "unavailable: this build of torch has no CUDA"
    stated = {"device_activity": dict.fromkeys(VARIABLES, reason)}

    result = trace.run(trace_request(scratch, prepared(scratch), {"receipt_fields": stated}))

    assert result.device_activity == stated["device_activity"]
    assert (result.activity, result.activity_report) == ([], None)
    assert not (Path(result.output) / "device-activity.json").exists()
