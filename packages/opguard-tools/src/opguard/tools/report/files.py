"""The report files of a comparison."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class RankReportFile:
    """The Perfetto report of one rank.

    Attributes:
        sha256: Digest of the file, 64 hexadecimal digits; reviews are bound to it.
    """

    rank: int
    path: Path
    sha256: str


@dataclass(frozen=True, slots=True)
class Reports:
    """All report files of a comparison."""

    ranks: Sequence[RankReportFile]
    html: Path
    summary: Path

    def as_document(self) -> dict[str, Any]:
        """The ``reports`` entry of the document."""
        return {
            "html": str(self.html),
            "summary": str(self.summary),
            "perfetto": [
                {"rank": report.rank, "path": str(report.path), "sha256": report.sha256}
                for report in self.ranks
            ],
        }
