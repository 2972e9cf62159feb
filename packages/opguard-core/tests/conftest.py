"""A writer that keeps records in memory, and a recorder on top of it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from opguard.core import _site


class Record(NamedTuple):
    call: int
    role: int
    slot: str
    what: Any


class MemoryWriter:
    """The part of ``xorsig.CaptureWriter`` that the recorder uses, without files."""

    def __init__(self) -> None:
        self.names = [""]
        self.layouts: list[tuple[Any, ...]] = []
        self.calls: dict[int, dict[str, Any]] = {}
        self.tensors: list[Record] = []
        self.values: list[Record] = []
        self.marks: list[tuple[int, int, str, str]] = []
        self.order: list[tuple[str, int]] = []

    def intern(self, text: str) -> int:
        if text not in self.names:
            self.names.append(text)
        return self.names.index(text)

    def layout(self, *layout: Any) -> int:
        if layout not in self.layouts:
            self.layouts.append(layout)
        return self.layouts.index(layout)

    def begin(
        self,
        parent: int,
        site: int,
        step: int,
        phase: int,
        thread: int,
        flags: int,
        callee: int,
    ) -> int:
        call = len(self.calls) + 1
        self.order.append(("begin", call))
        self.calls[call] = {
            "parent": parent,
            "site": site,
            "step": step,
            "phase": int(phase),
            "flags": int(flags),
            "callee": self.names[callee],
        }
        return call

    def end(self, call: int, status: int, flags: int, error: int) -> int:
        self.order.append(("end", call))
        self.calls[call] |= {"status": status, "error": self.names[error]}
        self.calls[call]["flags"] |= int(flags)
        return len(self.order)

    def tensor(
        self,
        call: int,
        role: int,
        slot: int,
        layout: int,
        signature: bytes | None,
        note: int = 0,
        unless: None = None,
    ) -> int:
        dtype, shape = self.layouts[layout][:2]
        what = (dtype, shape, signature if signature is not None else self.names[note])
        self.tensors.append(Record(call, int(role), self.names[slot], what))
        return len(self.order)

    def value(self, call: int, role: int, slot: int, text: str) -> int:
        self.values.append(Record(call, int(role), self.names[slot], text))
        return len(self.order)

    def mark(self, kind: int, step: int, name: int, text: str) -> int:
        self.marks.append((int(kind), step, self.names[name], text))
        return len(self.order)

    # Views for tests.

    def slots(self, call: int, role: int) -> dict[str, Any]:
        return {r.slot: r.what for r in self.tensors if r.call == call and r.role == role}

    def texts(self, call: int, role: int) -> dict[str, str]:
        return {r.slot: r.what for r in self.values if r.call == call and r.role == role}


@pytest.fixture
def writer() -> MemoryWriter:
    return MemoryWriter()


@pytest.fixture
def new_writer() -> type[MemoryWriter]:
    return MemoryWriter


@pytest.fixture
def recorder(writer: MemoryWriter) -> Iterator[Any]:
    from opguard.core.recording.recorder import CallRecorder

    recorder = CallRecorder(writer, 4, threading.get_ident())
    _site.install(recorder)
    yield recorder
    _site.install(None)
    recorder.close()
    assert recorder.failures == 0, writer.marks


@pytest.fixture(scope="session")
def shared_root() -> Path:
    """The folder of vectors that is kept beside the repository."""
    named = os.environ.get("OPGUARD_SHARED")
    root = Path(named) if named else Path(__file__).parents[4] / "shared"
    if not root.is_dir():
        pytest.skip(f"no vectors at {root}; name their folder in OPGUARD_SHARED")
    return root
