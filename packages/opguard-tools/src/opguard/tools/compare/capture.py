"""One side of a comparison: callsites, original sources and the tables of each rank."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import polars as pl

import xorsig
from opguard.tools.activity import Attribution, read_activity
from opguard.tools.compare.endings import RankEnding
from opguard.tools.compare.errors import CaptureReadError
from opguard.tools.compare.places import LIBRARIES, LibrarySources, Place, read_places
from opguard.tools.formats import CAPTURE_NAME, PLAN_NAME, REQUEST_NAME, SOURCES_NAME

SESSION_NOTE: Final = 2
"""``kind`` of a mark that the recorder wrote about itself."""

RECORDER_FAILURE: Final = "recorder failure"
"""Name of the note about a record that could not be made."""

CALLS_SCHEMA: Final = {
    "call": pl.UInt64,
    "parent": pl.UInt64,
    "site": pl.UInt32,
    "step": pl.Int64,
    "phase": pl.UInt8,
    "thread": pl.UInt32,
    "flags": pl.UInt32,
    "callee": pl.String,
    "time_begin_ns": pl.UInt64,
    "tick_end": pl.UInt64,
    "time_end_ns": pl.UInt64,
    "status": pl.UInt8,
    "error": pl.String,
}
"""Columns of ``calls.parquet``; a call that never ended has nulls in the last four."""

TENSORS_SCHEMA: Final = {
    "call": pl.UInt64,
    "tick": pl.UInt64,
    "role": pl.UInt8,
    "slot": pl.String,
    "layout": pl.UInt32,
    "xor_sig": pl.List(pl.UInt32),
    "mix_sig": pl.List(pl.UInt32),
    "note": pl.String,
}
"""Columns of ``tensors.parquet``."""

LAYOUTS_SCHEMA: Final = {
    "layout": pl.UInt32,
    "dtype": pl.String,
    "shape": pl.List(pl.Int64),
    "strides": pl.List(pl.Int64),
    "device": pl.String,
    "kind": pl.String,
    "logical_nbytes": pl.UInt64,
}
"""Columns of ``layouts.parquet``."""

VALUES_SCHEMA: Final = {
    "call": pl.UInt64,
    "tick": pl.UInt64,
    "role": pl.UInt8,
    "slot": pl.String,
    "value": pl.String,
}
"""Columns of ``values.parquet``."""

MARKS_SCHEMA: Final = {
    "tick": pl.UInt64,
    "time_ns": pl.UInt64,
    "kind": pl.UInt8,
    "step": pl.Int64,
    "name": pl.String,
    "value": pl.String,
}
"""Columns of ``marks.parquet``."""


@dataclass(frozen=True, slots=True)
class Callsite:
    """A callsite of the plan, as far as the comparison needs it.

    Lines are 1-based and columns UTF-8 byte offsets, as in ``ast``.

    Attributes:
        id: Index used by the records' ``site`` column.
        statement: ``(line, col)`` of the enclosing statement (of a compound one, its header).
        ordinal: Position among the expressions of the statement that could be callsites.
        operators: Operators that discovery saw run under this callsite.
    """

    id: int
    file: str
    line: int
    end_line: int
    col: int
    end_col: int
    qualname: str
    kind: str
    callee: str
    text: str
    statement: tuple[int, int]
    ordinal: int
    depth: str = "call"
    operators: tuple[str, ...] = ()

    @classmethod
    def from_plan(cls, site: Mapping[str, Any]) -> Callsite:
        """Read one entry of the plan's ``sites``."""
        line, col = site["statement"]
        names = ("id", "file", "line", "end_line", "col", "end_col", "qualname", "kind", "callee")
        return cls(
            **{name: site[name] for name in names},
            text=site["text"],
            statement=(line, col),
            ordinal=site["ordinal"],
            depth=site.get("depth", "call"),
            operators=tuple(site.get("operators", ())),
        )


@dataclass(frozen=True, slots=True)
class RankTables:
    """The materialised tables of one rank.

    Attributes:
        calls: ``calls.parquet``, and the tick of each begin as ``tick_begin``.
        tensors: ``tensors.parquet`` joined with ``layouts.parquet``.
        incomplete: Why the capture of this rank ends early, or None when it is whole.
        places: Where libraries ran operators, by number.
    """

    calls: pl.DataFrame
    tensors: pl.DataFrame
    values: pl.DataFrame
    marks: pl.DataFrame
    incomplete: str | None = None
    places: Mapping[int, Place] = field(default_factory=dict)

    @classmethod
    def read(cls, directory: Path, incomplete: str | None = None) -> RankTables:
        """Read the tables of one rank.

        Raises:
            CaptureReadError: A table is missing or lacks a column.
        """
        marks = _read_table(directory / "marks.parquet", MARKS_SCHEMA)
        return cls(
            # The tick of its begin is what a call is known by.
            _read_table(directory / "calls.parquet", CALLS_SCHEMA).with_columns(
                tick_begin=pl.col("call")
            ),
            _read_table(directory / "tensors.parquet", TENSORS_SCHEMA).join(
                _read_table(directory / "layouts.parquet", LAYOUTS_SCHEMA),
                on="layout",
                how="left",
                maintain_order="left",
            ),
            _read_table(directory / "values.parquet", VALUES_SCHEMA),
            marks,
            incomplete,
            read_places(marks),
        )

    def recorder_failures(self) -> list[str]:
        """What the recorder noted about records that it could not make; the first few only."""
        notes = self.marks.filter(
            (pl.col("kind") == SESSION_NOTE) & (pl.col("name") == RECORDER_FAILURE)
        )
        return [str(text) for text in notes.sort("tick")["value"]]


