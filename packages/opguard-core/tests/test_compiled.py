"""Compiled code keeps its graphs while a recorder is installed."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
import torch._dynamo
from torch._dynamo.utils import counters

pytestmark = pytest.mark.filterwarnings("ignore")


def compiled_step() -> tuple[list[Any], dict[str, int], int]:
    """Parameters after a training with a compiled optimizer step, its graphs and graph breaks."""
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 1))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    step = torch.compile(optimizer.step, backend="eager")
    for _ in range(3):
        optimizer.zero_grad()
        model(torch.ones(3, 4)).square().mean().backward()
        step()
    breaks = sum(counters["graph_break"].values())
    return [p.tolist() for p in model.parameters()], dict(counters["stats"]), breaks


def test_compiled_optimizer_step_has_no_other_graphs_and_no_more_breaks(writer: Any) -> None:
    from opguard.core.recording.recorder import CallRecorder

    parameters, graphs, breaks = compiled_step()
    recorder = CallRecorder(writer, 4, threading.get_ident())
    try:
        recorded, recorded_graphs, recorded_breaks = compiled_step()
    finally:
        recorder.close()
    assert (recorded, recorded_graphs) == (parameters, graphs)
    assert recorded_breaks <= breaks
    assert recorder.step == 3
    assert recorder.failures == 0
