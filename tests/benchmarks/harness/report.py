"""Results as a table in the terminal, as JSON, and as a page with a plot."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from harness.measure import spread
from harness.model import Figure, Group, Outcome
from harness.page import render_page

VERDICT = {True: "[green]pass[/]", False: "[red]MISS[/]", None: ""}


@dataclass
class GroupResult:
    """What one group yielded."""

    group: Group
    samples: Mapping[str, Sequence[float]]
    outcomes: list[Outcome]
    figures: list[Figure]


@dataclass
class AreaResult:
    """What one area yielded."""

    name: str
    title: str
    groups: list[GroupResult] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def missed(self) -> int:
        """Number of targets that were not reached."""
        results = [r for group in self.groups for r in (*group.outcomes, *group.figures)]
        return sum(result.passed is False for result in results)


def print_area(console: Console, area: AreaResult) -> None:
    """Print the tables of an area."""
    console.rule(f"[bold]{area.name}[/]: {area.title}")
    times = Table("group", "subject", "median", "quartiles", "rate", box=None, pad_edge=False)
    ratios = Table(
        *("group", "ours", "against", "ratio", "median", "quartiles", "target", ""),
        box=None,
        pad_edge=False,
    )
    figures = Table("group", "figure", "value", "target", "", box=None, pad_edge=False)
    for result in area.groups:
        name = result.group.name
        for label, samples in result.samples.items():
            low, high = map(time_text, spread(samples))
            rate = _rate(result.group, label, samples)
            times.add_row(name, label, time_text(median(samples)), f"{low} - {high}", rate)
        for outcome in result.outcomes:
            claim = outcome.claim
            low, high = (f"{value:.3g}" for value in spread(outcome.ratios))
            ratios.add_row(
                *(name, claim.subject, claim.peer, claim.ratio, f"{outcome.ratio:.3g}"),
                *(f"{low} - {high}", target_text(outcome), VERDICT[outcome.passed]),
            )
        for figure in result.figures:
            bound = bounds_text(figure)
            value = f"{figure.value:.6g} {figure.unit}"
            figures.add_row(name, figure.name, value, bound, VERDICT[figure.passed])
    for table in (times, ratios, figures):
        if table.row_count:
            console.print(table)
            console.print()
    for note in area.notes:
        console.print(f"note: {note}", markup=False)


def write_results(folder: Path, machine: Mapping[str, Any], areas: Sequence[AreaResult]) -> None:
    """Write ``results.json`` and ``results.html`` into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    document = {"machine": machine, "areas": [_area_document(area) for area in areas]}
    (folder / "results.json").write_text(json.dumps(document, indent=1) + "\n")
    (folder / "results.html").write_text(render_page(document))


def time_text(seconds: float) -> str:
    """A time with three digits and a fitting unit."""
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= factor:
            return f"{seconds / factor:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def target_text(outcome: Outcome) -> str:
    """The claim's bound, e.g. ``>= 0.95``."""
    if outcome.claim.target is None:
        return ""
    return f"{'>=' if outcome.claim.ratio == 'speed' else '<='} {outcome.claim.target:g}"


def bounds_text(figure: Figure) -> str:
    """The figure's bounds."""
    low = "" if figure.at_least is None else f">= {figure.at_least:g}"
    high = "" if figure.at_most is None else f"<= {figure.at_most:g}"
    return " ".join(filter(None, (low, high)))


def _rate(group: Group, label: str, samples: Sequence[float]) -> str:
    subject = group.subjects.get(label)
    if subject is None or not subject.unit_count:
        return ""
    rate = subject.unit_count / median(samples)
    for factor, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if rate >= factor:
            return f"{rate / factor:.3g} {prefix}{group.unit}/s"
    return f"{rate:.3g} {group.unit}/s"


def _area_document(area: AreaResult) -> dict[str, Any]:
    return {
        "name": area.name,
        "title": area.title,
        "notes": area.notes,
        "groups": [
            {
                "name": result.group.name,
                "seconds": {label: list(values) for label, values in result.samples.items()},
                "ratios": [_outcome_document(outcome) for outcome in result.outcomes],
                "figures": [
                    {
                        "name": figure.name,
                        "value": figure.value,
                        "unit": figure.unit,
                        "target": bounds_text(figure),
                        "passed": figure.passed,
                    }
                    for figure in result.figures
                ],
            }
            for result in area.groups
        ],
    }


def _outcome_document(outcome: Outcome) -> dict[str, Any]:
    low, high = spread(outcome.ratios)
    return {
        "subject": outcome.claim.subject,
        "peer": outcome.claim.peer,
        "kind": outcome.claim.ratio,
        "median": outcome.ratio,
        "quartiles": [low, high],
        "target": outcome.claim.target,
        "passed": outcome.passed,
    }
