"""What a terminal shows of the runs themselves: warnings, circumstances and repeatability."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from opguard.tools.report.wording import (
    ALL_NOT_REPEATABLE,
    CIRCUMSTANCES_BEFORE,
    CIRCUMSTANCES_LATER,
    CIRCUMSTANCES_ONLY,
    kind_of_circumstance,
    repeat_summary,
)

MAX_CALLSITES = 8
"""Callsites listed that are not repeatable."""


def warning_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """Warnings, each with the first thing that was noted about it."""
    for warning in document["warnings"]:
        yield printable(f"Warning: {warning['text']}.")
        if warning["notes"]:
            yield printable(f"  first noted: {warning['notes'][0]}")
    if document["warnings"]:
        yield ""


def leading_circumstances(document: Mapping[str, Any]) -> Iterator[str]:
    """Circumstances that come before any origin: they lead the report."""
    found = [item for item in document["circumstances"] if item["before_first"]]
    if found:
        differs = document["origins"] or document["inherited"] or document["not_repeatable"]
        yield CIRCUMSTANCES_BEFORE if differs else CIRCUMSTANCES_ONLY
        yield from _listed(document, found)


def later_circumstances(document: Mapping[str, Any]) -> Iterator[str]:
    """Circumstances that an origin comes before."""
    found = [item for item in document["circumstances"] if not item["before_first"]]
    if found:
        yield CIRCUMSTANCES_LATER
        yield from _listed(document, found)


def _listed(document: Mapping[str, Any], found: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for item in found:
        text = f"  {kind_of_circumstance(item['kind']):<14} {item['text']}"
        if item["ranks"] and item["ranks"] != document["ranks"]:
            text += f" (rank {', '.join(map(str, item['ranks']))})"
        if item["also_between_equal_runs"]:
            text += " (also between equal runs of the baseline)"
        yield printable(text)
    yield ""


def repeatability_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """What further runs of the baseline say, when there were any."""
    found = document["repeatability"]
    if found is None:
        return
    yield repeat_summary(found)
    for callsite in found["callsites"][:MAX_CALLSITES]:
        yield printable(
            f"  not repeatable  {callsite['file']}:{callsite['line']}  "
            f"{callsite.get('text') or callsite['call']}  "
            f"({callsite['runs']} of {found['runs']} runs, first in step {callsite['first_step']})"
        )
    if len(found["callsites"]) > MAX_CALLSITES:
        yield f"  … and {len(found['callsites']) - MAX_CALLSITES} more in report.html"
    for item in found["circumstances"]:
        yield printable(f"  {kind_of_circumstance(item['kind']):<14} {item['text']}")
    yield ""
    if document["not_repeatable"] and not document["origins"]:
        yield ALL_NOT_REPEATABLE
        yield ""


def printable(text: str) -> str:
    """Keep text from a workload on one line and free of control characters."""
    return "".join(c if c.isprintable() else " " for c in text)
