"""Shared fixtures: a capture directory, a writer over it, a small finished capture."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import xorsig

CAPTURE_ID = "0123456789abcdef0123456789abcdef"


@dataclass(frozen=True)
class Capture:
    """Paths of one rank's capture."""

    root: Path
    capture_id: str = CAPTURE_ID

    @property
    def directory(self) -> Path:
        return self.root / "capture" / "rank-0"

    @property
    def staging(self) -> Path:
        return self.root / "staging"

    @property
    def tables(self) -> Path:
        return self.root / "tables" / "rank-0"

    def writer(self, **options: Any) -> xorsig.CaptureWriter:
        identity: dict[str, Any] = {"capture_id": CAPTURE_ID, "rank": 0} | options
        return xorsig.CaptureWriter(self.directory, self.staging, **identity)

    def batch(self, sequence: int) -> Path:
        return self.directory / f"batch-{sequence:08d}.xsb"

    def verify(self, **expected: int) -> dict[str, int]:
        return xorsig.verify_capture(self.directory, CAPTURE_ID, 0, **expected)

    def materialize(self, **options: Any) -> dict[str, Any]:
        identity: dict[str, Any] = {"capture_id": CAPTURE_ID, "rank": 0} | options
        return xorsig.materialize(self.directory, self.tables, **identity)


@pytest.fixture
def capture(tmp_path: Path) -> Capture:
    return Capture(tmp_path)


@pytest.fixture
def write_calls() -> Callable[[xorsig.CaptureWriter, int], None]:
    """Appends calls of four records each: begin, two tensors, end."""

    def write(writer: xorsig.CaptureWriter, count: int) -> None:
        slot, callee = writer.intern("arg[0]"), writer.intern("torch.mm")
        layout = writer.layout("torch.float32", (2, 3), (3, 1), "cpu", "strided", 24)
        for index in range(count):
            call = writer.begin(0, index, 0, 0, 0, 0, callee)
            writer.tensor(call, 0, slot, layout, index.to_bytes(8, "little") * 4)
            writer.tensor(call, 1, slot, layout, None, callee)
            writer.end(call, 0, 0, 0)

    return write


@pytest.fixture
def shared_vectors() -> Path:
    """The vectors of the specification, where the data folder is present."""
    repository = Path(__file__).parents[4]
    root = Path(os.environ.get("OPGUARD_SHARED", repository.parent / "shared"))
    path = root / "data" / "fingerprint-vectors.json"
    if not path.is_file():
        pytest.skip(f"the shared data folder is not present: {root}")
    return path
