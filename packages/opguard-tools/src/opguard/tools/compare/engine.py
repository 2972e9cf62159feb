"""The comparison of two captures, rank by rank."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from opguard.tools.compare.capture import CaptureView
from opguard.tools.compare.context import with_circumstances
from opguard.tools.compare.displaced import pair_displaced
from opguard.tools.compare.endings import interrupted_ranks
from opguard.tools.compare.events import (
    BaselineClock,
    CommonPrefix,
    DifferenceEvent,
    collect_events,
    order_unpaired,
)
from opguard.tools.compare.fingerprints import FingerprintTable
from opguard.tools.compare.harmless import StepValues, some_value_differs
from opguard.tools.compare.keys import CallsiteKeys, SourceAlignment, callsite_keys
from opguard.tools.compare.layouts import find_layout_mismatch, mismatch_origin
from opguard.tools.compare.origins import Place, find_origins
from opguard.tools.compare.pairing import CallPair, Pairing, pair_calls
from opguard.tools.compare.place_keys import SideSpots, SpotKeys, spot_keys
from opguard.tools.compare.ranks import collectives, first_over_ranks, inherit_over_ranks
from opguard.tools.compare.records import Call, RankRecords, Side
from opguard.tools.compare.results import Comparison, RankComparison
from opguard.tools.compare.rewrites import immaterial_guesses, mixed_up_pairs, withdraw
from opguard.tools.compare.slots import NO_DIFFERENCE, PairDifference, compare_pair
from opguard.tools.compare.state import RankState
from opguard.tools.compare.verdicts import judge_pair


def compare_captures(
    baseline: CaptureView,
    candidate: CaptureView,
    alignment: SourceAlignment,
    ranks: Sequence[int],
) -> Comparison:
    """Compare two captures over the given ranks.

    Args:
        baseline: The run that is taken as reference.
        candidate: The run that is compared with it.
        alignment: Statements of both versions of the sources.
        ranks: Global ranks to compare; each must be in both captures.

    Raises:
        CaptureReadError: A rank or one of its tables is missing on a side.

    Source: protocol E1; architecture, "Pairing and origins".
    """
    keys = callsite_keys(baseline.sites, candidate.sites, alignment)
    return with_circumstances(compare_keyed(baseline, candidate, keys, ranks))


def compare_keyed(
    baseline: CaptureView,
    candidate: CaptureView,
    keys: CallsiteKeys,
    ranks: Sequence[int],
    varying: Mapping[int, Set[Place]] | None = None,
) -> Comparison:
    """Compare two captures whose callsites are keyed already; looks at no circumstances.

    Args:
        baseline: The run that is taken as reference.
        candidate: The run that is compared with it.
        keys: Corresponding callsites.
        ranks: Global ranks to compare; each must be in both captures.
        varying: Per rank, places that differ between equal runs of the baseline.

    Raises:
        CaptureReadError: A rank or one of its tables is missing on a side.
    """
    unsteady = varying or {}
    compared = {
        rank: _compare_rank(baseline, candidate, rank, keys, unsteady.get(rank, frozenset()))
        for rank in sorted(set(ranks))
    }
    remaining, inherited = inherit_over_ranks(
        {rank: result.origins for rank, result in compared.items()},
        {rank: result.collective_of for rank, result in compared.items()},
        {rank: result.differing_collectives for rank, result in compared.items()},
    )
    results = [
        replace(result, origins=remaining[rank], inherited=inherited[rank])
        for rank, result in compared.items()
    ]
    return Comparison(baseline, candidate, results, first_over_ranks(remaining))


def compare_rank(
    baseline: CaptureView, candidate: CaptureView, rank: int, alignment: SourceAlignment
) -> RankComparison:
    """Compare one rank by itself: one independent unit of work, whatever engine runs it.

    Raises:
        CaptureReadError: The rank or one of its tables is missing on a side.
    """
    keys = callsite_keys(baseline.sites, candidate.sites, alignment)
    return _compare_rank(baseline, candidate, rank, keys)


def _compare_rank(
    baseline: CaptureView,
    candidate: CaptureView,
    rank: int,
    keys: CallsiteKeys,
    varying: Set[Place] = frozenset(),
) -> RankComparison:
    fingerprints = FingerprintTable()
    tables = {
        Side.BASELINE: baseline.tables(rank),
        Side.CANDIDATE: candidate.tables(rank),
    }
    records = {side: RankRecords.build(found, fingerprints) for side, found in tables.items()}
    for side, view in ((Side.BASELINE, baseline), (Side.CANDIDATE, candidate)):
        if rank in interrupted_ranks(view.endings.values()):
            records[side].forget_last_exception()
    failures = {side: found.recorder_failures() for side, found in tables.items()}
    spots = spot_keys(
        *(
            SideSpots(tables[side].places.values(), view.sources, view.libraries)
            for side, view in ((Side.BASELINE, baseline), (Side.CANDIDATE, candidate))
        )
    )
    tables.clear()
    incomplete = {
        side: reason for side, found in records.items() if (reason := found.incomplete) is not None
    }
    found = _find_differences(records, keys, spots, incomplete, fingerprints)
    pairing, differences, events = found.pairing, found.differences, found.events
    unpaired, beyond = order_unpaired(pairing, found.clock, found.prefix)
    mismatch = find_layout_mismatch(pairing.pairs, fingerprints)
    state = RankState.build(
        pairing,
        differences,
        events,
        unpaired,
        fingerprints,
        {Side.BASELINE: baseline.sites, Side.CANDIDATE: candidate.sites},
        {side: _parents(found.calls) for side, found in records.items()},
    )
    origins = find_origins(state, varying) if mismatch is None else [mismatch_origin(mismatch)]
    named = {call.id: key for key, call in collectives(pairing, keys, baseline.sites)}
    return RankComparison(
        rank=rank,
        pairs=[
            judge_pair(
                pair,
                differences.get(pair.baseline.id, NO_DIFFERENCE),
                fingerprints,
                harmless=found.harmless,
            )
            for pair in pairing.pairs
        ],
        unpaired=unpaired,
        beyond=beyond,
        events=events,
        origins=origins,
        fingerprints=fingerprints,
        records=records,
        incomplete=incomplete,
        recorder_failures=failures,
        collective_of=named,
        differing_collectives=frozenset(
            key for call, key in named.items() if differences.get(call, NO_DIFFERENCE).inputs
        ),
    )


@dataclass(frozen=True, slots=True)
class _Found:
    """Pairs and differences of one rank.

    Attributes:
        harmless: Whether no value differs in the whole run; then there are no events.
    """

    pairing: Pairing
    differences: Mapping[int, PairDifference]
    events: Sequence[DifferenceEvent]
    clock: BaselineClock
    prefix: CommonPrefix
    harmless: bool


def _find_differences(
    records: Mapping[Side, RankRecords],
    keys: CallsiteKeys,
    spots: SpotKeys,
    incomplete: Mapping[Side, str],
    fingerprints: FingerprintTable,
) -> _Found:
    """Pair the calls and collect their differences.

    Pairs that the values show to be mixed up are withdrawn. Guessed ones that came to nothing
    are withdrawn as well if no other value differs in the whole run, and only then.
    """
    baseline, candidate = records[Side.BASELINE], records[Side.CANDIDATE]
    values = StepValues(baseline, candidate)

    def collect(pairing: Pairing, known: Mapping[int, PairDifference]) -> _Found:
        differences = {call: found for call, found in known.items() if call in pairing.of_baseline}
        clock = BaselineClock(pairing.pairs)
        prefix = CommonPrefix.of(
            pairing,
            baseline_incomplete=Side.BASELINE in incomplete,
            candidate_incomplete=Side.CANDIDATE in incomplete,
        )
        events = collect_events(pairing, differences, clock, prefix)
        harmless = not some_value_differs(events, values, fingerprints)
        return _Found(pairing, differences, [] if harmless else events, clock, prefix, harmless)

    pairing = pair_calls(baseline, candidate, keys, spots)
    pair_displaced(pairing, baseline, candidate, keys)
    differences = _differences(pairing.pairs, fingerprints)
    pairing = withdraw(pairing, mixed_up_pairs(pairing, differences, values, fingerprints))
    found = collect(pairing, differences)
    immaterial = immaterial_guesses(pairing, found.differences, values, fingerprints)
    if not found.harmless and immaterial:
        without = collect(withdraw(pairing, immaterial), differences)
        found = without if without.harmless else found
    return found


def _differences(
    pairs: Sequence[CallPair], fingerprints: FingerprintTable
) -> dict[int, PairDifference]:
    """Differences that count, by the baseline call's id; equal pairs are left out."""
    found: dict[int, PairDifference] = {}
    for pair in pairs:
        difference = compare_pair(pair, fingerprints)
        if difference:
            found[pair.baseline.id] = difference
    return found


def _parents(calls: Sequence[Call]) -> dict[int, int]:
    return {call.id: call.parent for call in calls}
