"""Captures turned into Parquet tables, rank by rank."""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import xorsig
from opguard.tools.launch.errors import BatchCorruptError


@dataclass(frozen=True)
class Tables:
    """Tables of a capture.

    Attributes:
        folders: Folder of each rank's tables.
        incomplete: For each rank whose capture ends early: where and why.
    """

    folders: dict[int, Path]
    incomplete: dict[int, str]


def materialize_capture(
    capture: Path, capture_id: str, ranks: Sequence[int], output: Path, *, partial: bool = False
) -> Tables:
    """Write the tables of some ranks to ``output/rank-N``.

    Ranks are independent; they are worked on at the same time, as many as there are cores.

    Args:
        capture: Directory of the published batches.
        capture_id: Identity that every batch must carry.
        ranks: Ranks to materialise.
        output: Folder for the tables; made if missing.
        partial: Accept a capture that ends early, and take its complete beginning.

    Raises:
        BatchCorruptError: A batch is damaged or missing, and ``partial`` is off.
    """
    output.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(max_workers=min(len(ranks), os.cpu_count() or 1)) as pool:
        reasons = list(
            pool.map(
                lambda rank: _materialize_rank(capture, capture_id, rank, output, partial), ranks
            )
        )
    return Tables(
        folders={rank: output / f"rank-{rank}" for rank in ranks},
        incomplete={
            rank: reason for rank, reason in zip(ranks, reasons, strict=True) if reason is not None
        },
    )


def _materialize_rank(
    capture: Path, capture_id: str, rank: int, output: Path, partial: bool
) -> str | None:
    """Materialise one rank; returns why its capture ends early, or None when it is complete."""
    source = capture / f"rank-{rank}"
    target = output / f"rank-{rank}"
    if not source.is_dir():
        raise BatchCorruptError(
            f"rank {rank}: there is no {source}; the capture was moved or removed, or the rank "
            "recorded nothing",
            rank=rank,
            path=str(source),
        )
    try:
        state = xorsig.materialize(
            source, target, capture_id=capture_id, rank=rank, partial=partial
        )
    except xorsig.CorruptBatchError as error:
        raise BatchCorruptError(
            f"rank {rank}: batch {error.sequence} ({error.path}) is not usable: {error.reason}; "
            "run the workload again, or compare what is complete with `diff --captures A B "
            "--partial`",
            rank=rank,
            path=str(error.path),
        ) from error
    if state["complete"]:
        return None
    return str(state["reason"])
