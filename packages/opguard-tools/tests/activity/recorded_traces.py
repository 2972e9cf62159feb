"""Recorded Kineto traces of real devices, with ranges as OpGuard's recorder makes them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from opguard_cases import shared_folder

DDP_TRAINING = "nvidia_a100_ddp_rank0of2_train"
"""Three steps on an A100 with two ranks; forward, backward and optimizer are annotated."""


def recorded_trace(name: str) -> Path:
    """A recorded trace; the test is skipped where the folder of traces is absent."""
    path = shared_folder() / "data" / "runner" / "kineto" / f"{name}.json.gz"
    if not path.exists():
        pytest.skip(f"the recorded trace {path} is not here")
    return path


def as_part_of_capture(
    trace: Path, target: Path, ranges: Mapping[str, Sequence[tuple[int, int]]]
) -> None:
    """Write a trace as the recorder would have, had it recorded the annotated parts as calls.

    Args:
        trace: The recorded trace.
        target: File in a capture's folder of activity.
        ranges: Callsite and call of each range with a name, in the order of time.
    """
    with gzip.open(trace) as file:
        data = json.load(file)
    host = [row for row in data["traceEvents"] if row.get("cat") == "user_annotation"]
    for name, calls in ranges.items():
        found = sorted((row for row in host if row["name"] == name), key=lambda row: row["ts"])
        assert len(found) == len(calls), (name, len(found))
        for row, (site, call) in zip(found, calls, strict=True):
            row["name"] = f"opguard:call:{site}:{call}"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(gzip.compress(json.dumps(data).encode(), 1))
