"""Requests of the actions on a scratch checkout, and what they give."""

from __future__ import annotations

import json
from typing import Any

from opguard.tools.actions import compare, prepare, trace
from opguard.tools.protocol.models import (
    CompareRequest,
    CompareResult,
    DiscoverResult,
    PrepareRequest,
    PrepareResult,
    TraceRequest,
    TraceResult,
)


def prepare_request(scratch: Any, discovery: DiscoverResult, **changes: Any) -> PrepareRequest:
    return PrepareRequest.model_validate(
        {
            "protocol_version": 1,
            "output": str(scratch.output()),
            "workload": scratch.workload(),
            "discovery": json.loads(discovery.model_dump_json()),
            **changes,
        }
    )


def prepared(scratch: Any) -> PrepareResult:
    return prepare.run(prepare_request(scratch, scratch.discover()))


def trace_request(
    scratch: Any, plan: PrepareResult, behaviour: dict[str, Any] | None = None
) -> TraceRequest:
    return TraceRequest.model_validate(
        {**scratch.launch(behaviour), "plan": json.loads(plan.model_dump_json())}
    )


def traced(scratch: Any, value: bytes = b"same") -> TraceResult:
    (scratch.checkout / "value.txt").write_bytes(value)
    return trace.run(trace_request(scratch, prepared(scratch)))


def compared(
    scratch: Any, baseline: TraceResult, candidate: TraceResult, ranks: list[int]
) -> CompareResult:
    request = {
        "protocol_version": 1,
        "output": str(scratch.output()),
        "baseline": json.loads(baseline.model_dump_json()),
        "candidate": json.loads(candidate.model_dump_json()),
        "ranks": ranks,
    }
    return compare.run(CompareRequest.model_validate(request))
