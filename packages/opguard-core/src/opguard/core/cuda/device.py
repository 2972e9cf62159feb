"""Pages of results on real CUDA devices; see :mod:`opguard.core.cuda.results`."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

import torch

from opguard.core.cuda.kernels import KERNELS, Kernels
from opguard.core.fingerprint import device_signature


class Place(NamedTuple):
    """A stream of a device.

    Attributes:
        device: Index of the device.
        stream: Handle of the stream.
    """

    device: int
    stream: int

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Place:
        """The stream that is current for a tensor's device."""
        device = tensor.get_device()
        return cls(device, torch._C._cuda_getCurrentRawStream(device))


class Page:
    """Memory of results on a device, with its counterpart on the host.

    Both are allocated where a page is opened, never later: allocating pinned memory is forbidden
    while a stream is being captured.

    Attributes:
        slots: ``int32[slots, values]`` on the device.
        pinned: The same on the host.
        written: Recorded behind the last launch.
        device: Index of the device.
    """

    def __init__(self, device: int, slots: int, slot_bytes: int) -> None:
        self.device = device
        shape = (slots, slot_bytes // 4)
        # A tensor made in inference mode cannot be written outside of it.
        with torch.inference_mode(False):
            self.slots = torch.zeros(shape, dtype=torch.int32, device=f"cuda:{device}")
            self.pinned = torch.empty(shape, dtype=torch.int32, pin_memory=True)
        self.written = torch.cuda.Event()  # type: ignore[no-untyped-call]


class PageCopy:
    """A copy of a page to the host."""

    def __init__(self, page: Page, side: torch.cuda.Stream) -> None:
        self._page = page
        self._done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        with torch.cuda.device(page.device), torch.cuda.stream(side):
            side.wait_event(page.written)
            page.pinned.copy_(page.slots, non_blocking=True)
            self._done.record(side)

    def arrived(self) -> bool:
        """Whether the bytes are there."""
        return bool(self._done.query())  # type: ignore[no-untyped-call]

    def wait(self) -> None:
        """Wait for the copy alone; torch releases the GIL meanwhile."""
        self._done.synchronize()

    def bytes(self) -> bytes:
        """The bytes of all slots."""
        return self._page.pinned.numpy().tobytes()


class CudaDevice:
    """The CUDA devices of this process.

    A page is kept until its copy has ended, and then used again by the same stream, so the
    allocator need not know of the side stream.
    """

    def __init__(self, kernels: Kernels = KERNELS) -> None:
        self._kernels = kernels
        self._sides: dict[int, torch.cuda.Stream] = {}

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is on a CUDA device."""
        return tensor.is_cuda

    def capturing(self, tensor: torch.Tensor) -> bool:
        """Whether the current stream is being captured, of the current or the tensor's device.

        A launch on the tensor's stream would become part of the graph; an allocation on another
        device would spoil the capture of this thread.
        """
        if torch.cuda.is_current_stream_capturing():
            return True
        device = tensor.get_device()
        if device == torch.cuda.current_device():
            return False
        with torch.cuda.device(device):
            return bool(torch.cuda.is_current_stream_capturing())

    def place(self, tensor: torch.Tensor) -> Place:
        """Device and current stream of a tensor."""
        return Place.of(tensor)

    def page(self, place: Hashable, slots: int, slot_bytes: int) -> Page:
        """A page for the stream of ``place``, which is the current one."""
        assert isinstance(place, Place)
        return Page(place.device, slots, slot_bytes)

    def launch(self, tensor: torch.Tensor, page: Any, slot: int) -> None:
        """Launch a fingerprint on the current stream, and record the page's event behind it."""
        out = page.slots[slot]
        device_signature(tensor, out.numel() // 2, out)
        stream = torch.cuda.current_stream(page.device)
        # Memory that came from another stream must not be given away before the launch has read
        # it. For that of this stream, nearly always, the allocator does nothing.
        tensor.record_stream(stream)
        page.written.record(stream)

    def copy(self, page: Any) -> PageCopy:
        """Queue a copy on the device's side stream."""
        side = self._sides.get(page.device)
        if side is None:
            side = torch.cuda.Stream(page.device)  # type: ignore[no-untyped-call]
            self._sides[page.device] = side
        return PageCopy(page, side)

    def enter_thread(self) -> None:
        """Let the thread query events while another one captures a graph."""
        self._kernels.relax_capture_mode()
