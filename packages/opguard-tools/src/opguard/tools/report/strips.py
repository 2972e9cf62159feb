"""Relations per step as stacked bars, and the regions of a fingerprint as a bar."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import xorsig
from opguard.tools.compare.relations import Relation
from opguard.tools.report.heatmap import MAX_COLUMNS, SEVERITY


@dataclass(frozen=True, slots=True)
class Segment:
    """A part of a bar; begin and size are fractions of its length."""

    relation: str
    begin: float
    size: float


@dataclass(frozen=True, slots=True)
class StepBar:
    """All calls of one or several steps, by relation."""

    label: str
    title: str
    segments: Sequence[Segment]


@dataclass(frozen=True, slots=True)
class RegionCell:
    """One region of a tensor's bytes, half-open ``[begin, end)``."""

    index: int
    begin: int
    end: int
    differs: bool


def step_bars(steps: Iterable[Mapping[str, Any]]) -> list[StepBar]:
    """One bar per step over all ranks; longer runs put several steps into one bar."""
    totals: dict[int, dict[str, int]] = {}
    for entry in steps:
        total = totals.setdefault(entry["step"], dict.fromkeys(map(str, Relation), 0))
        for relation in total:
            total[relation] += entry[relation]
    ordered = sorted(totals)
    per_bar = -(-len(ordered) // MAX_COLUMNS) or 1
    return [_bar(ordered[i : i + per_bar], totals) for i in range(0, len(ordered), per_bar)]


def _bar(steps: Sequence[int], totals: Mapping[int, Mapping[str, int]]) -> StepBar:
    label = str(steps[0]) if len(steps) == 1 else f"{steps[0]}-{steps[-1]}"
    counts = {str(r): sum(totals[step][str(r)] for step in steps) for r in SEVERITY}
    calls = sum(counts.values()) or 1
    segments: list[Segment] = []
    begin = 0.0
    for relation, count in counts.items():
        if count:
            segments.append(Segment(relation, begin, count / calls))
            begin += count / calls
    listed = ", ".join(f"{count} {relation}" for relation, count in counts.items() if count)
    return StepBar(label, f"step {label}: {listed}", segments)


def region_cells(slot: Mapping[str, Any]) -> list[RegionCell]:
    """Regions of a differing slot with their byte ranges; empty where regions say nothing."""
    regions = slot.get("regions")
    if not regions:
        return []
    differing = set(slot["regions_differing"])
    ranges = xorsig.byte_ranges(slot["logical_nbytes"], regions)
    return [
        RegionCell(index, begin, end, index in differing)
        for index, (begin, end) in enumerate(ranges)
    ]
