"""The ``opguard-diff`` document: everything a program needs to know about a comparison."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import Any, Final

from opguard.tools.compare.capture import CaptureView
from opguard.tools.compare.events import UnpairedCall
from opguard.tools.compare.fingerprints import Fingerprint, FingerprintTable, relate
from opguard.tools.compare.origin import Origin, OriginKind
from opguard.tools.compare.records import Call, Side
from opguard.tools.compare.relations import Relation
from opguard.tools.compare.results import Comparison, RankComparison
from opguard.tools.compare.slots import SlotDifference
from opguard.tools.compare.verdicts import SlotRelations
from opguard.tools.formats import DIFF_SCHEMA
from opguard.tools.report.activity import device_activity
from opguard.tools.report.context import (
    circumstance_of,
    circumstances,
    circumstances_by_site,
    repeatability,
    warnings,
)
from opguard.tools.report.endings import endings
from opguard.tools.report.files import Reports
from opguard.tools.report.groups import note_repeats
from opguard.tools.report.locations import PHASE_NAMES, locate
from opguard.tools.report.statements import changed_statements, statement_text

NOTICE: Final = (
    "This report is not a numerical-equivalence result and not a root-cause finding. It says "
    "where recorded fingerprints first stopped agreeing over the observed callsites."
)
"""Source: protocol E3."""

MAX_SLOTS: Final = 32
"""Slots listed per origin; an optimizer step can have thousands that differ."""


def document(comparison: Comparison, reports: Reports | None = None) -> dict[str, Any]:
    """Build the document of a comparison.

    Args:
        comparison: The comparison.
        reports: Report files already written, named under ``reports``.

    Returns:
        JSON-ready data. The same comparison gives the same document.

    Source: architecture, "One command for people"; protocol E2, E3.
    """
    shown_by = circumstances_by_site(comparison)
    origins = {
        rank.rank: [_origin(comparison, rank, origin, shown_by) for origin in rank.origins]
        for rank in comparison.ranks
    }
    listed = [origin for found in origins.values() for origin in found]
    set_apart = [
        _origin(comparison, rank, entry.origin, shown_by) | {"not_repeatable": entry.why}
        for rank in comparison.ranks
        for entry in rank.not_repeatable
    ]
    note_repeats(listed)
    note_repeats(set_apart)
    return {
        "schema": dict(DIFF_SCHEMA),
        "verdict": "not_evaluated",
        "coverage": "observed_callsites_only",
        "notice": NOTICE,
        "ranks": [rank.rank for rank in comparison.ranks],
        "endings": endings(comparison),
        "captures": {side.value: _capture_facts(comparison, side) for side in Side},
        "observed": _observed(comparison),
        "warnings": warnings(comparison),
        "circumstances": circumstances(comparison),
        "repeatability": repeatability(comparison),
        "first": _first(comparison, origins),
        "origins": listed,
        "not_repeatable": set_apart,
        "inherited": [
            _origin(comparison, rank, origin, shown_by)
            | {"inherited_from_rank": origin.inherited_from}
            for rank in comparison.ranks
            for origin in rank.inherited
        ],
        "unpaired": [entry for rank in comparison.ranks for entry in _unpaired(comparison, rank)],
        "incomplete": [
            {"rank": rank.rank, "side": side.value, "reason": reason}
            for rank in comparison.ranks
            for side, reason in sorted(rank.incomplete.items())
        ],
        "device_activity": device_activity(comparison),
        "steps": [entry for rank in comparison.ranks for entry in _steps(rank)],
        "reports": reports.as_document() if reports is not None else {},
    }


def _first(
    comparison: Comparison, origins: Mapping[int, list[dict[str, Any]]]
) -> dict[str, Any] | None:
    """The first origin over all ranks: the same entry as in ``origins``."""
    return None if comparison.first is None else origins[comparison.first[0]][0]


def _origin(
    comparison: Comparison,
    rank: RankComparison,
    origin: Origin,
    shown_by: Mapping[tuple[int, int], str],
) -> dict[str, Any]:
    shown = origin.slots[:MAX_SLOTS]
    left, right = changed_statements(origin, comparison.baseline, comparison.candidate)
    baseline = _located(origin, Side.BASELINE, comparison.baseline)
    candidate = _located(origin, Side.CANDIDATE, comparison.candidate)
    return {
        "rank": rank.rank,
        "step": origin.step,
        "phase": PHASE_NAMES.get(origin.phase, str(origin.phase)),
        "order": int(origin.position),
        "kind": origin.kind.value,
        "why": origin.why,
        "circumstance": circumstance_of(rank.rank, origin, shown_by),
        "relation_source": origin.source.value if origin.source else None,
        "baseline": baseline and baseline | left,
        "candidate": candidate and candidate | right,
        "slots_of": _slots_of(comparison, origin),
        "slots": [_slot(slot, rank.fingerprints) for slot in shown],
        "slots_differing": len(origin.slots),
    }


def _located(origin: Origin, side: Side, capture: CaptureView) -> dict[str, Any] | None:
    """Location of an origin: its call, or the statement inside that nothing recorded stands for."""
    call = origin.baseline if side is Side.BASELINE else origin.candidate
    location = locate(call, capture)
    silent = origin.silent.get(side)
    if location is None or silent is None:
        return location
    text = statement_text(capture.sources[silent.file], silent.position)
    return {
        "file": silent.file,
        "line": silent.line,
        "end_line": silent.end_line,
        "qualname": silent.qualname,
        "call": "",
        "text": text,
        "callsite": location,
    }


def _slots_of(comparison: Comparison, origin: Origin) -> dict[str, Any] | None:
    """Where the calls are that an origin's slots belong to; None for the origin's own."""
    pair = origin.slots_of
    if pair is None:
        return None
    return {
        "baseline": locate(pair.baseline, comparison.baseline),
        "candidate": locate(pair.candidate, comparison.candidate),
    }


def _slot(slot: SlotDifference, fingerprints: FingerprintTable) -> dict[str, Any]:
    """One differing slot with both sides' metadata and, where comparable, the regions."""
    sides = {
        side: None if identity is None else fingerprints[identity]
        for side, identity in ((Side.BASELINE, slot.baseline), (Side.CANDIDATE, slot.candidate))
    }
    left, right = sides[Side.BASELINE], sides[Side.CANDIDATE]
    entry: dict[str, Any] = {"slot": slot.slot, "role": slot.role.name.lower()}
    if left is None or right is None:
        missing = Side.BASELINE if left is None else Side.CANDIDATE
        entry |= {"relation": Relation.UNPAIRED.value, "reason": f"absent in the {missing}"}
        entry |= {"regions_differing": [], "schemes_differing": []}
    else:
        relation = relate(left, right)
        entry |= {"relation": relation.relation.value, "reason": relation.reason}
        entry |= {
            "regions_differing": list(relation.regions_differing),
            "schemes_differing": list(relation.schemes_differing),
        }
        if relation.relation is Relation.DIFFERENT and left.signed:
            entry["regions"] = left.regions
            entry["logical_nbytes"] = left.logical_nbytes
    entry |= {side.value: _value(found) for side, found in sides.items()}
    return entry


