"""The plan of a session without rewritten source: callsites named at run time."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

from opguard.core.environment import Rank
from opguard.core.selection import Selection

IDENTITY_NAME = "capture.json"
"""Names the capture and its ranks for ``opguard-tools diff --captures``."""


class EmbeddedPlan:
    """Collects the callsites of one process and writes them as a plan.

    Args:
        root: Folder that file names are relative to; callsites elsewhere keep absolute names.
        selection: Callsites that count.
    """

    def __init__(self, root: Path, selection: Selection) -> None:
        self.root = root.resolve()
        self._selection = selection
        self._ids: dict[tuple[str, int, str], int | None] = {}
        self._files: dict[str, str] = {}
        self._sites: list[dict[str, Any]] = []
        self._ordinals: dict[tuple[str, int], int] = {}

    def site(self, function: Any, name: str | None, frame: Any, depth: str = "call") -> int | None:
        """Id of the callsite at the caller's line; the same line and name give the same id.

        ``None`` where the selection leaves it out.
        """
        name_of_file, line = frame.f_code.co_filename, frame.f_lineno
        file = self._files.get(name_of_file)
        if file is None:
            file = self._files[name_of_file] = os.path.realpath(name_of_file)
        callee = name if name is not None else _name(function)
        key = (file, line, callee)
        if key in self._ids:
            return self._ids[key]
        shown, qualname = self._relative(file), frame.f_code.co_qualname
        if not self._selection.takes_callsite(shown, qualname, callee):
            self._ids[key] = None
            return None
        index = self._ids[key] = len(self._sites)
        ordinal = self._ordinals.get((file, line), 0)
        self._ordinals[file, line] = ordinal + 1
        self._sites.append(
            {
                "id": index,
                "file": shown,
                "line": line,
                "end_line": line,
                "col": 0,
                "end_col": 0,
                "qualname": qualname,
                "kind": "call",
                "callee": callee,
                "text": callee,
                "statement": [line, 0],
                "ordinal": ordinal,
                "depth": depth,
                "observed": True,
                "operators": [],
                "count": 0,
            }
        )
        return index

    def write(self, output: Path, capture_id: str, rank: Rank) -> None:
        """Write the plan, the source and what identifies the capture, on the first rank only."""
        if rank.rank != 0:
            return
        files = []
        for file in sorted({site["file"] for site in self._sites}):
            path = self.root / file
            try:
                source = path.read_bytes()
            except OSError:
                continue
            digest = hashlib.sha256(source).hexdigest()
            files.append({"path": file, "size": len(source), "sha256": digest})
            if not os.path.isabs(file):
                copy = output / "sources" / file
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(source)
        plan = {
            "plan_version": 1,
            "coverage": "observed_callsites_only",
            "configuration_sha256": hashlib.sha256(b"").hexdigest(),
            "files": files,
            "sites": self._sites,
            "excluded": [],
        }
        output.mkdir(parents=True, exist_ok=True)
        identity = {"capture_id": capture_id, "ranks": list(range(rank.world_size))}
        (output / IDENTITY_NAME).write_text(json.dumps(identity) + "\n", encoding="utf-8")
        (output / "plan.json").write_text(json.dumps(plan, indent=1) + "\n", encoding="utf-8")

    def _relative(self, file: str) -> str:
        try:
            return Path(file).relative_to(self.root).as_posix()
        except ValueError:
            return file


def _name(function: Any) -> str:
    name = getattr(function, "__qualname__", None) or getattr(function, "__name__", None)
    return name if isinstance(name, str) else type(function).__qualname__
