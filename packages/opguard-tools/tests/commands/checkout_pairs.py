"""Two checkouts whose launcher is the fake one, for the tests of ``diff``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

FAKE_LAUNCHER = Path(__file__).parents[1] / "launch" / "fake_launcher.py"
PROGRAM = "x = 1 + 2\n"


@dataclass
class Pair:
    """Two checkouts of one program; ``value.txt`` decides the fake run's outputs."""

    folder: Path
    variables: dict[str, str] = field(default_factory=dict)

    def make(self, baseline: bytes = b"same", candidate: bytes = b"same") -> None:
        for side, value in (("baseline", baseline), ("candidate", candidate)):
            (self.folder / side).mkdir()
            (self.folder / side / "train.py").write_text(PROGRAM)
            (self.folder / side / "value.txt").write_bytes(value)

    def command(self, behaviour: dict[str, Any] | None, *options: str) -> list[str]:
        return [
            *(sys.executable, "-m", "opguard.tools", "diff"),
            *("--baseline", "baseline", "--candidate", "candidate"),
            *("--launcher", f"{sys.executable} {FAKE_LAUNCHER}"),
            *options,
            *("--", json.dumps(behaviour or {})),
        ]

    def start(self, command: list[str]) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=os.environ | {"TMPDIR": str(self.temporary())} | self.variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def diff(self, *options: str, behaviour: dict[str, Any] | None = None) -> tuple[int, str, str]:
        process = self.start(self.command(behaviour, *options))
        out, err = process.communicate(timeout=300)
        return process.returncode, out, err

    def temporary(self) -> Path:
        folder = self.folder / "temporary"
        folder.mkdir(exist_ok=True)
        return folder

    def sources(self) -> list[str]:
        return [(self.folder / side / "train.py").read_text() for side in ("baseline", "candidate")]


@dataclass
class Finished:
    """A pair after ``diff --json --output out``."""

    pair: Pair
    status: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.out)
        return document