def _value(fingerprint: Fingerprint | None) -> dict[str, Any] | None:
    if fingerprint is None:
        return None
    if fingerprint.is_value:
        return {"value": fingerprint.note}
    entry: dict[str, Any] = {"dtype": fingerprint.dtype, "shape": list(fingerprint.shape)}
    if fingerprint.note:
        entry["note"] = fingerprint.note
    return entry


def _unpaired(comparison: Comparison, rank: RankComparison) -> Iterable[dict[str, Any]]:
    """Unpaired calls grouped by callsite, outermost ones only: what they run is not repeated."""
    calls = {(u.side, u.call.id) for u in rank.unpaired}
    named = {
        (side, call.site)
        for origin in rank.origins
        for side, call in ((Side.BASELINE, origin.baseline), (Side.CANDIDATE, origin.candidate))
        if call is not None and origin.kind is OriginKind.UNPAIRED
    }
    groups: dict[tuple[Side, int, str], list[UnpairedCall]] = {}
    for u in rank.unpaired:
        if (u.side, u.call.parent) not in calls:
            groups.setdefault((u.side, u.call.site, u.call.callee), []).append(u)
    for (side, site, _), found in groups.items():
        first = found[0].call
        yield {
            "rank": rank.rank,
            "side": side.value,
            **(locate(first, comparison.capture(side)) or {}),
            "of_origin": (side, site) in named,
            "calls": len(found),
            "calls_inside": sum(1 for u in found for _ in u.call.subtree()) - len(found),
            "first_step": first.step,
            "phase": PHASE_NAMES.get(first.phase, str(first.phase)),
        }


def _steps(rank: RankComparison) -> list[dict[str, Any]]:
    """Number of calls per relation for every step; the step of a pair is the baseline's."""
    counts: dict[int, Counter[Relation]] = {}
    for verdict in rank.pairs:
        counts.setdefault(verdict.pair.baseline.step, Counter())[verdict.relation] += 1
    for relation, found in (
        (Relation.UNPAIRED, rank.unpaired),
        (Relation.INCOMPLETE, rank.beyond),
    ):
        for u in found:
            counts.setdefault(u.call.step, Counter())[relation] += 1
    return [
        {"rank": rank.rank, "step": step} | {str(r): counts[step][r] for r in Relation}
        for step in sorted(counts)
    ]


def _observed(comparison: Comparison) -> dict[str, Any]:
    """What was looked at: the scope over which "nothing differs" may be said."""
    ranks = comparison.ranks
    relations: Counter[Relation] = sum((rank.relations() for rank in ranks), Counter())
    sources = Counter(verdict.source.value for rank in ranks for verdict in rank.pairs)
    slots = sum((rank.slot_relations() for rank in ranks), SlotRelations())
    return {
        "callsites": {side.value: _callsites(ranks, side) for side in Side},
        "calls": {s.value: sum(len(rank.records[s].calls) for rank in ranks) for s in Side},
        "tensors": {s.value: sum(rank.records[s].tensors for rank in ranks) for s in Side},
        "pairs": sum(len(rank.pairs) for rank in ranks),
        "pairs_by_source": {"exact": sources["exact"], "inferred": sources["inferred"]},
        "relations": {relation.value: relations[relation] for relation in Relation},
        "slots": asdict(slots),
    }


def _callsites(ranks: Iterable[RankComparison], side: Side) -> int:
    """Callsites with at least one recorded call."""
    return len({call.site for rank in ranks for call in _calls(rank, side)})


def _calls(rank: RankComparison, side: Side) -> Iterable[Call]:
    return rank.records[side].calls


def _capture_facts(comparison: Comparison, side: Side) -> dict[str, Any]:
    """Facts of the receipts that do not change from run to run of the same program."""
    capture = comparison.capture(side)
    receipts = {
        rank.rank: capture.receipts[rank.rank]
        for rank in comparison.ranks
        if rank.rank in capture.receipts
    }
    names = ("versions", "fingerprint", "determinism", "environment", "observer_effects",
             "counts", "world_size", "exit_status", "exit_kind", "capture_id")  # fmt: skip
    return {
        "files": sorted(capture.sources),
        "sites": len(capture.sites),
        "receipts": [
            {"rank": rank, **{name: receipt[name] for name in names if name in receipt}}
            for rank, receipt in receipts.items()
        ],
    }
