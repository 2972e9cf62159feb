"""Tests of reading observed positions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl

from opguard.tools.source import ObservedSpan, SpanFlag, read_observations


def write(folder: Path, *rows: dict[str, Any]) -> Path:
    folder.mkdir()
    base = {
        "file": "/c/m.py",
        "qualname": "f",
        "line": 1,
        "end_line": 2,
        "col": 3,
        "end_col": 4,
        "operator": "",
        "count": 1,
        "flags": 0,
        "example": "",
    }
    integers = dict.fromkeys(("line", "end_line", "col", "end_col"), pl.Int32)
    schema = {"count": pl.UInt64, "flags": pl.UInt32, "operator": pl.Categorical, **integers}
    frame = pl.DataFrame([{**base, **row} for row in rows], schema_overrides=schema)
    frame.write_parquet(folder / "spans.parquet")
    return folder


def test_ranks_and_operators_of_one_position_are_added_up(tmp_path: Path) -> None:
    first = write(
        tmp_path / "rank-0",
        {"operator": "aten.mul", "count": 2, "flags": SpanFlag.INNERMOST, "example": "b"},
        {"operator": "aten.add", "count": 1, "flags": SpanFlag.INNERMOST | SpanFlag.BACKWARD},
        {"count": 5, "flags": SpanFlag.OPAQUE},
        {"line": 9, "end_line": -1, "col": -1, "end_col": -1},
    )
    second = write(
        tmp_path / "rank-1",
        {"operator": "aten.add", "count": 4, "flags": SpanFlag.INNERMOST, "example": "a"},
    )
    expected = [
        ObservedSpan(
            file="/c/m.py",
            qualname="f",
            line=1,
            end_line=2,
            col=3,
            end_col=4,
            operators={"aten.add": 5, "aten.mul": 2},
            count=12,
            flags=SpanFlag.INNERMOST | SpanFlag.BACKWARD | SpanFlag.OPAQUE,
            example="a",
        ),
        ObservedSpan("/c/m.py", "f", 9, -1, -1, -1, {}, 1),
    ]
    assert read_observations([first, second]) == expected
    assert read_observations([second, first]) == expected


def test_no_ranks_give_no_observations() -> None:
    assert read_observations([]) == []
