"""What the ranks of a capture left behind: receipts, duplicates, and the tracer's own errors."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from opguard.tools.launch.errors import ReceiptInvalidError
from opguard.tools.protocol.models.base import PROTOCOL_VERSION
from opguard.tools.protocol.models.capture import (
    DeterminismPolicy,
    ExitKind,
    FingerprintLayout,
    RankCapture,
    RecordedSelection,
)

_RECEIPT_NAME = re.compile(r"rank-(\d+)\.receipt")
_DUPLICATE_NAME = re.compile(r"rank-(\d+)\.duplicate-.+\.receipt")


class ScriptException(BaseModel):
    """The exception that ended a script, and where in the source it was raised."""

    type: str
    message: str
    file: str | None = None
    line: int | None = None

    def describe(self) -> str:
        """``ValueError: text (train.py:12)``."""
        place = f" ({self.file}:{self.line})" if self.file else ""
        return f"{self.type}: {self.message}{place}"


class Receipt(BaseModel):
    """A rank's own statement of what it published and how it ended.

    Fields that a later worker may add are ignored; those below are needed.

    Source:
        Protocol requirement B5.
    """

    model_config = ConfigDict(extra="ignore")

    protocol_version: int
    format_version: int
    capture_id: str
    rank: int = Field(ge=0)
    rank_source: str
    world_size: int = Field(ge=1)
    host: str
    pid: int
    batches: int = Field(ge=0)
    records: int = Field(ge=0)
    exit_status: int
    exit_kind: ExitKind
    exception: ScriptException | None = None
    versions: dict[str, str | None]
    fingerprint: FingerprintLayout
    determinism: DeterminismPolicy
    observer_effects: list[str]
    selection: RecordedSelection | None = None
    device_activity: dict[str, str] = Field(default_factory=dict)
    counts: dict[str, int] = Field(default_factory=dict)
    ended_unix_ns: int

    def to_result(self) -> RankCapture:
        """The rank's entry in an action's result."""
        return RankCapture(
            rank=self.rank,
            rank_source=self.rank_source,
            world_size=self.world_size,
            batches=self.batches,
            records=self.records,
            exit_status=self.exit_status,
            exit_kind=self.exit_kind,
            host=self.host,
            pid=self.pid,
        )


@dataclass(frozen=True)
class WorkerError:
    """An error of the tracer in a rank's process.

    Attributes:
        name: File that states it, such as ``rank-1-4711.json``.
        kind: Identifier that the worker gave it.
        message: Its text.
    """

    name: str
    kind: str
    message: str


@dataclass(frozen=True)
class Evidence:
    """Everything that the ranks left in a capture directory.

    Attributes:
        receipts: Receipt of each rank that wrote one, by rank in ascending order.
        duplicates: Names of additional receipts, by rank.
        worker_errors: Errors of the tracer itself.
        started: Ranks that have a batch directory.
    """

    receipts: dict[int, Receipt] = field(default_factory=dict)
    duplicates: dict[int, list[str]] = field(default_factory=dict)
    worker_errors: list[WorkerError] = field(default_factory=list)
    started: list[int] = field(default_factory=list)


def read_evidence(capture: Path, capture_id: str, *, lenient: bool = False) -> Evidence:
    """Read a capture directory; parts that are missing are empty.

    Args:
        capture: The capture directory.
        capture_id: Identity that every receipt must carry.
        lenient: Take a receipt that cannot be used for one that is missing.

    Raises:
        ReceiptInvalidError: A receipt is damaged, or belongs to another capture, rank or version,
            and ``lenient`` is off.
    """
    evidence = Evidence()
    for path in sorted(capture.glob("receipts/*.receipt")):
        if match := _RECEIPT_NAME.fullmatch(path.name):
            rank = int(match[1])
            try:
                evidence.receipts[rank] = _read_receipt(path, rank, capture_id)
            except ReceiptInvalidError:
                if not lenient:
                    raise
        elif match := _DUPLICATE_NAME.fullmatch(path.name):
            evidence.duplicates.setdefault(int(match[1]), []).append(path.name)
    evidence.worker_errors.extend(
        _read_worker_error(path) for path in sorted(capture.glob("errors/*.json"))
    )
    evidence.started.extend(
        sorted(
            int(path.name[5:])
            for path in capture.glob("rank-*")
            if path.is_dir() and path.name[5:].isdigit()
        )
    )
    return Evidence(
        receipts=dict(sorted(evidence.receipts.items())),
        duplicates=dict(sorted(evidence.duplicates.items())),
        worker_errors=evidence.worker_errors,
        started=evidence.started,
    )


def _read_receipt(path: Path, rank: int, capture_id: str) -> Receipt:
    import xorsig

    try:
        receipt = Receipt.model_validate_json(xorsig.read_receipt(path))
    except (ValidationError, ValueError, OSError) as error:
        raise ReceiptInvalidError(
            f"the receipt {path} of rank {rank} cannot be read: {error}; the capture is not "
            "proven complete, run the workload again with a new output directory",
            rank=rank,
            path=path,
        ) from error
    stated = {
        "capture_id": (receipt.capture_id, capture_id),
        "rank": (receipt.rank, rank),
        "protocol_version": (receipt.protocol_version, PROTOCOL_VERSION),
        "format_version": (receipt.format_version, xorsig.FORMAT_VERSION),
    }
    for name, (found, expected) in stated.items():
        if found != expected:
            raise ReceiptInvalidError(
                f"the receipt {path} of rank {rank} states {name} {found!r} instead of "
                f"{expected!r}; use one version of OpGuard on every node and a new output "
                "directory for every run",
                rank=rank,
                path=path,
            )
    return receipt


def _read_worker_error(path: Path) -> WorkerError:
    try:
        document = json.loads(path.read_text("utf-8"))
        return WorkerError(path.name, str(document["type"]), str(document["message"]))
    except (OSError, ValueError, KeyError, TypeError):
        return WorkerError(path.name, "unreadable", f"the error file {path} cannot be read")
