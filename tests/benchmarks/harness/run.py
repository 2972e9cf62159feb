"""Runs areas by name."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from pathlib import Path

from harness.measure import outcome_of, samples_of
from harness.model import Area, Settings
from harness.report import AreaResult, GroupResult

AREAS = Path(__file__).resolve().parents[1] / "areas"


def area_names() -> list[str]:
    """Names of the area modules."""
    return sorted(path.stem for path in AREAS.glob("[!_]*.py"))


def run_area(name: str, settings: Settings) -> AreaResult:
    """Measure one area.

    Its module defines ``area(settings) -> Area``.
    """
    build: Callable[[Settings], Area] = importlib.import_module(f"areas.{name}").area
    area = build(settings)
    result = AreaResult(name, area.title)
    for group in area.groups:
        samples = samples_of(group, settings)
        outcomes = [outcome_of(claim, group, samples) for claim in group.claims]
        figures = list(group.figures(samples)) if group.figures else []
        result.groups.append(GroupResult(group, samples, outcomes, figures))
    # Read last: an area adds notes while its groups are made.
    result.notes = area.notes
    return result
