"""What is asked of torch's streams, events and allocator, without a device."""

import pytest
import torch

from opguard.core.cuda import device as devices
from opguard.core.cuda.device import CudaDevice
from opguard.core.fingerprint import device_signature, signature_bytes


class Page:
    """A page on the host, and what happens to it in order."""

    def __init__(self, done: list[str]) -> None:
        self.device = 0
        self.slots = torch.zeros(3, 8, dtype=torch.int32)
        self.written = type("Event", (), {"record": lambda _, s: done.append(f"event on {s}")})()


@pytest.fixture
def done(monkeypatch) -> list[str]:
    """What is done, in order; the current stream is the text `side`."""
    done: list[str] = []

    def launch(tensor, regions, out) -> None:
        done.append("launch")
        device_signature(tensor, regions, out)

    monkeypatch.setattr(devices, "device_signature", launch)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: "side")
    monkeypatch.setattr(
        torch.Tensor, "record_stream", lambda _, stream: done.append(f"used on {stream}")
    )
    return done


@pytest.mark.requirement("F9", "F10")
def test_the_allocator_is_told_of_the_stream_and_the_event_stands_behind_the_launch(done):
    """Without the kernels, tensor operations put equal values into the page."""
    tensor = torch.randn(50)
    page = Page(done)
    CudaDevice().launch(tensor, page, 1)
    assert done == ["launch", "used on side", "event on side"]
    assert page.slots[1].numpy().tobytes() == signature_bytes(tensor, 4)
    assert not page.slots[[0, 2]].any()


def test_a_capture_on_the_current_or_the_tensors_device_is_seen(monkeypatch):
    """An allocation on another device would spoil the capture of this thread."""
    current, capturing = [0], set()

    class Device:
        def __init__(self, device: int) -> None:
            self.device = device

        def __enter__(self) -> None:
            current.append(self.device)

        def __exit__(self, *_: object) -> None:
            current.pop()

    monkeypatch.setattr(torch.cuda, "device", Device)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: current[-1])
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: current[-1] in capturing)
    monkeypatch.setattr(torch.Tensor, "get_device", lambda _: 1)
    seen = []
    for capturing in (set(), {0}, {1}, {2}):  # noqa: B007, read by the function above
        seen.append(CudaDevice().capturing(torch.zeros(1)))
    assert seen == [False, True, True, False]
    assert current == [0]
