"""Where a call is, in the words of the document."""

from __future__ import annotations

from typing import Any

from opguard.tools.compare.capture import Callsite, CaptureView
from opguard.tools.compare.places import Place
from opguard.tools.compare.records import Call, CallFlag, Phase
from opguard.tools.report.excerpts import decode_source
from opguard.tools.source.text import one_line

PHASE_NAMES = {int(phase): phase.name.lower() for phase in Phase}


def locate(call: Call | None, capture: CaptureView) -> dict[str, Any] | None:
    """Location of a call: file relative to the checkout, line, function and callee.

    An operator recorded inside a call is named at the library's own file and line (absolute,
    marked ``library``), with the callsite of the checkout that led there and the lines on the way.
    Where only unchanged lines of torch itself lie between, it is named at the callsite, and
    ``inside`` has torch's innermost line.
    """
    if call is None:
        return None
    site = capture.sites.get(call.site)
    if not call.flags & CallFlag.OPERATOR:
        return _of_nothing(call.callee) if site is None else _of_site(site)
    at_callsite = _of_nothing(call.operator) if site is None else _of_site(site)
    if call.place is None:
        return at_callsite | {"operator": call.operator}
    innermost, telling = call.place, call.place.telling
    inside = {"inside": _of_place(innermost, call, capture)}
    if telling is None:
        return at_callsite | {"operator": call.operator} | inside
    found = _of_place(telling, call, capture) | {"operator": call.operator}
    if telling is not innermost:
        found |= inside
    if site is not None:
        found["callsite"] = _of_site(site)
    around = [] if telling.outer is None else list(telling.outer.chain())
    return found | {"via": [_of_place(place, call, capture) for place in reversed(around)]}


def locate_site(site: Callsite | None) -> dict[str, Any]:
    """Location of a callsite; nowhere for one that the plan does not have."""
    return _of_nothing("") if site is None else _of_site(site)


def _of_nothing(callee: str) -> dict[str, Any]:
    return {"file": "", "line": 0, "end_line": 0, "qualname": "", "call": callee}


def _of_site(site: Callsite) -> dict[str, Any]:
    return {
        "file": site.file,
        "line": site.line,
        "end_line": site.end_line,
        "qualname": site.qualname,
        "call": site.callee,
        "text": site.text,
    }


def _of_place(place: Place, call: Call, capture: CaptureView) -> dict[str, Any]:
    line, end_line, _, _ = place.position
    found: dict[str, Any] = {
        "file": place.path or place.name,
        "line": max(line, 0),
        "end_line": max(end_line, line, 0),
        "qualname": place.qualname,
        "call": call.operator,
        "text": _text(place, capture) or call.operator,
    }
    if place.path:
        found |= {"library": True, "name": place.name, "source_sha256": place.source}
    return found


def _text(place: Place, capture: CaptureView) -> str:
    """The source of a place, on one line; empty if the capture does not have the file."""
    content = capture.libraries.get(place.source) if place.path else capture.sources.get(place.name)
    lines = [] if content is None else decode_source(content)
    line, end_line, col, end_col = place.position
    if not 1 <= line <= end_line <= len(lines):
        return ""
    if line == end_line and 0 <= col < end_col:
        return one_line(lines[line - 1].encode()[col:end_col].decode("utf-8", "replace"))
    return one_line(" ".join(lines[line - 1 : end_line]))
