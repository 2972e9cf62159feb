"""Fingerprints that stay on the device until they are fetched, without waiting for the device.

Kernels write into the slots of a *page* of device memory; every device and stream has one open
page. An event is recorded on the stream behind every launch. A page that is full, or older than a
moment, is closed: its copy into pinned memory is queued on a stream of our own that waits for the
event. One thread queues the copies and polls for their ends, and holds the GIL for microseconds a
poll. Nothing here waits for the workload's streams or refers to its tensors, and nothing is queued
on a stream but a launch and its event, so that a capture of the stream into a graph sees nothing.

The device is behind :class:`Device`, so that tests put one in its place whose copies arrive late
and out of order.

Not connected yet: the recorder waits for every fingerprint, and only tests use this.
"""

from __future__ import annotations

import _thread
import threading
import time
from collections.abc import Callable, Hashable
from typing import Any, Protocol

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
        """The bytes, once they have arrived."""


class Device(Protocol):
    """What the queue needs of a device."""

    def page(self, place: Hashable, slots: int, slot_bytes: int) -> Any:
        """Memory for results on a device and stream, which kernels of that stream may write."""

    def launched(self, page: Any) -> None:
        """Record that the page's stream has been given one more launch."""

    def copy(self, page: Any) -> Copy:
        """Queue the copy of a page behind the last launch that was recorded."""

    def enter_thread(self) -> None:
        """Called first on the thread that queues copies."""


class Pending:
    """A fingerprint that is still on the device, or on its way."""

    __slots__ = ("_page", "_slot")

    def __init__(self, page: _Page, slot: int) -> None:
        self._page = page
        self._slot = slot

    @property
    def ready(self) -> bool:
        """Whether :meth:`bytes` would not wait."""
        return self._page.data is not None

    def bytes(self) -> bytes:
        """The fingerprint; waits for it if need be, but not for later work of the device."""
        return self._page.wait_for(self._slot)


class _Page:
    """A page: open, then closed with a copy under way, then arrived."""

    __slots__ = ("_queue", "closed", "copy", "data", "memory", "opened", "place", "used")

    def __init__(self, queue: Results, place: Hashable, memory: Any) -> None:
        self._queue = queue
        self.place = place
        self.memory = memory
        self.opened = time.monotonic()
        self.used = 0
        self.closed = False
        self.copy: Copy | None = None
        self.data: bytes | None = None

    def wait_for(self, slot: int) -> bytes:
        data = self.data
        if data is None:
            data = self._queue.await_page(self)
        size = self._queue.slot_bytes
        return data[slot * size : (slot + 1) * size]


