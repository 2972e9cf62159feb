"""Step by callsite: the worst relation of each callsite in each step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from opguard.tools.compare.records import Call, Side
from opguard.tools.compare.relations import Relation
from opguard.tools.compare.results import Comparison, RankComparison

MAX_ROWS = 60
"""Callsites shown; those where something differs are preferred."""

MAX_COLUMNS = 120
"""Columns; longer runs put several steps into one."""

SEVERITY = (
    Relation.DIFFERENT,
    Relation.INCOMPATIBLE,
    Relation.UNPAIRED,
    Relation.INCOMPLETE,
    Relation.EQUAL,
)
"""Worst first: a cell shows the worst relation among its calls."""


@dataclass(frozen=True, slots=True)
class HeatCell:
    """A run of neighbouring columns of one row with the same worst relation.

    Attributes:
        column: First column of the run.
        width: Number of columns.
    """

    column: int
    width: int
    relation: str
    title: str


@dataclass(frozen=True, slots=True)
class HeatRow:
    """One callsite.

    Attributes:
        origin: Whether an origin lies there.
    """

    label: str
    cells: Sequence[HeatCell]
    origin: bool = False


@dataclass(frozen=True, slots=True)
class HeatMap:
    """The map.

    Attributes:
        columns: Labels of the columns: a step, or ``first-last`` step.
        hidden: Callsites left out.
    """

    columns: Sequence[str]
    rows: Sequence[HeatRow]
    hidden: int


Row = tuple[str, int, str]


def heat_map(comparison: Comparison) -> HeatMap:
    """Fold all calls of all ranks into a step by callsite map, in source order."""
    counts: dict[Row, dict[int, Counter[Relation]]] = {}
    for rank in comparison.ranks:
        for row, step, relation in _entries(comparison, rank):
            counts.setdefault(row, {}).setdefault(step, Counter())[relation] += 1
    steps = sorted({step for by_step in counts.values() for step in by_step})
    per_column = -(-len(steps) // MAX_COLUMNS) or 1
    groups = [steps[i : i + per_column] for i in range(0, len(steps), per_column)]
    shown = _choose_rows(counts)
    origins = _origin_rows(comparison)
    return HeatMap(
        columns=[_label(group) for group in groups],
        rows=[
            HeatRow(_row_label(row), list(_cells(counts[row], groups)), row in origins)
            for row in shown
        ],
        hidden=len(counts) - len(shown),
    )


def _entries(comparison: Comparison, rank: RankComparison) -> Iterator[tuple[Row, int, Relation]]:
    for verdict in rank.pairs:
        call = verdict.pair.baseline
        yield _row(comparison, Side.BASELINE, call), call.step, verdict.relation
    for relation, found in (
        (Relation.UNPAIRED, rank.unpaired),
        (Relation.INCOMPLETE, rank.beyond),
    ):
        for unpaired in found:
            call = unpaired.call
            yield _row(comparison, unpaired.side, call), call.step, relation


def _origin_rows(comparison: Comparison) -> set[Row]:
    """Rows of the callsites that origins name; a pair is shown in the baseline's row."""
    return {
        _row(comparison, side, call)
        for rank in comparison.ranks
        for origin in rank.origins
        for side, call in ((Side.BASELINE, origin.baseline), (Side.CANDIDATE, origin.candidate))
        if call is not None
    }


def _row(comparison: Comparison, side: Side, call: Call) -> Row:
    place = None if call.place is None else call.place.telling
    if place is not None:
        return (place.name, place.position[0], call.operator)
    site = comparison.sites(side).get(call.site)
    return (call.callee, 0, "") if site is None else (site.file, site.line, site.callee)


def _row_label(row: Row) -> str:
    file, line, callee = row
    return f"{file}:{line} {callee}" if line else file


def _choose_rows(counts: dict[Row, dict[int, Counter[Relation]]]) -> list[Row]:
    """All rows in source order, or those that are not equal throughout when there are many."""
    rows = sorted(counts)
    if len(rows) <= MAX_ROWS:
        return rows
    unequal = [row for row in rows if any(set(c) != {Relation.EQUAL} for c in counts[row].values())]
    return (unequal or rows)[:MAX_ROWS]


def _label(steps: Sequence[int]) -> str:
    return str(steps[0]) if len(steps) == 1 else f"{steps[0]}-{steps[-1]}"


def _cells(
    by_step: dict[int, Counter[Relation]], groups: Iterable[Sequence[int]]
) -> Iterator[HeatCell]:
    run: HeatCell | None = None
    for column, steps in enumerate(groups):
        total: Counter[Relation] = sum((by_step.get(step, Counter()) for step in steps), Counter())
        worst = next((relation for relation in SEVERITY if total[relation]), None)
        if run is not None and (worst is None or worst.value != run.relation):
            yield run
            run = None
        if worst is None:
            continue
        if run is None:
            listed = ", ".join(f"{total[r]} {r}" for r in SEVERITY if total[r])
            run = HeatCell(column, 1, worst.value, f"from step {_label(steps)}: {listed}")
        else:
            run = HeatCell(run.column, run.width + 1, run.relation, run.title)
    if run is not None:
        yield run
