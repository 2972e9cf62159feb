"""Pages of results on real CUDA devices; see :mod:`opguard.core.cuda.results`.

Not connected yet: the recorder waits for every fingerprint, and only tests use this.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

import torch

from opguard.core.cuda.kernels import KERNELS, Kernels


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

    def page(self, place: Hashable, slots: int, slot_bytes: int) -> Page:
        """A page for the stream of ``place``, which is the current one."""
        assert isinstance(place, Place)
        return Page(place.device, slots, slot_bytes)

    def launched(self, page: Any) -> None:
        """Record the page's event on the current stream."""
        page.written.record(torch.cuda.current_stream(page.device))

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
