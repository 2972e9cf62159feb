"""Device activity in reports: the callsites of both sides next to each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, Final

import polars as pl

from opguard.tools.activity import Attribution, CallsiteFigures, Figures, callsite_figures
from opguard.tools.compare.records import Side
from opguard.tools.compare.results import Comparison, RankComparison
from opguard.tools.report.locations import locate_site

ACTIVITY_COLUMNS: Final = (
    "device_kernels", "device_copies", "device_ns", "runtime_calls", "runtime_ns",
    "backward_device_kernels", "backward_device_copies", "backward_device_ns",
    "backward_runtime_calls", "backward_runtime_ns",
)  # fmt: skip
"""Annotations of a call's slice."""


def device_activity(comparison: Comparison) -> dict[str, Any]:
    """Entry ``device_activity``: whether each side collected some, and the figures.

    Callsites stand in descending order of the time that they took on the device, that of the side
    where it is longer.

    Source:
        Protocol requirement B11.
    """
    callsites = [entry for rank in comparison.ranks for entry in _callsites(comparison, rank)]
    callsites.sort(key=lambda entry: -max(_device_ns(entry[side.value]) for side in Side))
    return {
        "states": {side.value: _states(comparison, side) for side in Side},
        "callsites": callsites,
        "others": list(_others(comparison)),
        "warnings": list(_warnings(comparison)),
    }


def _states(comparison: Comparison, side: Side) -> dict[str, str]:
    """What the first rank says; all have the same request."""
    receipts = comparison.capture(side).receipts
    stated = (receipts[rank].get("device_activity", {}) for rank in sorted(receipts))
    return dict(next(stated, {}))


def _callsites(comparison: Comparison, rank: RankComparison) -> Iterator[dict[str, Any]]:
    figures = {side: _figures(comparison, rank, side) for side in Side}
    candidate_of: dict[int, int] = {}
    baseline_of: dict[int, int] = {}
    for verdict in rank.pairs:
        left, right = verdict.pair.baseline.site, verdict.pair.candidate.site
        candidate_of.setdefault(left, right)
        baseline_of.setdefault(right, left)
    rows: list[tuple[int | None, int | None]] = [
        (site, candidate_of.get(site)) for site in figures[Side.BASELINE]
    ]
    shown = {right for _, right in rows}
    rows += [(baseline_of.get(site), site) for site in figures[Side.CANDIDATE] if site not in shown]
    for pair in rows:
        yield {"rank": rank.rank} | {
            side.value: _entry(comparison, side, site, figures[side])
            for side, site in zip(Side, pair, strict=True)
        }


def _figures(
    comparison: Comparison, rank: RankComparison, side: Side
) -> dict[int, CallsiteFigures]:
    attribution = comparison.capture(side).activity.get(rank.rank)
    return {} if attribution is None else callsite_figures(attribution)


def _entry(
    comparison: Comparison, side: Side, site: int | None, figures: Mapping[int, CallsiteFigures]
) -> dict[str, Any] | None:
    """Location and figures of a callsite; None where the side has no counterpart."""
    if site is None:
        return None
    found = figures.get(site, CallsiteFigures(0, Figures(), Figures()))
    return locate_site(comparison.sites(side).get(site)) | asdict(found)


def _device_ns(entry: Mapping[str, Any] | None) -> int:
    if entry is None:
        return 0
    return int(entry["direct"]["device_ns"] + entry["backward"]["device_ns"])


def _attributions(comparison: Comparison) -> Iterator[tuple[dict[str, Any], Attribution]]:
    """What was collected, each with the rank and side that it is of."""
    for rank in comparison.ranks:
        for side in Side:
            attribution = comparison.capture(side).activity.get(rank.rank)
            if attribution is not None:
                yield {"rank": rank.rank, "side": side.value}, attribution


def _others(comparison: Comparison) -> Iterator[dict[str, Any]]:
    for where, attribution in _attributions(comparison):
        for reason, kinds in sorted(attribution.others.items()):
            if kinds:
                yield where | {"reason": reason} | asdict(Figures.of(kinds))


def _warnings(comparison: Comparison) -> Iterator[dict[str, Any]]:
    for where, attribution in _attributions(comparison):
        for text, count in sorted(attribution.warnings.items()):
            yield where | {"text": text, "count": count}


def activity_frame(comparison: Comparison, rank: RankComparison, side: Side) -> pl.DataFrame:
    """Figures of every call that caused something, as annotations of its slice.

    Calls without activity on their own have nulls there, and so has a direction without any.
    """
    attribution = comparison.capture(side).activity.get(rank.rank)
    rows = []
    for call, directions in () if attribution is None else attribution.calls.items():
        row: list[int | None] = [call.call]
        for direction in ("direct", "backward"):
            kinds = directions.get(direction)
            row += [None] * 5 if not kinds else list(asdict(Figures.of(kinds)).values())
        rows.append(row)
    schema = {"call": pl.UInt64, **dict.fromkeys(ACTIVITY_COLUMNS, pl.Int64)}
    return pl.DataFrame(rows, schema=schema, orient="row")
