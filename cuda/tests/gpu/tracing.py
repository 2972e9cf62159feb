"""A traced training on a device: it waits for nothing, and its records are the right ones."""

from __future__ import annotations

import tempfile
import threading
from pathlib import Path
from typing import Any

import polars as pl
import torch
from promises import observed, waiting_calls

import xorsig
from opguard.core import _site
from opguard.core._site import site
from opguard.core.cuda.device import CudaDevice
from opguard.core.cuda.results import Device
from opguard.core.recording.recorder import CallRecorder

CAPTURE_ID = "0" * 32
STEPS = 5


class WaitedFor(CudaDevice):
    """Leaves every tensor to the path that waits for its fingerprint."""

    def holds(self, tensor: torch.Tensor) -> bool:
        """No tensor."""
        return False


def training(device: str) -> None:
    """Some steps with writes in place and through an alias, all made on the device."""
    torch.manual_seed(5)
    model = torch.nn.Sequential(
        torch.nn.Linear(64, 128, device=device),
        torch.nn.BatchNorm1d(128, device=device),
        torch.nn.Linear(128, 10, device=device),
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for _ in range(STEPS):
        batch = torch.randn(32, 64, device=device)
        target = torch.randint(0, 10, (32,), device=device)
        batch = site(0, batch.mul_)(1.0)
        loss = site(1, torch.nn.functional.cross_entropy)(site(2, model)(batch), target)
        site(3, optimizer.zero_grad)()
        site(4, loss.backward)()
        site(5, optimizer.step)()
        site(6, model[2].weight.data.clamp_)(-1.0, 1.0)


class Recording:
    """The training under a recorder, into a folder."""

    def __init__(self, folder: Path, device: Device) -> None:
        self._folder = folder
        self._writer = xorsig.CaptureWriter(
            folder / "rank-0", folder / "staging", capture_id=CAPTURE_ID, rank=0
        )
        self._recorder = CallRecorder(self._writer, 4, threading.get_ident(), device=device)

    def run(self, device: str) -> None:
        """Run the training on a device; does not end the recording."""
        _site.install(self._recorder)
        try:
            training(device)
        finally:
            _site.install(None)

    def records(self) -> list[tuple[Any, ...]]:
        """End the recording; slot, role and values of every tensor in order."""
        self._recorder.close()
        self._writer.close()
        assert self._recorder.failures == 0
        tables = self._folder / "tables"
        xorsig.materialize(self._folder / "rank-0", tables, capture_id=CAPTURE_ID, rank=0)
        rows = pl.read_parquet(tables / "tensors.parquet").sort("tick")
        return rows.select("role", "slot", "xor_sig", "mix_sig", "note").rows()


def tracing(device: str = "cuda", made: Device | None = None) -> dict[str, object]:
    """Records of a tracer that waits for nothing are those of one that waits for each."""
    with tempfile.TemporaryDirectory() as folder:
        waited = Recording(Path(folder, "waited"), WaitedFor())
        waited.run(device)
        late = Recording(Path(folder, "late"), CudaDevice() if made is None else made)
        _, calls = observed(lambda: late.run(device))
        expected, found = waited.records(), late.records()
    assert found == expected, "the records of both ways of tracing"
    waiting = waiting_calls(calls)
    assert not waiting, f"calls that wait: {waiting}"
    return {"tensor records": len(found), "runtime calls": dict(calls)}
