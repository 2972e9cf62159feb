"""One rank's comparison as a flat Perfetto trace.

Tracks ``baseline`` and ``candidate`` hold the calls on their own clocks (both start with their
capture), ``differences`` repeats on the baseline's clock every call that is not equal, and
``candidate only`` marks where calls of the candidate alone would be. Flows tie paired calls.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl

import xorsig
from opguard.tools.compare.records import Call, Side
from opguard.tools.compare.relations import Relation
from opguard.tools.compare.results import Comparison, RankComparison
from opguard.tools.report.activity import ACTIVITY_COLUMNS, activity_frame
from opguard.tools.report.locations import PHASE_NAMES
from opguard.tools.report.perfetto_slots import slot_frame

DIFFERENCE_ID_BASE: Final = 1 << 62
"""Slice ids of difference tracks start here; calls have twice their number (plus one)."""

_FACTS: Final = {
    "call": pl.UInt64,
    "relation": pl.String,
    "relation_source": pl.String,
    "reason": pl.String,
    "counterpart": pl.UInt64,
}

_ANNOTATIONS: Final = (
    "call", "counterpart", "callee", "file", "line", "qualname", "text", "rank", "step", "phase",
    "relation", "relation_source", "reason", "status", "error", "origin", "why",
)  # fmt: skip
"""Columns that become debug annotations of a slice."""


@dataclass(frozen=True, slots=True)
class PerfettoFrames:
    """What ``xorsig.write_perfetto`` takes, for one rank."""

    slices: pl.DataFrame
    slots: pl.DataFrame
    flows: pl.DataFrame


def write_rank_trace(comparison: Comparison, rank: RankComparison, path: Path) -> None:
    """Write the Perfetto trace of one rank.

    Source: protocol E1; fingerprint spec F7.
    """
    frames = perfetto_frames(comparison, rank)
    xorsig.write_perfetto(
        str(path), frames.slices, frames.slots, frames.flows,
        trace_name=f"opguard comparison, rank {rank.rank}",
    )  # fmt: skip


def perfetto_frames(comparison: Comparison, rank: RankComparison) -> PerfettoFrames:
    """Build slices, io slots and flows of one rank."""
    sides = {side: _side_slices(comparison, rank, side) for side in Side}
    baseline = sides[Side.BASELINE]
    differences = baseline.filter(pl.col("relation") != Relation.EQUAL.value).with_columns(
        pl.col("track").str.replace("baseline", "differences", literal=True),
        pl.concat_str("relation", pl.lit(": "), "name").alias("name"),
    )
    candidate_only = _candidate_only(comparison, rank, sides[Side.CANDIDATE])
    marks = pl.concat([differences, candidate_only])
    first_mark = pl.lit(DIFFERENCE_ID_BASE, dtype=pl.UInt64)
    marks = marks.with_columns((pl.int_range(pl.len(), dtype=pl.UInt64) + first_mark).alias("id"))
    slices = pl.concat([baseline, sides[Side.CANDIDATE], marks])
    return PerfettoFrames(slices, slot_frame(comparison, rank), _flows(rank))


def slice_id(side: Side) -> pl.Expr:
    """Slice id of a call: even for the baseline, odd for the candidate."""
    offset = 0 if side is Side.BASELINE else 1
    return (pl.col("call") * 2 + offset).cast(pl.UInt64)


def _side_slices(comparison: Comparison, rank: RankComparison, side: Side) -> pl.DataFrame:
    """One slice per call of one side."""
    calls = comparison.capture(side).tables(rank.rank).calls
    last = pl.max_horizontal(pl.col("time_end_ns").max(), pl.col("time_begin_ns").max())
    name = pl.coalesce("operator", "site_callee", "callee")
    threads = _thread_order(rank.records[side].calls)
    joined = (
        calls.join(_sites(comparison, side), on="site", how="left")
        .join(_operators(rank, side), on="call", how="left")
        .with_columns(
            pl.coalesce(f"place_{part}", part).alias(part) for part in ("file", "line", "qualname")
        )
        .with_columns(pl.when(pl.col("place_file").is_null()).then(pl.col("text")).alias("text"))
        .join(_facts(rank, side), on="call", how="left")
        .join(_origin_frame(rank, side), on="call", how="left")
        .join(threads, on="call", how="left")
        .join(activity_frame(comparison, rank, side), on="call", how="left")
        .sort("tick_begin")
    )
    return joined.select(
        slice_id(side).alias("id"),
        pl.when(pl.col("thread_order") == 0)
        .then(pl.lit(side.value))
        .otherwise(pl.concat_str(pl.lit(f"{side.value} thread "), "thread_order"))
        .alias("track"),
        pl.col("time_begin_ns").alias("ts_ns"),
        (pl.col("time_end_ns").fill_null(last) - pl.col("time_begin_ns")).alias("dur_ns"),
        name.alias("name"),
        pl.lit(rank.rank, dtype=pl.Int64).alias("rank"),
        pl.col("phase")
        .replace_strict(PHASE_NAMES, default=None, return_dtype=pl.String)
        .alias("phase"),
        pl.when(pl.col("status").is_null())
        .then(pl.lit("never ended"))
        .when(pl.col("status") == 0)
        .then(pl.lit("returned"))
        .otherwise(pl.lit("raised"))
        .alias("status"),
        *(pl.col(n) for n in _ANNOTATIONS if n not in ("rank", "phase", "status")),
        *(pl.col(name) for name in ACTIVITY_COLUMNS),
    )


def _thread_order(calls: list[Call]) -> pl.DataFrame:
    return pl.DataFrame(
        {"call": [call.id for call in calls], "thread_order": [call.thread for call in calls]},
        schema={"call": pl.UInt64, "thread_order": pl.Int64},
    )


def _operators(rank: RankComparison, side: Side) -> pl.DataFrame:
    """Operators that libraries ran, with the line that each is named at."""
    rows = []
    for call in rank.records[side].calls:
        if call.place is not None:
            place = call.place.telling
            named: tuple[str | None, int | None, str | None] = (None, None, None)
            if place is not None:
                named = (place.path or place.name, place.position[0], place.qualname)
            rows.append((call.id, call.operator, *named))
    return pl.DataFrame(
        rows,
        schema={
            "call": pl.UInt64, "operator": pl.String, "place_file": pl.String,
            "place_line": pl.Int64, "place_qualname": pl.String,
        },
        orient="row",
    )  # fmt: skip


def _sites(comparison: Comparison, side: Side) -> pl.DataFrame:
    sites = comparison.sites(side).values()
    return pl.DataFrame(
        [(s.id, s.file, s.line, s.qualname, s.text, s.callee) for s in sites],
        schema={
            "site": pl.UInt32, "file": pl.String, "line": pl.Int64, "qualname": pl.String,
            "text": pl.String, "site_callee": pl.String,
        },
        orient="row",
    )  # fmt: skip


def _facts(rank: RankComparison, side: Side) -> pl.DataFrame:
    """Relation, its source, the reason and the counterpart of every call of one side."""
    rows: list[tuple[int, str, str | None, str, int | None]] = []
    for verdict in rank.pairs:
        x, y = verdict.pair.baseline.id, verdict.pair.candidate.id
        call, other = (x, y) if side is Side.BASELINE else (y, x)
        reason = f"{verdict.reason}; {verdict.pair.reason}"
        rows.append((call, verdict.relation.value, verdict.source.value, reason, other))
    for relation, found, reason in (
        (Relation.UNPAIRED, rank.unpaired, "no corresponding call on the other side"),
        (Relation.INCOMPLETE, rank.beyond, "past the end of the other side's capture"),
    ):
        rows += [(u.call.id, relation.value, None, reason, None) for u in found if u.side is side]
    return pl.DataFrame(rows, schema=_FACTS, orient="row")


def _origin_frame(rank: RankComparison, side: Side) -> pl.DataFrame:
    """Kind and explanation of origins by call; of several at one call the first counts."""
    rows: dict[int, tuple[str, str]] = {}
    found = [(origin, origin.why) for origin in rank.origins]
    found += [
        (entry.origin, f"{entry.origin.why}; not repeatable: {entry.why}")
        for entry in rank.not_repeatable
    ]
    for origin, why in found:
        call = origin.baseline if side is Side.BASELINE else origin.candidate
        if call is not None:
            rows.setdefault(call.id, (origin.kind.value, why))
    return pl.DataFrame(
        [(call, kind, why) for call, (kind, why) in rows.items()],
        schema={"call": pl.UInt64, "origin": pl.String, "why": pl.String},
        orient="row",
    )


def _candidate_only(
    comparison: Comparison, rank: RankComparison, candidate: pl.DataFrame
) -> pl.DataFrame:
    """Calls of the candidate alone as marks without duration, placed on the baseline's clock."""
    placed = pl.DataFrame(
        [
            (u.call.id, int(u.position))
            for u in (*rank.unpaired, *rank.beyond)
            if u.side is Side.CANDIDATE
        ],
        schema={"call": pl.UInt64, "tick": pl.UInt64},
        orient="row",
    )
    calls = comparison.capture(Side.BASELINE).tables(rank.rank).calls
    clock = pl.concat(
        [
            calls.select(tick="tick_begin", time="time_begin_ns"),
            calls.select(tick="tick_end", time="time_end_ns").drop_nulls(),
        ]
    ).sort("tick")
    times = placed.sort("tick").join_asof(clock, on="tick", strategy="backward")
    return (
        candidate.join(times.select("call", "time"), on="call", how="inner")
        .with_columns(
            pl.lit("candidate only").alias("track"),
            pl.col("time").fill_null(0).cast(pl.UInt64).alias("ts_ns"),
            pl.lit(0, dtype=pl.UInt64).alias("dur_ns"),
        )
        .drop("time")
        .sort("ts_ns", maintain_order=True)
    )


def _flows(rank: RankComparison) -> pl.DataFrame:
    """One flow per pair, from the baseline's slice to the candidate's."""
    return pl.DataFrame(
        [
            (number, verdict.pair.baseline.id * 2, verdict.pair.candidate.id * 2 + 1)
            for number, verdict in enumerate(rank.pairs, 1)
        ],
        schema={"id": pl.UInt64, "from": pl.UInt64, "to": pl.UInt64},
        orient="row",
    )
