"""What the reports say about runs that did not end with success."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from opguard.tools.compare.endings import RankEnding, alike
from opguard.tools.compare.records import Side
from opguard.tools.compare.results import Comparison

MAX_LINES: Final = 6
"""Ends listed per side; ranks that ended with the same words share one."""


def endings(comparison: Comparison) -> dict[str, Any]:
    """Entry ``endings``: whether both runs ended for the same reason, and who failed how."""
    sides = {side: comparison.capture(side).endings.values() for side in Side}
    return {
        "alike": alike(*sides.values()),
        "ranks": [
            _entry(side, ending)
            for side, found in sides.items()
            for ending in found
            if ending.reason() is not None
        ],
    }


def _entry(side: Side, ending: RankEnding) -> dict[str, Any]:
    return {
        "rank": ending.rank,
        "side": side.value,
        "kind": ending.kind.value,
        "exit_status": ending.status,
        "exception": None if ending.exception is None else dict(ending.exception),
        "steps": ending.steps,
        "recorded_to_end": ending.truncated is None,
        "missing": ending.truncated,
        "text": ending.describe(),
    }


def ending_heading(document: Mapping[str, Any]) -> str | None:
    """One sentence about how the runs ended; None when there is nothing to say."""
    found: Sequence[Mapping[str, Any]] = document["endings"]["ranks"]
    if not found:
        return None
    compared = "what both recorded until then was compared"
    failed = {entry["side"] for entry in found if not _succeeded(entry)}
    if not failed:
        return f"Not all records are there; {compared}."
    if len(failed) == 1:
        return f"Only the {failed.pop()} did not end with success; {compared}."
    manner = "alike" if document["endings"]["alike"] else "in different ways"
    return f"Neither run ended with success; they ended {manner}, and {compared}."


def _succeeded(entry: Mapping[str, Any]) -> bool:
    return bool(entry["exit_status"] == 0 and entry["kind"] != "exception")


def ending_entries(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Side and text of each end, once for all ranks that ended with the same words."""
    found: Sequence[Mapping[str, Any]] = document["endings"]["ranks"]
    several = len({*document["ranks"], *(entry["rank"] for entry in found)}) > 1
    for side in Side:
        groups: dict[str, list[int]] = {}
        for entry in found:
            if entry["side"] == side.value:
                groups.setdefault(_describe(entry), []).append(entry["rank"])
        for number, (text, ranks) in enumerate(groups.items()):
            if number == MAX_LINES:
                yield side.value, f"… and {len(groups) - MAX_LINES} more in summary.json"
                break
            name = f"rank {', '.join(map(str, ranks))} " if several else ""
            yield side.value, name + text


def _describe(entry: Mapping[str, Any]) -> str:
    steps = entry["steps"]
    after = "" if steps is None else f" after {steps} {'step' if steps == 1 else 'steps'}"
    if entry["recorded_to_end"]:
        return f"{entry['text']}{after}; recorded to that point"
    return f"{entry['text']}{after}; {entry['missing']}"
