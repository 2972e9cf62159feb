"""Callsites that one version gets because of the other.

What either version observed in a statement that both have is recorded in both. Of the statements
that they do not share every call is recorded, since the difference may be in any of them.
"""

from __future__ import annotations

from opguard.tools.source.align import Alignment, StatementKey, align_sources
from opguard.tools.source.expression import Expression
from opguard.tools.source.observed import Evidence, ObservedCheckout


def align_checkouts(own: ObservedCheckout, other: ObservedCheckout) -> Alignment:
    """Align every file that either side observed; ``own`` takes the baseline's place.

    A file observed on one side is loaded on the other one too, if it is there and usable.
    """
    for path in sorted(own.files.keys() ^ other.files.keys()):
        own.load(path)
        other.load(path)
    return align_sources(
        {path: file.content for path, file in own.files.items()},
        {path: file.content for path, file in other.files.items()},
    )


def additions(
    own: ObservedCheckout, other: ObservedCheckout, alignment: Alignment
) -> dict[str, dict[Expression, Evidence]]:
    """Expressions of ``own`` to record besides its own observations, by file.

    The evidence of an expression observed in the other version carries that version's operators
    and flags, with a count of zero.
    """
    added: dict[str, dict[Expression, Evidence]] = {}
    shared = {
        key.number: place for place, key in alignment.baseline.items() if key.kind == "shared"
    }
    ordinals = {
        (path, *found.statement, found.kind, found.ordinal): found
        for path, file in own.files.items()
        for found in file.parsed.index.expressions
    }
    for path, evidence in other.evidence.items():
        for expression, seen in evidence.items():
            key = alignment.candidate.get((path, *expression.statement))
            if key is None or key.kind != "shared":
                continue
            place = shared[key.number]
            counterpart = ordinals.get((*place, expression.kind, expression.ordinal))
            if counterpart is not None and counterpart.refusal is None:
                added.setdefault(place[0], {})[counterpart] = Evidence(
                    seen.operators, 0, seen.flags
                )
    for path in _observed_files(own, other, alignment):
        for expression in own.files[path].parsed.index.expressions:
            if expression.kind == "call" and expression.refusal is None:
                place = (path, *expression.statement)
                if _is_changed(alignment.baseline.get(place)):
                    added.setdefault(path, {}).setdefault(expression, Evidence())
    return added


def _is_changed(key: StatementKey | None) -> bool:
    return key is not None and key.kind == "changed"


def _observed_files(
    own: ObservedCheckout, other: ObservedCheckout, alignment: Alignment
) -> list[str]:
    """Files of ``own`` that it observed itself, or whose counterpart the other side observed."""
    return [
        path
        for path in own.files
        if path in own.evidence or alignment.files.get(path) in other.evidence
    ]