@dataclass(frozen=True)
class CaptureView:
    """One trace, opened for comparison.

    Attributes:
        sites: Callsites by id.
        sources: Original content of every planned file, by path in the checkout.
        ranks: Per rank, its tables or the folder that holds them (read on demand).
        incomplete: Per rank, why its capture ends early; ranks that are whole are absent.
        endings: Per rank that the run should have had, how it ended; empty for a run that is
            known to have succeeded.
        receipts: Completion receipts by rank, as far as they exist.
        request: The request that the ranks were started with; empty for a session embedded in a
            program.
        libraries: Source files of libraries that ran operators.
        activity: Device activity by rank; ranks that collected none are absent.
    """

    sites: Mapping[int, Callsite]
    sources: Mapping[str, bytes]
    ranks: Mapping[int, RankTables | Path]
    incomplete: Mapping[int, str] = field(default_factory=dict)
    endings: Mapping[int, RankEnding] = field(default_factory=dict)
    receipts: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    request: Mapping[str, Any] = field(default_factory=dict)
    libraries: LibrarySources = field(default_factory=LibrarySources)
    activity: Mapping[int, Attribution] = field(default_factory=dict)

    @classmethod
    def open(
        cls, trace_output: Path, tables: Path, endings: Mapping[int, RankEnding] | None = None
    ) -> CaptureView:
        """Open the output folder of ``trace`` and the tables materialised from it.

        Args:
            trace_output: Folder with ``plan.json``, ``sources/`` and ``capture/``.
            tables: Folder with one ``rank-<r>/`` of Parquet tables per rank.
            endings: How each rank of a run ended that may not have succeeded.

        Raises:
            CaptureReadError: Plan, a source or a table is missing or unreadable, or the request
                is damaged.
        """
        plan = _read_json(trace_output / PLAN_NAME)
        sites = {site["id"]: Callsite.from_plan(site) for site in plan["sites"]}
        sources: dict[str, bytes] = {}
        for entry in plan["files"]:
            # A session embedded in a program also lists files outside its root, by absolute
            # path; they are not part of the capture.
            if not os.path.isabs(entry["path"]):
                sources[entry["path"]] = _read_source(trace_output / SOURCES_NAME / entry["path"])
        ranks: dict[int, RankTables | Path] = {
            int(folder.name.removeprefix("rank-")): folder
            for folder in sorted(tables.glob("rank-*"))
        }
        receipts = _read_receipts(trace_output / CAPTURE_NAME / "receipts", ranks)
        request_path = trace_output / REQUEST_NAME
        request = _read_json(request_path) if request_path.is_file() else {}
        libraries = LibrarySources((trace_output / CAPTURE_NAME / LIBRARIES,))
        ends = dict(endings or {})
        incomplete = {
            rank: reason
            for rank, ending in ends.items()
            if rank in ranks and (reason := ending.reason()) is not None
        }
        activity = {}
        for rank in ranks:
            states = receipts.get(rank, {}).get("device_activity", {})
            found = read_activity(trace_output / CAPTURE_NAME, rank, states)
            if found is not None:
                activity[rank] = found
        return cls(sites, sources, ranks, incomplete, ends, receipts, request, libraries, activity)

    def tables(self, rank: int) -> RankTables:
        """The tables of one rank.

        Raises:
            CaptureReadError: This capture has no such rank, or its tables cannot be read.
        """
        found = self.ranks.get(rank)
        if found is None:
            raise CaptureReadError(
                f"rank {rank} is not in this capture (it has {sorted(self.ranks)}); "
                "compare only ranks that both sides recorded",
                rank=rank,
            )
        if isinstance(found, RankTables):
            return found
        return RankTables.read(found, self.incomplete.get(rank))


def _read_table(path: Path, schema: Mapping[str, Any]) -> pl.DataFrame:
    try:
        table = pl.read_parquet(path)
        return table.select(pl.col(name).cast(dtype) for name, dtype in schema.items())
    except (OSError, pl.exceptions.PolarsError) as error:
        raise CaptureReadError(
            f"cannot read table {path}: {error}; materialise the capture again", path=str(path)
        ) from error


def _read_source(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CaptureReadError(
            f"cannot read {path}, the original of a planned file: {error}; trace this side again",
            path=str(path),
        ) from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CaptureReadError(
            f"cannot read {path}: {error}; give the output folder of a trace", path=str(path)
        ) from error
    return document


def _read_receipts(directory: Path, ranks: Iterable[int]) -> dict[int, Any]:
    """Receipts give facts for the report.

    Whether they are all there and whole is judged where captures are accepted; a capture that
    ended early lacks some.
    """
    receipts: dict[int, Any] = {}
    for rank in ranks:
        try:
            receipts[rank] = json.loads(
                xorsig.read_receipt(str(directory / f"rank-{rank}.receipt"))
            )
        except (OSError, ValueError):
            continue
    return receipts
