"""Differences of one rank as events on the baseline's clock, in execution order."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from opguard.tools.compare.pairing import CallPair, Pairing
from opguard.tools.compare.records import Call, GradientRecord, Role, Side
from opguard.tools.compare.slots import PairDifference, SlotDifference


class EventKind(IntEnum):
    """What was seen to differ. At one tick inputs come first."""

    INPUT = 0
    OUTPUT = 1
    GRADIENT = 2
    GRADIENT_MISSING = 3

    @property
    def is_gradient(self) -> bool:
        """Whether a gradient of an output is meant."""
        return self in (EventKind.GRADIENT, EventKind.GRADIENT_MISSING)


@dataclass(frozen=True, slots=True)
class DifferenceEvent:
    """Something that differs, and when.

    Attributes:
        position: On the baseline's clock (ticks); what only the candidate has lies between two.
        kind: What differs.
        pair: The call it belongs to; for gradients the forward call.
        slots: The slots that differ.
    """

    position: float
    kind: EventKind
    pair: CallPair
    slots: tuple[SlotDifference, ...]


@dataclass(frozen=True, slots=True)
class UnpairedCall:
    """A call that exists on one side only, placed on the baseline's clock."""

    position: float
    side: Side
    call: Call


class BaselineClock:
    """Places the candidate's ticks on the baseline's clock, by the paired calls as anchors."""

    def __init__(self, pairs: Iterable[CallPair]) -> None:
        """Collect begin and end of every pair as anchors."""
        anchors = sorted(
            anchor
            for pair in pairs
            if pair.in_order
            for anchor in (
                (pair.candidate.begin, pair.baseline.begin),
                (pair.candidate.end, pair.baseline.end),
            )
        )
        self._candidate = [candidate for candidate, _ in anchors]
        self._baseline = [baseline for _, baseline in anchors]

    def place(self, candidate_tick: int) -> float:
        """Just after the last anchor at or before the candidate's tick."""
        index = bisect_right(self._candidate, candidate_tick) - 1
        return (self._baseline[index] if index >= 0 else 0) + 0.5


@dataclass(frozen=True, slots=True)
class CommonPrefix:
    """Where a side that ends early stops saying anything about the other side.

    Attributes:
        baseline_end: Baseline tick after which a missing counterpart proves nothing, because the
            candidate's capture ends there; None when that capture is whole.
        candidate_end: The same on the candidate's clock, for a baseline that ends early.
    """

    baseline_end: int | None = None
    candidate_end: int | None = None

    @classmethod
    def of(
        cls, pairing: Pairing, *, baseline_incomplete: bool, candidate_incomplete: bool
    ) -> CommonPrefix:
        """The prefix ends with the last paired call: at its end, or its begin if it was cut.

        An exception that ends the program cuts every call that it passes through.
        """
        baseline_end = candidate_end = 0
        for pair in pairing.pairs:
            if not pair.in_order:
                continue
            x, y = pair.baseline, pair.candidate
            whole = x.ended and y.ended and x.error is None and y.error is None
            baseline_end = max(baseline_end, x.end if whole else x.begin)
            candidate_end = max(candidate_end, y.end if whole else y.begin)
        return cls(
            baseline_end if candidate_incomplete else None,
            candidate_end if baseline_incomplete else None,
        )

    def covers(self, side: Side, tick: int) -> bool:
        """Whether something that only ``side`` has at ``tick`` is a fact about both runs."""
        end = self.baseline_end if side is Side.BASELINE else self.candidate_end
        return end is None or tick <= end


def collect_events(
    pairing: Pairing,
    differences: Mapping[int, PairDifference],
    clock: BaselineClock,
    prefix: CommonPrefix,
) -> list[DifferenceEvent]:
    """All differences in execution order; at one tick inputs come first."""
    events: list[DifferenceEvent] = []
    for pair in pairing.pairs:
        difference = differences.get(pair.baseline.id)
        if difference is not None:
            if difference.inputs:
                position = _position(pair, pair.baseline.begin, pair.candidate.begin, clock)
                events.append(DifferenceEvent(position, EventKind.INPUT, pair, difference.inputs))
            if difference.outputs:
                position = _position(pair, pair.baseline.end, pair.candidate.end, clock)
                events.append(DifferenceEvent(position, EventKind.OUTPUT, pair, difference.outputs))
        if pair.baseline.gradients or pair.candidate.gradients:
            events += _gradient_events(pair, clock, prefix)
    events.sort(key=lambda event: (event.position, event.kind is not EventKind.INPUT))
    return events


def _position(pair: CallPair, baseline: int, candidate: int, clock: BaselineClock) -> float:
    """When a difference exists: of calls at different places in the order, once both were made."""
    return baseline if pair.in_order else max(baseline, clock.place(candidate))


def _gradient_events(
    pair: CallPair, clock: BaselineClock, prefix: CommonPrefix
) -> Iterable[DifferenceEvent]:
    """Compare the n-th gradient of each output slot with the n-th of the other side."""
    left = _by_arrival(pair.baseline.gradients)
    right = _by_arrival(pair.candidate.gradients)
    for key, record in left.items():
        other = right.get(key)
        if other is None:
            if prefix.covers(Side.BASELINE, record.tick):
                slot = SlotDifference(record.slot, Role.GRADIENT, record.fingerprint, None)
                yield DifferenceEvent(record.tick, EventKind.GRADIENT_MISSING, pair, (slot,))
        elif other.fingerprint != record.fingerprint:
            slot = SlotDifference(record.slot, Role.GRADIENT, record.fingerprint, other.fingerprint)
            yield DifferenceEvent(record.tick, EventKind.GRADIENT, pair, (slot,))
    for key, record in right.items():
        if key not in left and prefix.covers(Side.CANDIDATE, record.tick):
            slot = SlotDifference(record.slot, Role.GRADIENT, None, record.fingerprint)
            position = clock.place(record.tick)
            yield DifferenceEvent(position, EventKind.GRADIENT_MISSING, pair, (slot,))


def _by_arrival(records: Sequence[GradientRecord]) -> dict[tuple[str, int], GradientRecord]:
    return {(record.slot, record.arrival): record for record in records}


def order_unpaired(
    pairing: Pairing, clock: BaselineClock, prefix: CommonPrefix
) -> tuple[list[UnpairedCall], list[UnpairedCall]]:
    """Unpaired calls in execution order, and apart from them those past the common prefix."""
    placed = [
        UnpairedCall(call.begin, Side.BASELINE, call) for call in pairing.unpaired_baseline
    ] + [
        UnpairedCall(clock.place(call.begin), Side.CANDIDATE, call)
        for call in pairing.unpaired_candidate
    ]
    placed.sort(key=lambda unpaired: (unpaired.position, unpaired.call.begin))
    inside = [u for u in placed if prefix.covers(u.side, u.call.begin)]
    beyond = [u for u in placed if not prefix.covers(u.side, u.call.begin)]
    return inside, beyond
