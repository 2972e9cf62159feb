"""Records in their order, although some wait for fingerprints that are still on a device.

Not connected yet: the recorder waits for every fingerprint, and only tests use this.
"""

from __future__ import annotations

import threading
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from opguard.core.cuda.results import Pending

if TYPE_CHECKING:
    from xorsig import CaptureWriter

Signature = bytes | Pending | None

MAX_WAITING = 1 << 16
_PROVISIONAL = 1 << 62


class OrderedWriter:
    """Stands before a capture writer and takes pending fingerprints in place of bytes.

    A record goes straight to the writer unless one before it waits: then it waits as well, so
    that the capture holds the order in which things happened (times are those of the arrival in
    the writer). A call that begins behind a waiting record gets a provisional number, which later
    records may use like any other; the writer never sees it.

    Safe to use from several threads. When ``max_waiting`` records wait, the next one waits for the
    first fingerprint: memory is bounded, and nothing is dropped.

    Args:
        writer: The capture writer.
        max_waiting: Records that may wait.

    Attributes:
        waits: Times that a record waited for a fingerprint because too many were waiting.
    """

    def __init__(self, writer: CaptureWriter, max_waiting: int = MAX_WAITING) -> None:
        self._writer = writer
        self._max_waiting = max_waiting
        self._lock = threading.RLock()
        # Each waits for its pending fingerprints, and then appends itself.
        self._waiting: deque[tuple[tuple[Pending, ...], Callable[[], object]]] = deque()
        self._numbers = array("Q")
        self.intern = writer.intern
        self.layout = writer.layout
        self.waits = 0

    def begin(
        self,
        parent: int,
        site: int,
        step: int,
        phase: int,
        thread: int,
        flags: int,
        callee_name_id: int,
    ) -> int:
        """As ``CaptureWriter.begin``; the number may be a provisional one."""
        with self._lock:
            if not self._must_wait():
                return self._writer.begin(
                    self._number(parent), site, step, phase, thread, flags, callee_name_id
                )
            place = len(self._numbers)
            self._numbers.append(0)

            def append() -> None:
                self._numbers[place] = self._writer.begin(
                    self._number(parent), site, step, phase, thread, flags, callee_name_id
                )

            self._wait((), append)
            return _PROVISIONAL + place

    def end(self, call: int, status: int, flags: int, error_name_id: int) -> None:
        """As ``CaptureWriter.end``."""
        self._append((), lambda: self._writer.end(self._number(call), status, flags, error_name_id))

    def tensor(
        self,
        call: int,
        role: int,
        slot_name_id: int,
        layout_id: int,
        signature: Signature,
        note_name_id: int = 0,
        *,
        unless: Signature = None,
    ) -> None:
        """As ``CaptureWriter.tensor``, with a fingerprint that may be pending.

        Args:
            call: Number of the call, 0 for none.
            role: Role of the tensor.
            slot_name_id: Name of its slot.
            layout_id: Its layout.
            signature: Its fingerprint; ``None`` if it could not be read.
            note_name_id: Name of the reason why not.
            unless: The record is left out when its fingerprint turns out to be this one, as for
                an argument that a call did not change.
        """

        def append() -> None:
            value = _bytes(signature)
            if unless is None or value != _bytes(unless):
                self._writer.tensor(
                    self._number(call), role, slot_name_id, layout_id, value, note_name_id
                )

        self._append(tuple(s for s in (signature, unless) if isinstance(s, Pending)), append)

    def tensors(
        self, call: int, role: int, rows: Sequence[tuple[int, int, Signature, int]]
    ) -> None:
        """As ``CaptureWriter.tensors``; each row waits for its own fingerprint."""
        for slot_name_id, layout_id, signature, note_name_id in rows:
            self.tensor(call, role, slot_name_id, layout_id, signature, note_name_id)

    def value(self, call: int, role: int, slot_name_id: int, text: str) -> None:
        """As ``CaptureWriter.value``."""
        self._append((), lambda: self._writer.value(self._number(call), role, slot_name_id, text))

    def mark(self, kind: int, step: int, name_id: int, text: str) -> None:
        """As ``CaptureWriter.mark``."""
        self._append((), lambda: self._writer.mark(kind, step, name_id, text))

    def drain(self) -> None:
        """Append the records whose fingerprints have arrived; does not wait."""
        with self._lock:
            while self._waiting and all(pending.ready for pending in self._waiting[0][0]):
                self._waiting.popleft()[1]()

    def finish(self) -> None:
        """Wait for all fingerprints and append all records."""
        with self._lock:
            while self._waiting:
                self._append_first()

    @property
    def waiting(self) -> int:
        """Records that wait."""
        return len(self._waiting)

    def _append(self, needed: tuple[Pending, ...], append: Callable[[], object]) -> None:
        with self._lock:
            if self._must_wait() or not all(pending.ready for pending in needed):
                self._wait(needed, append)
            else:
                append()

    def _must_wait(self) -> bool:
        if self._waiting:
            self.drain()
        return bool(self._waiting)

    def _wait(self, needed: tuple[Pending, ...], append: Callable[[], object]) -> None:
        self._waiting.append((needed, append))
        if len(self._waiting) > self._max_waiting:
            self.waits += 1
            self._append_first()

    def _append_first(self) -> None:
        needed, append = self._waiting[0]
        for pending in needed:
            pending.bytes()
        self._waiting.popleft()
        append()

    def _number(self, call: int) -> int:
        return self._numbers[call - _PROVISIONAL] if call >= _PROVISIONAL else call


def _bytes(signature: Signature) -> bytes | None:
    return signature.bytes() if isinstance(signature, Pending) else signature
