"""Recorded calls whose fingerprints come from a device late and out of order."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from simulated import SimulatedDevice
from torch import nn

import xorsig
from opguard.core import _site
from opguard.core._site import site
from opguard.core.recording.recorder import CallRecorder

pl = pytest.importorskip("polars", reason="reading Parquet in these tests needs polars")

CAPTURE_ID = "0123456789abcdef0123456789abcdef"


class Capture:
    """A capture in a folder, and its tables."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @contextlib.contextmanager
    def recording(self, device: Any = None, *, native: bool = True, **options: Any):
        writer = xorsig.CaptureWriter(
            self.root / "rank-0", self.root / "staging", capture_id=CAPTURE_ID, rank=0, **options
        )
        recorder = CallRecorder(writer, 4, threading.get_ident(), device=device, native=native)
        _site.install(recorder)
        try:
            yield recorder
        finally:
            _site.install(None)
            recorder.close()
            self.stats = writer.close()
        assert recorder.failures == 0

    def table(self, name: str):
        tables = self.root / "tables"
        if not tables.exists():
            xorsig.materialize(
                self.root / "rank-0", tables, capture_id=CAPTURE_ID, rank=0, partial=True
            )
        return pl.read_parquet(tables / f"{name}.parquet")

    def records(self) -> list[tuple[Any, ...]]:
        """Every tensor and value in order, under the number and callee of its call."""
        calls = {row["call"]: row["callee"] for row in self.table("calls").to_dicts()}
        numbers = {call: number for number, call in enumerate(calls)}
        names = {row["layout"]: row["device"] for row in self.table("layouts").to_dicts()}
        assert set(names.values()) <= {"cpu"}
        found = []
        for row in self.table("tensors").to_dicts():
            values = (row["xor_sig"], row["mix_sig"], row["note"])
            found.append((row["tick"], numbers[row["call"]], calls[row["call"]], row, values))
        return [
            (number, callee, row["role"], row["slot"], *values)
            for _, number, callee, row, values in sorted(found, key=lambda item: item[0])
        ]


def training(steps: int = 3) -> None:
    """Writes in place, through aliases and not at all; parameters, buffers, state, gradients."""
    torch.manual_seed(7)
    model = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    target = torch.randint(0, 2, (8,))

    def damp(parameter: torch.Tensor, really: bool) -> None:
        if really:
            parameter.data.mul_(0.99)

    def unchanged(batch: torch.Tensor) -> torch.Tensor:
        batch.add_(0.0)
        return batch * 2

    for step in range(steps):
        batch = torch.randn(8, 6)
        batch = site(0, unchanged)(batch)
        loss = site(1, nn.functional.cross_entropy)(site(2, model)(batch), target)
        site(3, optimizer.zero_grad)()
        site(4, loss.backward)()
        site(5, nn.utils.clip_grad_norm_)(model.parameters(), 0.1)
        site(6, optimizer.step)()
        site(7, damp)(model[0].weight, step == 1)
        weight = model[3].weight.data
        site(8, weight.clamp_)(-10.0, 10.0)
        site(9, weight.mul_)(0.5)


@pytest.fixture
def waited(tmp_path) -> list[tuple[Any, ...]]:
    """Records of the training with fingerprints that are waited for."""
    capture = Capture(tmp_path / "waited")
    with capture.recording():
        training()
    return capture.records()


@pytest.mark.requirement("F9")
@pytest.mark.parametrize("seed", [1, 2])
def test_records_are_those_of_a_recorder_that_waits(tmp_path, waited, seed) -> None:
    """In their order, with their values, and without those of what did not change."""
    device = SimulatedDevice()
    capture = Capture(tmp_path / "late")
    with device.completing_late(seed), capture.recording(device, max_batch_records=64):
        training()
    assert capture.records() == waited
    assert capture.stats["withdrawn"] > 0
    assert (
        capture.stats["records"]
        == xorsig.verify_capture(tmp_path / "late/rank-0", CAPTURE_ID, 0)["records"]
    )


@pytest.mark.requirement("F9")
def test_records_keep_their_order_over_devices_and_streams(tmp_path, waited) -> None:
    device = SimulatedDevice()
    place, turns = device.place, iter(range(1 << 30))

    def next_place(tensor: torch.Tensor) -> Any:
        turn = next(turns)
        device.stream = (turn % 2, turn % 3)
        return place(tensor)

    device.place = next_place  # type: ignore[method-assign]
    capture = Capture(tmp_path / "late")
    with device.completing_late(3), capture.recording(device, native=False):
        training()
    assert {page.place for page in device.pages} == {(a, b) for a in (0, 1) for b in (0, 1, 2)}
    assert capture.records() == waited


def test_a_call_returns_before_its_fingerprints_exist(tmp_path) -> None:
    device = SimulatedDevice()
    capture = Capture(tmp_path)
    recording = contextlib.ExitStack()
    recorder = recording.enter_context(capture.recording(device))
    training(1)
    recorder.flush()
    device.wait_for_copies(1)
    assert not any(copy.arrived() for copy in device.copies)
    with device.completing_late(1):
        recording.close()
    assert len(capture.records()) == 91


