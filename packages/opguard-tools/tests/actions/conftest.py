"""A scratch checkout and requests for the actions' tests."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from opguard.tools.protocol.models import DiscoverRequest, DiscoverResult

sys.path.insert(0, str(Path(__file__).parent))

FAKE_LAUNCHER = Path(__file__).parents[1] / "launch" / "fake_launcher.py"
PROGRAM = "x = 1 + 2\n"


@dataclass
class Scratch:
    """A checkout, and requests whose launcher is the fake one."""

    folder: Path
    outputs: int = 0

    @property
    def checkout(self) -> Path:
        return self.folder / "checkout"

    def output(self) -> Path:
        """A new output path."""
        self.outputs += 1
        return self.folder / f"out-{self.outputs}"

    def workload(self, behaviour: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
        return {
            "cwd": str(self.checkout),
            "launcher": [sys.executable, str(FAKE_LAUNCHER)],
            "script": "train.py",
            "args": [json.dumps(behaviour or {})],
            "ranks": [0],
            **changes,
        }

    def launch(self, behaviour: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
        return {
            "protocol_version": 1,
            "output": str(self.output()),
            "local_root": str(self.folder / "local"),
            "timeout_seconds": 60,
            "workload": self.workload(behaviour, **changes),
        }

    def discover(self, behaviour: dict[str, Any] | None = None, **changes: Any) -> DiscoverResult:
        from opguard.tools.actions import discover

        request = DiscoverRequest.model_validate(self.launch(behaviour, **changes))
        return discover.run(request)


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scratch:
    """A fresh checkout with one program; no waiting for a network file system."""
    monkeypatch.setattr("opguard.tools.launch.operation._SETTLE_SECONDS", 0.0)
    made = Scratch(tmp_path)
    made.checkout.mkdir()
    (made.checkout / "train.py").write_text(PROGRAM)
    return made
