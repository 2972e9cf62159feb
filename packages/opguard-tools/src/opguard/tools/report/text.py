"""The comparison for a terminal: origins in execution order, then the files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from opguard.tools.report.wording import HEADLINES

MAX_ORIGINS = 10
"""Origins printed; the others are in report.html."""

MAX_SLOTS = 4
"""Slots printed per origin."""

MAX_UNPAIRED = 8
"""Groups of unpaired calls printed."""


def render_text(document: Mapping[str, Any]) -> str:
    """Render an ``opguard-diff`` document for people.

    Only what the document holds is used, so that it can also be rendered later from a file.
    """
    return "\n".join(_lines(document)) + "\n"


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    origins: Sequence[Mapping[str, Any]] = document["origins"]
    several_ranks = len(document["ranks"]) > 1
    yield from _incomplete(document)
    if not origins:
        yield _nothing_differs(document)
    for number, origin in enumerate(_first_ones_first(document), 1):
        if number > MAX_ORIGINS:
            yield f"… and {len(origins) - MAX_ORIGINS} more origins in report.html"
            yield ""
            break
        yield from _origin(number, origin, several_ranks=several_ranks)
    yield from _inherited(document)
    yield from _unpaired(document)
    if origins:
        yield _scope(document)
        yield str(document["notice"])
        yield ""
    yield from _reports(document)


def _first_ones_first(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The first origin over all ranks, then the others in rank and execution order."""
    first = document["first"]
    return [first, *(origin for origin in document["origins"] if origin != first)] if first else []


def _origin(number: int, origin: Mapping[str, Any], *, several_ranks: bool) -> Iterator[str]:
    rank = f"rank {origin['rank']}, " if several_ranks else ""
    label = "First difference" if number == 1 else f"Origin {number}"
    headline = HEADLINES.get(origin["kind"], origin["kind"])
    yield f"{label}: {headline}  ({rank}step {origin['step']}, {origin['phase']})"
    for side in ("baseline", "candidate"):
        yield from _location(side, origin[side])
    slots: Sequence[Mapping[str, Any]] = origin["slots"]
    for slot in slots[:MAX_SLOTS]:
        yield f"    {_slot(slot)}"
    total = origin.get("slots_differing", len(slots))
    if total > MAX_SLOTS:
        yield f"    … and {total - MAX_SLOTS} more slots"
    yield f"    why: {_one_line(origin['why'])}"
    yield ""


def _location(side: str, location: Mapping[str, Any] | None) -> Iterator[str]:
    if location is None:
        yield f"  {side:<9}  (no such call)"
        return
    place = f"{location['file']}:{location['line']}"
    inside = f"  in {location['qualname']}" if location.get("qualname") else ""
    library = "  [installed library]" if location.get("library") else ""
    yield f"  {side:<9}  {_one_line(place)}{_one_line(inside)}{library}"
    yield f"             {_one_line(location.get('text') or location['call'])}"
    if location.get("callsite"):
        yield from _location("  through", location["callsite"])


def _slot(slot: Mapping[str, Any]) -> str:
    left, right = _value(slot["baseline"]), _value(slot["candidate"])
    name = f"{slot['role']} {slot['slot']}"
    if left == right:
        values = left
    else:
        values = f"{left} against {right}"
    regions = slot.get("regions_differing")
    where = f", regions {_numbers(regions)} of {slot['regions']}" if slot.get("regions") else ""
    return _one_line(f"{name}: {values}: {slot['relation']}{where}")


def _value(value: Mapping[str, Any] | None) -> str:
    if value is None:
        return "absent"
    if "value" in value:
        return str(value["value"])
    text = f"{str(value['dtype']).removeprefix('torch.')}{list(value['shape'])}"
    return f"{text} ({value['note']})" if value.get("note") else text


def _numbers(numbers: Iterable[int] | None) -> str:
    return ", ".join(map(str, numbers or ()))


def _incomplete(document: Mapping[str, Any]) -> Iterator[str]:
    for entry in document["incomplete"]:
        yield _one_line(
            f"Incomplete: the {entry['side']}'s capture of rank {entry['rank']} ends early "
            f"({entry['reason']}); only the common prefix was compared."
        )
    if document["incomplete"]:
        yield ""


def _nothing_differs(document: Mapping[str, Any]) -> str:
    observed = document["observed"]
    slots = observed["slots"]
    text = (
        f"No difference over {observed['callsites']['baseline']} observed callsites, "
        f"{slots['compared']} tensors compared; this is not a numerical-equivalence result."
    )
    if slots["metadata_only"]:
        text += f" {slots['metadata_only']} of them agree in metadata only: bytes were not read."
    return text + "\n"


def _inherited(document: Mapping[str, Any]) -> Iterator[str]:
    for origin in document["inherited"][:MAX_ORIGINS]:
        location = origin["baseline"] or origin["candidate"]
        yield _one_line(
            f"Inherited: rank {origin['rank']}, step {origin['step']}: the collective at "
            f"{location['file']}:{location['line']} took a difference over from rank "
            f"{origin['inherited_from_rank']}"
        )
    if document["inherited"]:
        yield ""


def _unpaired(document: Mapping[str, Any]) -> Iterator[str]:
    groups: Sequence[Mapping[str, Any]] = document["unpaired"]
    if not groups:
        return
    yield "Calls on one side only (no divergence by themselves):"
    for group in groups[:MAX_UNPAIRED]:
        rank = f"rank {group['rank']}, " if len(document["ranks"]) > 1 else ""
        count = f"{group['calls']} calls" if group["calls"] != 1 else "1 call"
        yield _one_line(
            f"  {group['side']:<9}  {group['file']}:{group['line']}  {group['call']}  "
            f"({count}, {rank}first in step {group['first_step']})"
        )
    if len(groups) > MAX_UNPAIRED:
        yield f"  … and {len(groups) - MAX_UNPAIRED} more in report.html"
    yield ""


def _scope(document: Mapping[str, Any]) -> str:
    observed = document["observed"]
    relations = ", ".join(f"{n} {name}" for name, n in observed["relations"].items() if n)
    return (
        f"Observed: {observed['callsites']['baseline']} callsites, {observed['pairs']} pairs of "
        f"calls, {observed['slots']['compared']} tensors compared ({relations})."
    )


def _reports(document: Mapping[str, Any]) -> Iterator[str]:
    reports = document["reports"]
    if not reports:
        return
    yield f"report   {reports['html']}"
    yield f"data     {reports['summary']}"
    for entry in reports["perfetto"]:
        yield f"rank {entry['rank']:<4}{entry['path']}"


def _one_line(text: str) -> str:
    """Keep text from a workload on one line and free of control characters."""
    return "".join(c if c.isprintable() else " " for c in text)