@pytest.mark.requirement("F9")
def test_an_exception_of_the_program_loses_nothing(tmp_path) -> None:
    device = SimulatedDevice()
    capture = Capture(tmp_path)
    x = torch.arange(4.0)

    def failing(tensor: torch.Tensor) -> None:
        tensor.add_(1)
        raise ValueError("of the program")

    with (
        pytest.raises(ValueError, match="of the program"),
        device.completing_late(1),
        capture.recording(device),
    ):
        site(0, failing)(x)
    found = capture.records()
    assert [(callee, role, slot) for _, callee, role, slot, *_ in found] == [
        ("failing", 0, "arg[0]"),
        ("failing", 1, "arg[0]"),
    ]
    before, after = (record[4] for record in found)
    assert before == list(xorsig.region_xor(torch.arange(4.0).numpy()))
    assert after == list(xorsig.region_xor(x.numpy()))


@pytest.mark.requirement("F9")
def test_a_fork_neither_waits_nor_loses_what_is_on_its_way(tmp_path) -> None:
    device = SimulatedDevice()
    capture = Capture(tmp_path)
    with device.completing_late(1), capture.recording(device, max_batch_records=2):
        total = torch.zeros(2)
        for _ in range(10):
            total = site(0, torch.add)(total, 1)
        child = os.fork()
        if child == 0:
            site(0, torch.add)(total, 5)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        for _ in range(10):
            total = site(0, torch.add)(total, 1)
    outputs = [record[4] for record in capture.records() if record[2] == 1]
    values = [torch.full((2,), float(n)).numpy() for n in range(1, 21)]
    assert outputs == [list(xorsig.region_xor(value)) for value in values]


@pytest.mark.requirement("F9")
def test_a_killed_program_leaves_the_beginning_of_its_records(tmp_path, waited) -> None:
    here = Path(__file__)
    script = f"""
import sys
from pathlib import Path
sys.path[:0] = [{str(here.parent)!r}]
from test_recorded import Capture, SimulatedDevice, training
device = SimulatedDevice()
with device.completing_late(4):
    with Capture(Path(sys.argv[1])).recording(device, max_batch_records=16) as recorder:
        training()
        while True:
            recorder.flush()
"""
    command = [sys.executable, "-c", script, str(tmp_path / "killed")]
    with subprocess.Popen(command) as process:
        while not (tmp_path / "killed/rank-0/batch-00000003.xsb").exists():
            assert process.poll() is None
        process.send_signal(signal.SIGKILL)
    found = Capture(tmp_path / "killed").records()
    assert len(found) >= 16
    assert found == waited[: len(found)]


@pytest.mark.requirement("F9")
def test_the_capture_of_a_graph_has_no_launch_or_event_of_ours(tmp_path) -> None:
    device = SimulatedDevice(immediate=True)
    capture = Capture(tmp_path)
    with capture.recording(device) as recorder:
        site(0, torch.neg)(torch.ones(3))
        recorder.flush()
        device.wait_for_copies(1)
        queued = list(device.queued)
        device.in_capture = True
        site(0, torch.neg)(torch.ones(3))
        device.in_capture = False
        assert device.queued == queued
        site(0, torch.neg)(torch.ones(3))
    reason = "inside a CUDA graph capture"
    assert [record[-1] for record in capture.records()] == [None, None, reason, reason, None, None]


def test_a_device_that_fails_leaves_unread_tensors_and_a_note(tmp_path, capsys) -> None:
    device = SimulatedDevice()
    device.failure = RuntimeError("device-side assert")
    capture = Capture(tmp_path)
    with capture.recording(device) as recorder:
        assert torch.equal(site(0, torch.neg)(torch.ones(3)), -torch.ones(3))
        recorder.flush()
        while recorder._reader.results.failure is None:
            pass
        site(0, torch.neg)(torch.ones(3))
    lost = "its fingerprint did not arrive from the device"
    late = "unreadable: RuntimeError: fingerprints cannot be fetched"
    assert [record[-1] for record in capture.records()] == [lost, lost, late, late]
    marks = capture.table("marks").to_dicts()
    assert [mark["value"] for mark in marks if mark["name"] == "device fingerprints"] == [
        "RuntimeError: device-side assert"
    ]
    assert "device-side assert" in capsys.readouterr().err


def test_flush_of_a_session_publishes_what_is_on_the_device(tmp_path, monkeypatch) -> None:
    import opguard.core

    device = SimulatedDevice(immediate=True)
    monkeypatch.setattr("opguard.core.recording.tensors.CudaDevice", lambda: device)
    with opguard.core.capture(tmp_path / "out", root=Path(__file__).parent) as session:
        session.tensor("weights", torch.ones(2))
        session.flush()
        found = xorsig.verify_capture(tmp_path / "out/capture/rank-0", session.capture_id, 0)
        assert found["records"] >= 3
        session.observe(torch.Tensor.add_, name="add")(torch.ones(2), 0.0)
    receipt = json.loads(xorsig.read_receipt(str(tmp_path / "out/capture/receipts/rank-0.receipt")))
    # Not counted is the record of a first argument that turned out unchanged.
    assert receipt["counts"]["tensors"] == 4
    assert any("on a device" in effect for effect in receipt["observer_effects"])
