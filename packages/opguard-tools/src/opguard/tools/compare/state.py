"""What one rank's comparison has established before origins are looked for."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from opguard.tools.compare.capture import Callsite
from opguard.tools.compare.events import DifferenceEvent, UnpairedCall
from opguard.tools.compare.fingerprints import FingerprintTable
from opguard.tools.compare.pairing import CallPair, Pairing
from opguard.tools.compare.records import Call, CallFlag, Side
from opguard.tools.compare.slots import NO_DIFFERENCE, PairDifference


@dataclass(frozen=True, slots=True)
class RankState:
    """Pairs, differences and their order, with the questions the origin rules ask of them.

    Attributes:
        differences: Differences that count, by the baseline call's id; equal pairs are absent.
        events: Differences in execution order; empty when no value differs in the whole run.
        unpaired: Calls of either side without counterpart, in execution order.
        sites: Callsites by id, per side.
    """

    pairing: Pairing
    differences: Mapping[int, PairDifference]
    events: Sequence[DifferenceEvent]
    unpaired: Sequence[UnpairedCall]
    fingerprints: FingerprintTable
    sites: Mapping[Side, Mapping[int, Callsite]]
    _differs_below: frozenset[int] = field(default_factory=frozenset)
    _unpaired_below: frozenset[int] = field(default_factory=frozenset)
    _gradient_positions: Sequence[float] = ()
    _unpaired_by_call: Mapping[tuple[Side, int], UnpairedCall] = field(default_factory=dict)

    @classmethod
    def build(
        cls,
        pairing: Pairing,
        differences: Mapping[int, PairDifference],
        events: Sequence[DifferenceEvent],
        unpaired: Sequence[UnpairedCall],
        fingerprints: FingerprintTable,
        sites: Mapping[Side, Mapping[int, Callsite]],
        parents: Mapping[Side, Mapping[int, int]],
    ) -> RankState:
        """Derive the extent indexes; ``parents`` maps call id to parent id, per side."""
        baseline_parents = parents[Side.BASELINE]
        differs_below = _ancestors(differences, baseline_parents)
        unpaired_below = _ancestors(
            (u.call.id for u in unpaired if u.side is Side.BASELINE), baseline_parents
        )
        for identity in _ancestors(
            (u.call.id for u in unpaired if u.side is Side.CANDIDATE), parents[Side.CANDIDATE]
        ):
            pair = pairing.of_candidate.get(identity)
            if pair is not None:
                unpaired_below.add(pair.baseline.id)
        gradients = sorted(event.position for event in events if event.kind.is_gradient)
        return cls(
            pairing, differences, events, unpaired, fingerprints, sites,
            frozenset(differs_below), frozenset(unpaired_below), gradients,
            {(u.side, u.call.id): u for u in unpaired},
        )  # fmt: skip

    def difference(self, pair: CallPair) -> PairDifference:
        """What differs at a pair."""
        return self.differences.get(pair.baseline.id, NO_DIFFERENCE)

    def differs_inside(self, pair: CallPair) -> bool:
        """Whether a call or a gradient in the pair's dynamic extent differs."""
        if pair.baseline.id in self._differs_below:
            return True
        after = bisect_right(self._gradient_positions, pair.baseline.begin)
        return after < bisect_left(self._gradient_positions, pair.baseline.end)

    def paired_call_differs_inside(self, pair: CallPair) -> bool:
        """Whether a paired call in the pair's dynamic extent differs."""
        return pair.baseline.id in self._differs_below

    def unpaired_inside(self, pair: CallPair) -> list[UnpairedCall]:
        """Unpaired calls of both sides in the pair's dynamic extent, in execution order."""
        if pair.baseline.id not in self._unpaired_below:
            return []
        inside = [
            unpaired
            for side, call in ((Side.BASELINE, pair.baseline), (Side.CANDIDATE, pair.candidate))
            for inner in call.subtree()
            if (unpaired := self._unpaired_by_call.get((side, inner.id))) is not None
        ]
        return sorted(inside, key=lambda u: (u.position, u.call.begin))

    def where(self, side: Side, call: Call) -> str:
        """``file:line  source text`` of a call, for explanations."""
        return describe_place(call, self.sites[side])


def describe_place(call: Call, sites: Mapping[int, Callsite]) -> str:
    """``file:line  source text`` of a call; of an operator, the library's line that ran it."""
    site = sites.get(call.site)
    place = None if call.place is None else call.place.telling
    if place is not None:
        return f"{place.name}:{place.position[0]} ({call.operator})"
    if site is None:
        return call.operator
    text = f"{site.file}:{site.line} `{site.text}`"
    return f"{text} ({call.operator})" if call.flags & CallFlag.OPERATOR else text


def _ancestors(calls: Iterable[int], parents: Mapping[int, int]) -> set[int]:
    """All ancestors of the given calls; each ancestor is visited once."""
    found: set[int] = set()
    for call in calls:
        parent = parents.get(call, 0)
        while parent and parent not in found:
            found.add(parent)
            parent = parents.get(parent, 0)
    return found
