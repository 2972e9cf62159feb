"""A device whose copies arrive when the test says so, in any order."""

from __future__ import annotations

import threading


class SimulatedCopy:
    """A copy that arrives when released.

    Copies take what the page holds when they were queued, as the copy of a stream in order would.
    """

    def __init__(self, page: bytearray) -> None:
        self._bytes = bytes(page)
        self._released = threading.Event()

    def release(self) -> None:
        self._released.set()

    def arrived(self) -> bool:
        return self._released.is_set()

    def wait(self) -> None:
        assert self._released.wait(60), "a test waits for a copy that it never released"

    def bytes(self) -> bytes:
        assert self.arrived()
        return self._bytes


class SimulatedDevice:
    """Pages are bytearrays; ``copies`` lists what was queued, in order.

    Args:
        immediate: Copies arrive at once.
    """

    def __init__(self, *, immediate: bool = False) -> None:
        self.immediate = immediate
        self.copies: list[SimulatedCopy] = []
        self.pages = 0
        self.launches = 0
        self.queued = threading.Condition()

    def page(self, place, slots: int, slot_bytes: int) -> bytearray:
        self.pages += 1
        return bytearray(slots * slot_bytes)

    def launched(self, page: bytearray) -> None:
        self.launches += 1

    def copy(self, page: bytearray) -> SimulatedCopy:
        with self.queued:
            copy = SimulatedCopy(page)
            if self.immediate:
                copy.release()
            self.copies.append(copy)
            self.queued.notify_all()
            return copy

    def enter_thread(self) -> None:
        pass

    def wait_for_copies(self, count: int) -> None:
        with self.queued:
            assert self.queued.wait_for(lambda: len(self.copies) >= count, 60)

    def release(self, *numbers: int) -> None:
        for number in numbers:
            self.copies[number].release()


def kernel(value: int):
    """A launch that writes eight equal bytes into its slot."""

    def launch(page: bytearray, slot: int) -> None:
        page[8 * slot : 8 * slot + 8] = bytes([value]) * 8

    return launch
