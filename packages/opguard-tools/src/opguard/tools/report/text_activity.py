"""What a terminal shows of device activity."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from opguard.tools.report.text_context import printable
from opguard.tools.report.wording import DEVICE_TIME, activity_cell

MAX_CALLSITES = 5
"""Callsites shown, those with the longest time on the device; the others are in report.html."""


def activity_lines(document: Mapping[str, Any]) -> Iterator[str]:
    """The callsites that took the device longest, both sides; nothing where none was collected."""
    found = document["device_activity"]
    callsites = found["callsites"]
    if not callsites:
        return
    hidden = len(callsites) - MAX_CALLSITES
    yield f"{DEVICE_TIME}{f' (the longest {MAX_CALLSITES})' if hidden > 0 else ''}:"
    several_ranks = len(document["ranks"]) > 1
    for entry in callsites[:MAX_CALLSITES]:
        place = entry["baseline"] or entry["candidate"]
        rank = f"  (rank {entry['rank']})" if several_ranks else ""
        text = place.get("text") or place["call"]
        yield printable(f"  {place['file']}:{place['line']}  {text}{rank}")
        for side in ("baseline", "candidate"):
            yield f"    {side:<10} {activity_cell(entry[side])}"
    if hidden > 0:
        yield f"  … and {hidden} more in report.html"
    for side, states in found["states"].items():
        for variable, state in states.items():
            if state != "collected":
                yield printable(f"  {side}: {variable} {state}")
    for warning in found["warnings"]:
        yield printable(f"  {warning['side']}, rank {warning['rank']}: {warning['text']}")
    yield ""
