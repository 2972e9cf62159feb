"""Compares recordings of one rank, and says in short what was found."""

from __future__ import annotations

from capture_builders import Recording, align_by_callee, view

from opguard.tools.compare import Comparison, compare_captures


def compare(baseline: Recording, candidate: Recording, **changed: int) -> Comparison:
    left, right = view(baseline), view(candidate)
    return compare_captures(left, right, align_by_callee(left, right, changed), [0])


def summary(comparison: Comparison) -> list[tuple[str, str | None, str | None, list[str]]]:
    """Kind, both callees and slots of every origin."""
    sites = (comparison.baseline.sites, comparison.candidate.sites)
    return [
        (
            origin.kind.value,
            *(
                known[call.site].callee if call is not None else None
                for known, call in zip(sites, (origin.baseline, origin.candidate), strict=True)
            ),
            [slot.slot for slot in origin.slots],
        )
        for origin in comparison.ranks[0].origins
    ]  # type: ignore[return-value]


def why(comparison: Comparison) -> str:
    assert comparison.first is not None
    return comparison.first[1].why
