"""Writing the records of calls: names instead of ids, readings instead of bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import xorsig
from opguard.core.recording.frames import Frame, Mark, Phase, Role
from opguard.core.recording.names import Names, encodable
from opguard.core.recording.tensors import Reading, Signature

if TYPE_CHECKING:
    from xorsig import CaptureWriter


class Records:
    """The records of one capture.

    Args:
        writer: Receives the records.
        names: Interned texts.
        recorder: Counts the tensor records.
    """

    def __init__(self, writer: CaptureWriter, names: Names, recorder: xorsig.Recorder) -> None:
        self._writer = writer
        self._ids = names.id
        self._recorder = recorder

    def begin(
        self,
        frame: Frame,
        parent: xorsig.CallFrame | None,
        site: int,
        step: int,
        phase: Phase,
    ) -> None:
        """A call begins; gives the frame its number in the capture."""
        frame.call = self._writer.begin(
            0 if parent is None else parent.call,
            site,
            step,
            phase,
            0,
            frame.flags,
            self._ids(frame.name),
        )

    def end(self, frame: Frame, status: int, flags: int, error: str) -> None:
        """A call ended: ``status`` 0 returned, 1 raised."""
        self._writer.end(frame.call, status, flags, self._ids(error) if error else 0)

    def tensors(self, call: int, role: Role, parts: list[tuple[str, Reading]]) -> None:
        """Readings of a call, by slot."""
        write, ids = self._writer.tensor, self._ids
        self._recorder.count_tensors(len(parts))
        for slot, reading in parts:
            write(call, role, ids(slot), reading.layout, reading.signature, reading.note)

    def changed(
        self, call: int, role: Role, slot: str, reading: Reading, before: Signature
    ) -> None:
        """A reading that is not the one ``before``, or may not be.

        Where both are still on a device, the record is withdrawn if they turn out equal.
        """
        unless = before if isinstance(before, xorsig.PendingSignature) else None
        if not isinstance(reading.signature, xorsig.PendingSignature):
            unless = None
        self._recorder.count_tensors(1)
        self._writer.tensor(
            call, role, self._ids(slot), reading.layout, reading.signature, reading.note, unless
        )

    def under(self, call: int, role: Role, slot: str, parts: list[tuple[str, Reading]]) -> None:
        """Readings whose slots continue ``slot``."""
        self.tensors(call, role, [(slot + part, reading) for part, reading in parts])

    def value(self, call: int, role: Role, slot: str, text: str) -> None:
        """A non-tensor of a call."""
        self._writer.value(call, role, self._ids(slot), encodable(text))

    def values(self, call: int, role: Role, pairs: list[tuple[str, str]]) -> None:
        """Non-tensors of a call, by slot."""
        for slot, text in pairs:
            self.value(call, role, slot, text)

    def mark(self, kind: Mark, step: int, name: str = "", text: str = "") -> None:
        """A mark between calls."""
        self._writer.mark(kind, step, self._ids(name), encodable(text))
