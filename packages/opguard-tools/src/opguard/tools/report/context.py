"""Parts of the document about the runs: circumstances, warnings and repeatability."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from opguard.tools.compare.circumstances import Circumstance, CircumstanceKind
from opguard.tools.compare.origin import Origin
from opguard.tools.compare.records import Role, Side
from opguard.tools.compare.results import Comparison
from opguard.tools.report.locations import locate
from opguard.tools.report.selection import selection_warnings

MAX_NOTES: Final = 5
"""Notes about failed records listed per capture."""

_DATA: Final = (CircumstanceKind.DATA_ORDER, CircumstanceKind.DATA_CONTENT)


def circumstances(comparison: Comparison) -> list[dict[str, Any]]:
    """Entries of ``circumstances``: what differs around the program, by kind."""
    return _entries(comparison, comparison.circumstances)


def _entries(comparison: Comparison, found: Iterable[Circumstance]) -> list[dict[str, Any]]:
    return [
        {
            "kind": item.kind.value,
            "subject": item.subject,
            "text": item.text,
            "baseline": item.baseline,
            "candidate": item.candidate,
            "ranks": list(item.ranks),
            "before_first": item.before_first,
            "step": item.step,
            "locations": {
                side.value: locate(call, comparison.capture(side))
                for side, call in zip(Side, item.calls, strict=True)
            },
            "also_between_equal_runs": item.also_between_equal_runs,
        }
        for item in found
    ]


def circumstances_by_site(comparison: Comparison) -> dict[tuple[int, int], str]:
    """Kind of the circumstance that a callsite shows, by rank and the baseline's callsite.

    Only data: a call that yields other data is an origin by the rules, and none by its meaning.
    """
    return {
        (rank, item.calls[0].site): item.kind.value
        for item in comparison.circumstances
        if item.kind in _DATA and item.calls[0] is not None
        for rank in item.ranks
    }


def circumstance_of(
    rank: int, origin: Origin, shown_by: Mapping[tuple[int, int], str]
) -> str | None:
    """The circumstance that an origin shows rather than an operation that differs, or None."""
    if any(slot.role is Role.RNG_BEFORE for slot in origin.slots):
        return CircumstanceKind.RANDOM_STREAM.value
    return None if origin.baseline is None else shown_by.get((rank, origin.baseline.site))


def warnings(comparison: Comparison) -> list[dict[str, Any]]:
    """What limits the comparison: recordings that were limited, and records that failed."""
    found = selection_warnings(comparison)
    for rank in comparison.ranks:
        for side in Side:
            notes = rank.recorder_failures.get(side, ())
            receipt = comparison.capture(side).receipts.get(rank.rank, {})
            count = max(len(notes), int(receipt.get("counts", {}).get("recorder_failures", 0)))
            if count:
                found.append(
                    {
                        "kind": "recorder_failures",
                        "rank": rank.rank,
                        "side": side.value,
                        "count": count,
                        "notes": list(notes[:MAX_NOTES]),
                        "text": f"the recorder could not make {count} "
                        f"{'record' if count == 1 else 'records'} of the {side.value}'s rank "
                        f"{rank.rank}, so this capture is not complete knowledge: what is missing "
                        "was not compared",
                    }
                )
    return found


def repeatability(comparison: Comparison) -> dict[str, Any] | None:
    """Entry ``repeatability``: what further runs of the baseline show; null without them."""
    found = comparison.repeatability
    if found is None:
        return None
    return {
        "runs": found.runs,
        "differing_runs": found.differing_runs,
        "callsites": [
            {
                **(locate(entry.call, comparison.baseline) or {}),
                "runs": entry.runs,
                "ranks": list(entry.ranks),
                "first_step": entry.call.step,
                "why": _of_runs(entry.why),
            }
            for entry in found.callsites
        ],
        "circumstances": _entries_of_repeats(found.circumstances),
    }


def _entries_of_repeats(found: Iterable[Circumstance]) -> list[dict[str, Any]]:
    return [
        {"kind": item.kind.value, "subject": item.subject, "text": _of_runs(item.text)}
        for item in found
    ]


def _of_runs(text: str) -> str:
    """The text of a circumstance between equal runs, where the candidate is a repeat."""
    return text.replace("in the candidate", "in a repeat").replace("the candidate's", "a repeat's")
