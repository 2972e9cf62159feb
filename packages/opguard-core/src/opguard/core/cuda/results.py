"""Fingerprints that stay on the device until they are fetched, without waiting for the device.

Kernels write into the slots of a *page* of device memory; every device and stream has one open
page. An event is recorded on the stream behind every launch. A page that is full, or older than a
moment, is closed: its copy into pinned memory is queued on a stream of our own that waits for the
event. One thread queues the copies, polls for their ends and hands the bytes to the capture
writer; it holds the GIL for microseconds a poll. Nothing here waits for the workload's streams or
refers to its tensors, and nothing is queued on a stream but a launch and its event, so that a
capture of the stream into a graph sees nothing.

The device is behind :class:`Device`, so that tests put one in its place whose copies arrive late
and out of order.
"""

from __future__ import annotations

import _thread
import os
import sys
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

import torch

import xorsig

PAGE_SLOTS = 256
MAX_PAGE_AGE_S = 0.5
MAX_PENDING_PAGES = 64
POLL_S = 0.002


class Copy(Protocol):
    """A copy from the device that is under way."""

    def arrived(self) -> bool:
        """Whether the bytes are there; does not wait."""

    def wait(self) -> None:
        """Wait until they are, without the GIL."""

    def bytes(self) -> bytes:
        """The bytes of the whole page, once they have arrived."""


