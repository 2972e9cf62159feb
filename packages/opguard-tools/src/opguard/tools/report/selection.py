"""What a report says about recordings that a user limited."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opguard.tools.compare.records import Side
from opguard.tools.compare.results import Comparison

_BOTH = "both captures are"
_ONE_SIDED = "; the other's is not limited in this way, so calls may be on one side only"


def selection_warnings(comparison: Comparison) -> list[dict[str, Any]]:
    """Entries of ``warnings``: one for both sides where they are limited alike, else per side."""
    first = comparison.ranks[0].rank if comparison.ranks else 0
    stated = {side: _of_side(comparison, side) for side in Side}
    alike = len(set(stated.values())) == 1
    found = []
    for side, text in stated.items():
        if text is None or (alike and side is not Side.BASELINE):
            continue
        start = _BOTH if alike else f"the {side.value}'s capture is"
        found.append(
            {
                "kind": "selection",
                "rank": first,
                "side": None if alike else side.value,
                "count": 0,
                "notes": [],
                "text": f"{start} limited to {text}: what lies outside was not recorded"
                + ("" if alike else _ONE_SIDED),
            }
        )
    return found


def _of_side(comparison: Comparison, side: Side) -> str | None:
    """What the ranks of a capture were limited to, in words; None where they were not."""
    receipts = comparison.capture(side).receipts
    texts = [selection_text(receipts.get(rank.rank, {})) for rank in comparison.ranks]
    return ", elsewhere ".join(sorted({text for text in texts if text is not None})) or None


def selection_text(receipt: Mapping[str, Any]) -> str | None:
    """The selection that a receipt states, in words; None where everything was recorded."""
    stated = receipt.get("selection")
    if not isinstance(stated, Mapping):
        return None
    parts = []
    if stated.get("steps"):
        parts.append(f"steps {stated['steps']}")
    if stated.get("phases"):
        parts.append(f"the phases {', '.join(stated['phases'])}")
    if stated.get("callsites"):
        parts.append(f"the callsites {', '.join(stated['callsites'])}")
    if stated.get("levels"):
        parts.append(f"{stated['levels']} levels of calls")
    return " and ".join(parts) or None
