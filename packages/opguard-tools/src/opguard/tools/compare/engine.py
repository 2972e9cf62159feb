"""The comparison of two captures, rank by rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from opguard.tools.compare.capture import Callsite, CaptureView
from opguard.tools.compare.events import (
    BaselineClock,
    CommonPrefix,
    DifferenceEvent,
    UnpairedCall,
    collect_events,
    order_unpaired,
)
from opguard.tools.compare.fingerprints import FingerprintTable
from opguard.tools.compare.harmless import StepValues, some_value_differs
from opguard.tools.compare.keys import CallsiteKeys, SourceAlignment, callsite_keys
from opguard.tools.compare.layouts import find_layout_mismatch, mismatch_origin
from opguard.tools.compare.origins import Origin, find_origins
from opguard.tools.compare.pairing import CallPair, Pairing, pair_calls
from opguard.tools.compare.ranks import (
    CollectiveKey,
    collectives,
    first_over_ranks,
    inherit_over_ranks,
)
from opguard.tools.compare.records import Call, RankRecords, Side
from opguard.tools.compare.relations import Relation
from opguard.tools.compare.rewrites import immaterial_guesses, mixed_up_pairs, withdraw
from opguard.tools.compare.slots import NO_DIFFERENCE, PairDifference, compare_pair
from opguard.tools.compare.state import RankState
from opguard.tools.compare.verdicts import PairVerdict, SlotRelations, judge_pair


@dataclass(frozen=True, slots=True)
class RankComparison:
    """Everything found for one rank.

    Attributes:
        pairs: Paired calls in the baseline's execution order, each with its relation and reason.
        unpaired: Calls on one side only, in execution order.
        beyond: Calls past the end of the other side's incomplete capture; nothing is known of
            their counterparts.
        events: Differences in execution order.
        origins: Origins in execution order.
        inherited: Collectives that took a difference over from another rank.
        incomplete: Why each side's capture of this rank ends early; whole sides are absent.
        collective_of: Key of each paired collective by the baseline call's id.
        differing_collectives: Collectives whose local inputs differ.
    """

    rank: int
    pairs: Sequence[PairVerdict]
    unpaired: Sequence[UnpairedCall]
    beyond: Sequence[UnpairedCall]
    events: Sequence[DifferenceEvent]
    origins: Sequence[Origin]
    fingerprints: FingerprintTable
    records: Mapping[Side, RankRecords]
    incomplete: Mapping[Side, str]
    inherited: Sequence[Origin] = ()
    collective_of: Mapping[int, CollectiveKey] = field(default_factory=dict)
    differing_collectives: frozenset[CollectiveKey] = frozenset()

    def relations(self) -> Counter[Relation]:
        """Number of calls per relation; a pair counts once, an unpaired call once."""
        counts = Counter(verdict.relation for verdict in self.pairs)
        counts[Relation.UNPAIRED] += len(self.unpaired)
        counts[Relation.INCOMPLETE] += len(self.beyond)
        return counts

    def slot_relations(self) -> SlotRelations:
        """Tensors compared and how their slots relate, summed over all pairs."""
        total = SlotRelations()
        for verdict in self.pairs:
            total = total + verdict.slots
        return total


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of two captures over the requested ranks.

    Attributes:
        ranks: One comparison per rank, in ascending order.
        first: Rank and origin that come first over all ranks, or None when nothing differs.
    """

    baseline: CaptureView
    candidate: CaptureView
    ranks: Sequence[RankComparison]
    first: tuple[int, Origin] | None

    def sites(self, side: Side) -> Mapping[int, Callsite]:
        """Callsites of one side by id."""
        return self.capture(side).sites

    def capture(self, side: Side) -> CaptureView:
        """One side's capture."""
        return self.baseline if side is Side.BASELINE else self.candidate


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
    compared = {rank: _compare_rank(baseline, candidate, rank, keys) for rank in sorted(set(ranks))}
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
    baseline: CaptureView, candidate: CaptureView, rank: int, keys: CallsiteKeys
) -> RankComparison:
    fingerprints = FingerprintTable()
    records = {
        Side.BASELINE: RankRecords.build(baseline.tables(rank), fingerprints),
        Side.CANDIDATE: RankRecords.build(candidate.tables(rank), fingerprints),
    }
    incomplete = {
        side: reason for side, found in records.items() if (reason := found.incomplete) is not None
    }
    found = _find_differences(records, keys, incomplete, fingerprints)
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
    origins = find_origins(state) if mismatch is None else [mismatch_origin(mismatch)]
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

    pairing = pair_calls(baseline, candidate, keys)
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