class Device(Protocol):
    """What is needed of the devices of a process."""

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is on one of them."""

    def capturing(self, tensor: torch.Tensor) -> bool:
        """Whether a launch now might become part of a graph, or spoil the capture of one."""

    def place(self, tensor: torch.Tensor) -> Hashable:
        """The device of a tensor, and the stream that is current there."""

    def page(self, place: Hashable, slots: int, slot_bytes: int) -> Any:
        """Memory for results, which kernels of the stream may write."""

    def launch(self, tensor: torch.Tensor, page: Any, slot: int) -> None:
        """Launch a fingerprint on the current stream, and record that its page waits for it."""

    def copy(self, page: Any) -> Copy:
        """Queue the copy of a page behind the last launch that was recorded."""

    def enter_thread(self) -> None:
        """Called first on the thread that queues copies."""


class Receiver(Protocol):
    """Takes what has arrived; a ``xorsig.CaptureWriter``."""

    def resolve(self, signatures: Sequence[xorsig.PendingSignature], data: bytes | None) -> None:
        """The bytes of signatures, one after the other; ``None`` if they are lost."""


def _to_stderr(text: str) -> None:
    print(f"opguard: {text}", file=sys.stderr)


class _Page:
    """A page: open, then closed with a copy under way, then taken."""

    __slots__ = ("copy", "memory", "opened", "place", "signatures")

    def __init__(self, place: Hashable, memory: Any) -> None:
        self.place = place
        self.memory = memory
        self.opened = time.monotonic()
        self.signatures: list[xorsig.PendingSignature] = []
        self.copy: Copy | None = None


class Results:
    """Hands out slots for fingerprints, and fetches them in the background.

    Safe to use from several threads, as those of the autograd engine are. When more than
    ``max_pending_pages`` are closed and not fetched, a launch waits for the oldest: memory is
    bounded, and nothing is dropped. When fetching fails, everything on its way is lost, which the
    receiver is told, and so is what is launched later.

    Args:
        device: Where the memory is.
        receiver: Takes what arrives.
        slot_bytes: Bytes of a fingerprint.
        page_slots: Fingerprints of a page.
        max_pending_pages: Pages that may be on their way.
        max_page_age_s: Age in seconds at which a page is closed although it is not full.
        report: Takes the one report of a failure.

    Attributes:
        waits: Times that a thread waited, because too much was on its way.
        failure: Why nothing is fetched any more.
        used: Whether something was launched.
    """

    def __init__(
        self,
        device: Device,
        receiver: Receiver,
        slot_bytes: int,
        *,
        page_slots: int = PAGE_SLOTS,
        max_pending_pages: int = MAX_PENDING_PAGES,
        max_page_age_s: float = MAX_PAGE_AGE_S,
        report: Callable[[str], None] = _to_stderr,
    ) -> None:
        self._device = device
        self._receiver = receiver
        self._slot_bytes = slot_bytes
        self._page_slots = page_slots
        self._max_pending = max_pending_pages
        self._max_age = max_page_age_s
        self._report = report
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._open: dict[Hashable, _Page] = {}
        self._closed: list[_Page] = []
        self._spare: dict[Hashable, list[Any]] = {}
        self._wake = threading.Event()
        self._ending = False
        self._ended = threading.Event()
        self.used = False
        self.waits = 0
        self.failure: BaseException | None = None

    def fingerprint(self, tensor: torch.Tensor) -> xorsig.PendingSignature:
        """Launch the fingerprint of a tensor on the current stream; does not wait for it.

        Args:
            tensor: On the device, and not being captured into a graph.

        Returns:
            The fingerprint to be.

        Raises:
            RuntimeError: Fetching has failed; the cause is attached.
        """
        place = self._device.place(tensor)
        with self._lock:
            if self.failure is not None:
                raise RuntimeError("fingerprints cannot be fetched") from self.failure
            page = self._open.get(place)
            if page is None:
                page = self._open_page(place)
            # When it raises, the slot stays free.
            self._device.launch(tensor, page.memory, len(page.signatures))
            signature = xorsig.PendingSignature()
            page.signatures.append(signature)
            if len(page.signatures) == self._page_slots:
                self._close_page(page)
            crowded = self._closed[0] if len(self._closed) > self._max_pending else None
        if crowded is not None:
            self._wait_for(crowded)
        return signature

    def flush(self) -> None:
        """Start to fetch everything launched so far; does not wait."""
        with self._lock:
            for page in list(self._open.values()):
                self._close_page(page)

    def close(self) -> None:
        """Wait until everything launched has arrived or is lost, and end the fetching thread.

        A forked child does nothing: what is on its way is the parent's.
        """
        if os.getpid() != self._pid:
            return
        self.flush()
        self._ending = True
        self._wake.set()
        if self.used:
            self._ended.wait()

    # Under the lock.

    def _open_page(self, place: Hashable) -> _Page:
        spare = self._spare.get(place)
        if spare:
            memory = spare.pop()
        else:
            memory = self._device.page(place, self._page_slots, self._slot_bytes)
        page = self._open[place] = _Page(place, memory)
        if not self.used:
            # Not a threading.Thread: a workload that lists its threads does not find it.
            _thread.start_new_thread(self._fetch, ())
            self.used = True
        self._wake.set()
        return page

    def _close_page(self, page: _Page) -> None:
        del self._open[page.place]
        self._closed.append(page)
        self._wake.set()

    def _copy_of(self, page: _Page) -> Copy:
        if page.copy is None:
            page.copy = self._device.copy(page.memory)
        return page.copy

    # The fetching thread, and whoever waits for a page.

    def _wait_for(self, page: _Page) -> None:
        with self._lock:
            if page not in self._closed:
                return
            self.waits += 1
            copy = self._copy_of(page)
        copy.wait()
        self._take(page)

    def _take(self, page: _Page) -> None:
        with self._lock:
            if page not in self._closed:
                return
            assert page.copy is not None
            data = page.copy.bytes()[: len(page.signatures) * self._slot_bytes]
            self._closed.remove(page)
            # Its copy has ended, so the stream may write the memory again.
            self._spare.setdefault(page.place, []).append(page.memory)
        self._receiver.resolve(page.signatures, data)

    def _fetch(self) -> None:
        try:
            self._device.enter_thread()
            while True:
                # What is set from here on is looked at below, or wakes the wait.
                self._wake.clear()
                pause = self._round()
                if self._ending and not self._closed:
                    break
                self._wake.wait(pause)
        except BaseException as error:
            self._fail(error)
        finally:
            self._ended.set()

    def _round(self) -> float | None:
        """Queue and take what can be; returns the seconds until it is worth looking again."""
        with self._lock:
            now = time.monotonic()
            for page in list(self._open.values()):
                if page.signatures and now - page.opened > self._max_age:
                    self._close_page(page)
            pages = [(page, self._copy_of(page)) for page in self._closed]
            some_open = bool(self._open)
        for page, copy in pages:
            if copy.arrived():
                self._take(page)
        if self._closed:
            return POLL_S
        return self._max_age if some_open else None

    def _fail(self, error: BaseException) -> None:
        with self._lock:
            self.failure = error
            lost = [*self._closed, *self._open.values()]
            self._closed.clear()
            self._open.clear()
        for page in lost:
            self._receiver.resolve(page.signatures, None)
        self._report(
            f"fingerprints could not be fetched from the device ({type(error).__name__}: {error}); "
            "tensors on it are recorded as unread from here on"
        )
