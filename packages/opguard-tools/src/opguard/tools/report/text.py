"""The comparison for a terminal: origins in execution order, then the files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from opguard.tools.report.endings import ending_entries, ending_heading
from opguard.tools.report.groups import describe_repeats, other_unpaired
from opguard.tools.report.text_activity import activity_lines
from opguard.tools.report.text_context import (
    later_circumstances,
    leading_circumstances,
    printable,
    repeatability_lines,
    warning_lines,
)
from opguard.tools.report.wording import NOT_REPEATABLE, OTHER_UNPAIRED, headline

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
    origins = _places_first_one_first(document)
    several_ranks = len(document["ranks"]) > 1
    yield from _endings(document)
    yield from warning_lines(document)
    yield from leading_circumstances(document)
    yield from repeatability_lines(document)
    if not origins and not document["not_repeatable"]:
        yield _nothing_differs(document)
    for number, origin in enumerate(origins, 1):
        if number > MAX_ORIGINS:
            yield f"… and {len(origins) - MAX_ORIGINS} more origins in report.html"
            yield ""
            break
        yield from _origin(number, origin, several_ranks=several_ranks)
    yield from _not_repeatable(document)
    yield from _inherited(document)
    yield from later_circumstances(document)
    yield from _unpaired(document)
    yield from activity_lines(document)
    if origins or document["not_repeatable"]:
        yield _scope(document)
        yield str(document["notice"])
        yield ""
    yield from _reports(document)


def _places_first_one_first(document: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The first origin over all ranks, then others in rank and execution order, one per place."""
    first = document["first"]
    others = [o for o in document["origins"] if o["repeat_of"] is None and o != first]
    return [first, *others] if first else []


def _origin(number: int, origin: Mapping[str, Any], *, several_ranks: bool) -> Iterator[str]:
    rank = f"rank {origin['rank']}, " if several_ranks else ""
    label = "First difference" if number == 1 else f"Origin {number}"
    yield f"{label}: {headline(origin)}  ({rank}step {origin['step']}, {origin['phase']})"
    yield from _details(origin)


def _details(origin: Mapping[str, Any]) -> Iterator[str]:
    for side in ("baseline", "candidate"):
        yield from _location(side, origin[side])
    slots: Sequence[Mapping[str, Any]] = origin["slots"]
    for slot in slots[:MAX_SLOTS]:
        yield f"    {_slot(slot, origin.get('slots_of'))}"
    total = origin.get("slots_differing", len(slots))
    if total > MAX_SLOTS:
        yield f"    … and {total - MAX_SLOTS} more slots"
    yield f"    why: {printable(origin['why'])}"
    again = describe_repeats(origin)
    if again:
        yield f"    {again}"
    yield ""


def _not_repeatable(document: Mapping[str, Any]) -> Iterator[str]:
    """Origins that equal runs of the baseline have as well, one per place, in short."""
    places = [o for o in document["not_repeatable"] if o["repeat_of"] is None]
    if not places:
        return
    yield f"{NOT_REPEATABLE}:"
    for origin in places[:MAX_ORIGINS]:
        location = origin["baseline"] or origin["candidate"]
        yield printable(
            f"  {location['file']}:{location['line']}  {location.get('text') or location['call']}"
        )
        again = describe_repeats(origin)
        seen = f"step {origin['step']}" + (f", {again}" if again else "")
        yield printable(f"    {headline(origin)} ({seen}); {origin['not_repeatable']}")
    if len(places) > MAX_ORIGINS:
        yield f"  … and {len(places) - MAX_ORIGINS} more in report.html"
    yield ""


def _location(side: str, location: Mapping[str, Any] | None) -> Iterator[str]:
    if location is None:
        yield f"  {side:<9}  (no such call)"
        return
    place = f"{location['file']}:{location['line']}"
    inside = f"  in {location['qualname']}" if location.get("qualname") else ""
    library = "  [installed library]" if location.get("library") else ""
    yield f"  {side:<9}  {printable(place)}{printable(inside)}{library}"
    yield f"             {printable(location.get('text') or location['call'])}"
    if location.get("statement"):
        yield f"             statement: {printable(location['statement'])}"
    if location.get("operator"):
        inner = location.get("inside")
        where = f" at {inner.get('name', inner['file'])}:{inner['line']}" if inner else ""
        yield f"             {printable(location['operator'] + where)}"
    if location.get("callsite"):
        yield from _location("  through", location["callsite"])


def _slot(slot: Mapping[str, Any], owners: Mapping[str, Any] | None) -> str:
    left, right = _value(slot["baseline"]), _value(slot["candidate"])
    name = f"{slot['role']} {slot['slot']}"
    if owners is not None:
        owner = owners["baseline"]
        name += f" of {owner['file']}:{owner['line']}" if owner["file"] else f" of {owner['call']}"
    if left == right:
        values = left
    else:
        values = f"{left} against {right}"
    regions = slot.get("regions_differing")
    where = f", regions {_numbers(regions)} of {slot['regions']}" if slot.get("regions") else ""
    return printable(f"{name}: {values}: {slot['relation']}{where}")


def _value(value: Mapping[str, Any] | None) -> str:
    if value is None:
        return "absent"
    if "value" in value:
        return str(value["value"])
    text = f"{str(value['dtype']).removeprefix('torch.')}{list(value['shape'])}"
    return f"{text} ({value['note']})" if value.get("note") else text


def _numbers(numbers: Iterable[int] | None) -> str:
    return ", ".join(map(str, numbers or ()))


def _endings(document: Mapping[str, Any]) -> Iterator[str]:
    heading = ending_heading(document)
    if heading is None:
        return
    yield heading
    for side, text in ending_entries(document):
        yield printable(f"  {side:<9}  {text}")
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
        yield printable(
            f"Inherited: rank {origin['rank']}, step {origin['step']}: the collective at "
            f"{location['file']}:{location['line']} took a difference over from rank "
            f"{origin['inherited_from_rank']}"
        )
    if document["inherited"]:
        yield ""


def _unpaired(document: Mapping[str, Any]) -> Iterator[str]:
    groups = other_unpaired(document)
    if not groups:
        return
    yield f"{OTHER_UNPAIRED}:"
    for group in groups[:MAX_UNPAIRED]:
        rank = f"rank {group['rank']}, " if len(document["ranks"]) > 1 else ""
        count = f"{group['calls']} calls" if group["calls"] != 1 else "1 call"
        yield printable(
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