class Results:
    """Hands out slots for fingerprints and fetches them in the background.

    Safe to use from several threads, as those of the autograd engine are. When
    ``max_pending_pages`` are closed and not fetched, the next launch waits for the oldest: memory
    is bounded, and nothing is dropped.

    Args:
        device: Where the memory is.
        slot_bytes: Bytes of a fingerprint.
        arrived: Called on the fetching thread after pages have arrived.
        page_slots: Fingerprints of a page.
        max_pending_pages: Pages that may be on their way.
        max_page_age_s: Age in seconds at which a page is closed although it is not full.

    Attributes:
        slot_bytes: As given.
        waits: Times that a thread waited, because too much was on its way or because a value was
            asked for before it had arrived.
    """

    def __init__(
        self,
        device: Device,
        slot_bytes: int,
        arrived: Callable[[], None] = lambda: None,
        *,
        page_slots: int = PAGE_SLOTS,
        max_pending_pages: int = MAX_PENDING_PAGES,
        max_page_age_s: float = MAX_PAGE_AGE_S,
    ) -> None:
        self._device = device
        self.slot_bytes = slot_bytes
        self._on_arrival = arrived
        self._page_slots = page_slots
        self._max_pending = max_pending_pages
        self._max_age = max_page_age_s
        self._lock = threading.Lock()
        self._open: dict[Hashable, _Page] = {}
        self._closed: list[_Page] = []
        self._spare: dict[Hashable, list[Any]] = {}
        self._wake = threading.Event()
        self._ending = False
        self._ended = threading.Event()
        self._started = False
        self._failure: BaseException | None = None
        self.waits = 0

    def launch(self, place: Hashable, launch: Callable[[Any, int], None]) -> Pending:
        """Give a kernel a slot.

        Args:
            place: Device and stream, as the device understands them.
            launch: Called with a page's memory and the number of a slot in it; launches on that
                stream. When it raises, the slot stays free.

        Returns:
            The fingerprint to be.

        Raises:
            RuntimeError: Fetching has failed; the cause is attached.
        """
        self._check()
        with self._lock:
            page = self._open.get(place)
            if page is None:
                page = self._open_page(place)
            launch(page.memory, page.used)
            self._device.launched(page.memory)
            pending = Pending(page, page.used)
            page.used += 1
            if page.used == self._page_slots:
                self._close_page(page)
            crowded = self._closed[0] if len(self._closed) > self._max_pending else None
        if crowded is not None:
            self.await_page(crowded)
        return pending

    def flush(self) -> None:
        """Start to fetch everything launched so far; does not wait."""
        with self._lock:
            for page in list(self._open.values()):
                self._close_page(page)

    def close(self) -> None:
        """Wait until everything launched has arrived, and end the fetching thread."""
        self.flush()
        self._ending = True
        self._wake.set()
        if self._started:
            self._ended.wait()
        self._check()

    def await_page(self, page: _Page) -> bytes:
        """Wait until a page has arrived.

        Returns:
            Its bytes.
        """
        with self._lock:
            if page.data is not None:
                return page.data
            self.waits += 1
            if not page.closed:
                self._close_page(page)
            copy = self._copy_of(page)
        copy.wait()
        return self._take(page)

    def _check(self) -> None:
        if self._failure is not None:
            text = "fingerprints could not be fetched from the device"
            raise RuntimeError(text) from self._failure

    # Under the lock.

    def _open_page(self, place: Hashable) -> _Page:
        spare = self._spare.get(place)
        if spare:
            memory = spare.pop()
        else:
            memory = self._device.page(place, self._page_slots, self.slot_bytes)
        page = self._open[place] = _Page(self, place, memory)
        if not self._started:
            # Not a threading.Thread: a workload that lists its threads does not find it.
            _thread.start_new_thread(self._fetch, ())
            self._started = True
        self._wake.set()
        return page

    def _close_page(self, page: _Page) -> None:
        del self._open[page.place]
        page.closed = True
        self._closed.append(page)
        self._wake.set()

    def _copy_of(self, page: _Page) -> Copy:
        if page.copy is None:
            page.copy = self._device.copy(page.memory)
        return page.copy

    # The fetching thread, and whoever waits for a page.

    def _take(self, page: _Page) -> bytes:
        with self._lock:
            if page.data is None:
                assert page.copy is not None
                page.data = page.copy.bytes()
                page.copy = None
                self._closed.remove(page)
                # Its copy has ended, so the stream may write the memory again.
                self._spare.setdefault(page.place, []).append(page.memory)
                page.memory = None
            return page.data

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
            self._failure = error
        finally:
            self._ended.set()

    def _round(self) -> float | None:
        """Queue and take what can be; returns the seconds until it is worth looking again."""
        with self._lock:
            now = time.monotonic()
            for page in list(self._open.values()):
                if page.used and now - page.opened > self._max_age:
                    self._close_page(page)
            pages = [(page, self._copy_of(page)) for page in self._closed]
            some_open = bool(self._open)
        arrived = [page for page, copy in pages if copy.arrived()]
        for page in arrived:
            self._take(page)
        if arrived:
            self._on_arrival()
        if self._closed:
            return POLL_S
        return self._max_age if some_open else None
