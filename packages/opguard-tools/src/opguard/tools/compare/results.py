"""What a comparison found: per rank, and over all ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from opguard.tools.compare.capture import Callsite, CaptureView
from opguard.tools.compare.circumstances import Circumstance
from opguard.tools.compare.events import DifferenceEvent, UnpairedCall
from opguard.tools.compare.fingerprints import FingerprintTable
from opguard.tools.compare.origin import Origin
from opguard.tools.compare.ranks import CollectiveKey
from opguard.tools.compare.records import Call, RankRecords, Side
from opguard.tools.compare.relations import Relation
from opguard.tools.compare.verdicts import PairVerdict, SlotRelations


@dataclass(frozen=True, slots=True)
class UnrepeatableOrigin:
    """An origin that says nothing about the candidate: equal runs of the baseline have it too.

    Attributes:
        why: What equal runs show there.
    """

    origin: Origin
    why: str


@dataclass(frozen=True, slots=True)
class UnrepeatableCallsite:
    """A callsite at which equal runs of the baseline stopped agreeing.

    Attributes:
        call: The baseline's first call there that differs.
        runs: How many of the equal runs differ there.
        ranks: Ranks on which they do, in ascending order.
        why: What was found, in words.
    """

    call: Call
    runs: int
    ranks: tuple[int, ...]
    why: str


@dataclass(frozen=True, slots=True)
class Repeatability:
    """What further runs of the baseline say about differences.

    Attributes:
        runs: Number of further runs.
        differing_runs: How many of them differ from the baseline.
        callsites: Callsites that are not repeatable, in execution order.
        circumstances: What differs around the equal runs, by kind.
    """

    runs: int
    differing_runs: int
    callsites: Sequence[UnrepeatableCallsite]
    circumstances: Sequence[Circumstance]


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
        not_repeatable: Origins that equal runs of the baseline have as well.
        recorder_failures: Per side, what the recorder noted about records it could not make.
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
    not_repeatable: Sequence[UnrepeatableOrigin] = ()
    recorder_failures: Mapping[Side, Sequence[str]] = field(default_factory=dict)
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
        circumstances: What differs around the program, by kind.
        repeatability: What equal runs of the baseline show; None when there were none.
    """

    baseline: CaptureView
    candidate: CaptureView
    ranks: Sequence[RankComparison]
    first: tuple[int, Origin] | None
    circumstances: Sequence[Circumstance] = ()
    repeatability: Repeatability | None = None

    def sites(self, side: Side) -> Mapping[int, Callsite]:
        """Callsites of one side by id."""
        return self.capture(side).sites

    def capture(self, side: Side) -> CaptureView:
        """One side's capture."""
        return self.baseline if side is Side.BASELINE else self.candidate
