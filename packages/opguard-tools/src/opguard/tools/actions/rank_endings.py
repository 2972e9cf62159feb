"""How each rank of a run ended that may not have succeeded, read from what the run left."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opguard.tools.compare import EndKind, RankEnding
from opguard.tools.formats import INCOMPLETE_NAME
from opguard.tools.launch.progress import list_batches
from opguard.tools.launch.receipts import Evidence, Receipt
from opguard.tools.protocol.reading import read_json_object


@dataclass(frozen=True)
class RunEnd:
    """What is known about the end of a run besides its receipts.

    Attributes:
        checkout: Folder that exceptions' files are shown relative to; None where unknown.
        launcher_status: Exit status of the launcher, where the operation could note it.
        ranks: Ranks that the run should have had.
    """

    checkout: str | None
    launcher_status: int | None
    ranks: list[int]

    @classmethod
    def read(cls, output: Path, identity: Mapping[str, Any], ranks: list[int]) -> RunEnd:
        """Read what the operation left in its output directory.

        Args:
            output: Output directory of the trace.
            identity: The request that its ranks were started with, or an embedded session's file.
            ranks: Ranks that the run should have had.

        Raises:
            RequestUnreadableError: ``incomplete.json`` is damaged.
        """
        path = output / INCOMPLETE_NAME
        ending = read_json_object(path).get("ending") if path.is_file() else None
        status = ending.get("launcher_status") if isinstance(ending, dict) else None
        return cls(identity.get("checkout"), status, ranks)

    def endings(
        self, evidence: Evidence, capture: Path, damaged: Mapping[int, str]
    ) -> dict[int, RankEnding]:
        """The end of every rank that the run should have had.

        Args:
            evidence: Receipts, and the ranks that started.
            capture: Directory of the published batches.
            damaged: Per rank, why its batches could not all be read.
        """
        return {
            rank: self._ending(
                rank,
                evidence.receipts.get(rank),
                len(list_batches(capture, rank)),
                damaged.get(rank),
            )
            for rank in sorted({*self.ranks, *evidence.started})
        }

    def _ending(
        self, rank: int, receipt: Receipt | None, batches: int, damage: str | None
    ) -> RankEnding:
        if receipt is None:
            if not batches:
                return RankEnding(rank, EndKind.NOT_STARTED, truncated="there is no record of it")
            status = self.launcher_status if len(self.ranks) == 1 else None
            truncated = damage or "its last records may be missing"
            return RankEnding(rank, EndKind.NO_RECEIPT, status, truncated=truncated)
        if damage is None and batches != receipt.batches:
            damage = f"{batches} of {receipt.batches} batches are there"
        raised = None if receipt.exception is None else receipt.exception.model_dump()
        return RankEnding(
            rank,
            EndKind(receipt.exit_kind),
            receipt.exit_status,
            None if raised is None else raised | {"file": self._relative(raised["file"])},
            steps=receipt.counts.get("steps"),
            truncated=damage,
            ended_unix_ns=receipt.ended_unix_ns,
        )

    def _relative(self, file: str | None) -> str | None:
        """A file by its path in the checkout, where it lies inside."""
        if file is None or self.checkout is None or not os.path.isabs(file):
            return file
        inside = os.path.relpath(os.path.realpath(file), self.checkout)
        return file if inside.startswith("..") else inside


def first_failure(endings: Iterable[RankEnding]) -> RankEnding | None:
    """The first rank, by number, whose capture is no whole run."""
    return next((ending for ending in endings if ending.reason() is not None), None)
