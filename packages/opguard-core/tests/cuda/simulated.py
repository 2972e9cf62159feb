"""A device that computes when the test says so, late and in any order of its streams.

Tensors of the host stand for tensors of the device. A launch reads its tensor at once, as a kernel
does that stands in the stream before whatever changes the tensor; its result appears in the page
when a copy behind it is released.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Iterator
from typing import Any

import torch

from opguard.core.fingerprint import signature_bytes


class SimulatedPage:
    """Memory that launches fill once they run."""

    def __init__(self, place: Any, slots: int, slot_bytes: int) -> None:
        self.place = place
        self.slot_bytes = slot_bytes
        self.memory = bytearray(b"\xee" * slots * slot_bytes)
        self.launches: list[tuple[int, bytes]] = []
        self.copies_under_way = 0

    def run(self, count: int) -> None:
        for slot, value in self.launches[:count]:
            self.memory[slot * self.slot_bytes : (slot + 1) * self.slot_bytes] = value


class SimulatedCopy:
    """A copy that arrives when released."""

    def __init__(self, page: SimulatedPage) -> None:
        self._page = page
        self._behind = len(page.launches)
        self._bytes = b""
        self._released = threading.Event()
        page.copies_under_way += 1

    def release(self) -> None:
        self._page.run(self._behind)
        self._bytes = bytes(self._page.memory)
        self._page.copies_under_way -= 1
        self._released.set()

    def arrived(self) -> bool:
        return self._released.is_set()

    def wait(self) -> None:
        assert self._released.wait(60), "a test waits for a copy that it never released"

    def bytes(self) -> bytes:
        assert self.arrived()
        return self._bytes


class SimulatedDevice:
    """Devices and streams of a process; ``copies`` lists what was queued, in order.

    Args:
        immediate: Copies arrive at once.

    Attributes:
        stream: What :meth:`place` returns: the current device and stream.
        in_capture: Whether the current stream is being captured into a graph.
        queued: What stands on the streams: launches and copies.
        failure: Raised by the next copy.
    """

    def __init__(self, *, immediate: bool = False) -> None:
        self.immediate = immediate
        self.stream: Any = (0, 0)
        self.in_capture = False
        self.copies: list[SimulatedCopy] = []
        self.pages: list[SimulatedPage] = []
        self.queued: list[str] = []
        self.failure: Exception | None = None
        self.changed = threading.Condition()

    def holds(self, tensor: torch.Tensor) -> bool:
        return True

    def capturing(self, tensor: torch.Tensor) -> bool:
        return self.in_capture

    def place(self, tensor: torch.Tensor) -> Any:
        return self.stream

    def page(self, place: Any, slots: int, slot_bytes: int) -> SimulatedPage:
        assert place == self.stream, "a page belongs to the current stream"
        assert not self.in_capture, "memory is allocated during a capture"
        page = SimulatedPage(place, slots, slot_bytes)
        self.pages.append(page)
        return page

    def launch(self, tensor: torch.Tensor, page: SimulatedPage, slot: int) -> None:
        assert page.place == self.stream, "a launch goes to the current stream"
        assert not self.in_capture, "a launch would become part of the graph"
        assert not page.copies_under_way, "memory is used again before its copy has ended"
        page.launches.append((slot, signature_bytes(tensor.detach(), page.slot_bytes // 8)))
        self.queued.append("launch")

    def copy(self, page: SimulatedPage) -> SimulatedCopy:
        if self.failure is not None:
            raise self.failure
        with self.changed:
            copy = SimulatedCopy(page)
            if self.immediate:
                copy.release()
            self.copies.append(copy)
            self.queued.append("copy")
            self.changed.notify_all()
            return copy

    def enter_thread(self) -> None:
        pass

    def wait_for_copies(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.copies) >= count, 60)

    def release(self, *numbers: int) -> None:
        for number in numbers:
            self.copies[number].release()

    @contextlib.contextmanager
    def completing_late(self, seed: int) -> Iterator[None]:
        """Release copies in an order of their own, each a while after it was queued."""
        order, ended = random.Random(seed), threading.Event()

        def complete() -> None:
            while not ended.is_set() or any(not copy.arrived() for copy in self.copies):
                under_way = [copy for copy in list(self.copies) if not copy.arrived()]
                if under_way and order.random() < 0.5:
                    order.choice(under_way).release()
                ended.wait(0.001)

        thread = threading.Thread(target=complete)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
