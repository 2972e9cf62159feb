"""Observed source positions, read from the materialised discovery capture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntFlag
from pathlib import Path

import polars as pl

SPANS_TABLE = "spans.parquet"


class SpanFlag(IntFlag):
    """Bits of a span record's flags."""

    INNERMOST = 1
    OPAQUE = 2
    COMPILED = 4
    BACKWARD = 8


@dataclass(frozen=True, slots=True)
class ObservedSpan:
    """One expression at which tensor operations were seen.

    Attributes:
        file: Absolute path as recorded, symbolic links resolved.
        qualname: Qualified name of the code object.
        line: First line, from 1; -1 when the code object carries no position.
        end_line: Last line, or -1.
        col: First column in UTF-8 bytes, or -1 when the code object carries no columns.
        end_col: Column after the last one, or -1.
        operators: Operations by operator name, in which this was the innermost frame.
        count: All operations, those below this frame included.
        flags: ``SpanFlag`` bits.
        example: Text of one operation's tensors, for people.
    """

    file: str
    qualname: str
    line: int
    end_line: int
    col: int
    end_col: int
    operators: Mapping[str, int] = field(default_factory=dict)
    count: int = 0
    flags: int = 0
    example: str = ""

    @property
    def position(self) -> tuple[int, int, int, int]:
        """``(line, end_line, col, end_col)``."""
        return (self.line, self.end_line, self.col, self.end_col)


def read_observations(tables: Sequence[Path]) -> list[ObservedSpan]:
    """Observed spans of all ranks, one per position.

    Counts add up over ranks and operators; flags of a position are combined. The result depends
    on the tables' content only, not on the order of ranks or rows.

    Args:
        tables: One folder per rank, each with ``spans.parquet``.

    Returns:
        Spans ordered by file and position.

    Source:
        Protocol requirements C1, C5.
    """
    position = ["file", "qualname", "line", "end_line", "col", "end_col"]
    frames = [
        pl.read_parquet(folder / SPANS_TABLE).select(
            pl.col("file", "qualname", "operator", "example").cast(pl.String),
            pl.col("line", "end_line", "col", "end_col", "flags").cast(pl.Int64),
            pl.col("count").cast(pl.UInt64),
        )
        for folder in tables
    ]
    if not frames:
        return []
    merged = (
        pl.concat(frames)
        .group_by(*position, "operator")
        .agg(
            pl.col("count").sum(),
            pl.col("flags").bitwise_or(),
            pl.col("example").filter(pl.col("example") != "").min(),
        )
        .sort(*position, "operator")
    )
    spans: list[ObservedSpan] = []
    for key, rows in merged.group_by(position, maintain_order=True):
        file, qualname, line, end_line, col, end_col = key
        operators = {
            operator: int(count)
            for operator, count in zip(rows["operator"], rows["count"], strict=True)
            if operator
        }
        flags = 0
        for bits in rows["flags"]:
            flags |= int(bits)
        examples = [text for text in rows["example"] if text]
        spans.append(
            ObservedSpan(
                file=str(file),
                qualname=str(qualname),
                line=int(str(line)),
                end_line=int(str(end_line)),
                col=int(str(col)),
                end_col=int(str(end_col)),
                operators=operators,
                count=int(rows["count"].sum()),
                flags=flags,
                example=examples[0] if examples else "",
            )
        )
    return spans
