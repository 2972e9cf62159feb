"""Where a call is, in the words of the document."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opguard.tools.compare.capture import Callsite
from opguard.tools.compare.records import Call, CallFlag, Phase

PHASE_NAMES = {int(phase): phase.name.lower() for phase in Phase}


def locate(call: Call | None, sites: Mapping[int, Callsite]) -> dict[str, Any] | None:
    """Location of a call: file relative to the checkout, line, function and callee.

    An operator recorded inside an installed library carries the library's own file and line
    (absolute, marked ``library``), and the callsite of the checkout that led there.
    """
    if call is None:
        return None
    site = sites.get(call.site)
    inside = _library_location(call)
    if inside is not None:
        return inside if site is None else {**inside, "callsite": _of_site(site)}
    if site is None:
        return {"file": "", "line": 0, "end_line": 0, "qualname": "", "call": call.callee}
    return _of_site(site)


def _of_site(site: Callsite) -> dict[str, Any]:
    return {
        "file": site.file,
        "line": site.line,
        "end_line": site.end_line,
        "qualname": site.qualname,
        "call": site.callee,
        "text": site.text,
    }


def _library_location(call: Call) -> dict[str, Any] | None:
    """Read ``operator@file:line`` of an operator-level record."""
    operator, at, place = call.callee.partition("@")
    if not (call.flags & CallFlag.OPERATOR and at):
        return None
    file, _, line = place.rpartition(":")
    number = int(line) if line.isdigit() else 0
    return {
        "file": file, "line": number, "end_line": number, "qualname": "", "call": operator,
        "text": operator, "library": True,
    }  # fmt: skip
