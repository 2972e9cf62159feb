"""The request that the tool writes for its workers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from opguard.tools.durable import write_durable
from opguard.tools.formats import REQUEST_NAME
from opguard.tools.launch.paths import OperationPaths
from opguard.tools.launch.settings import CaptureSettings
from opguard.tools.protocol.models.base import PROTOCOL_VERSION
from opguard.tools.protocol.models.requests import LaunchRequest


@dataclass(frozen=True)
class WorkerRequest:
    """What every rank needs to know; written once, read by each of them.

    Attributes:
        action: What the ranks do.
        capture_id: Identity of the capture.
        request: The validated request of the action.
        paths: Directories of the operation.
        settings: Fingerprint layout and determinism.
        plan: The plan's copy in the output directory, for a trace.
    """

    action: Literal["discover", "trace"]
    capture_id: str
    request: LaunchRequest
    paths: OperationPaths
    settings: CaptureSettings
    plan: Path | None

    def document(self) -> dict[str, Any]:
        """The request as JSON data.

        Source:
            Protocol requirement B2.
        """
        return {
            "protocol_version": PROTOCOL_VERSION,
            "action": self.action,
            "capture_id": self.capture_id,
            "request": self.request.model_dump(mode="json"),
            "checkout": str(self.paths.checkout),
            "capture": str(self.paths.capture),
            "local_root": str(self.paths.local_root),
            "plan": None if self.plan is None else str(self.plan),
            "regions": self.settings.regions,
            "deterministic": self.settings.deterministic,
            "selection": self.settings.selection.document(),
        }

    def write(self) -> Path:
        """Write the request durably into the output directory; returns its path."""
        path = self.paths.output / REQUEST_NAME
        write_durable(path, json.dumps(self.document(), indent=1).encode())
        return path
