"""Which slots of a paired call differ, and which of those count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from opguard.tools.compare.fingerprints import FingerprintTable
from opguard.tools.compare.pairing import CallPair
from opguard.tools.compare.records import STATE_PREFIXES, Call, Role

RAISED_SLOT = "raised"
"""Slot of a call's exception, where one side raised and the other did not (or another type)."""


RETURNED = "returned"
"""Value of that slot on a side that raised nothing."""


@dataclass(frozen=True, slots=True)
class SlotDifference:
    """One slot whose recorded values differ.

    Attributes:
        slot: Spelled as recorded.
        role: Input, output or gradient.
        baseline: Interned fingerprint, or None when only the candidate has the slot.
        candidate: Interned fingerprint, or None when only the baseline has the slot.
    """

    slot: str
    role: Role
    baseline: int | None
    candidate: int | None


@dataclass(frozen=True, slots=True)
class PairDifference:
    """What differs at one paired call and counts as a difference."""

    inputs: tuple[SlotDifference, ...] = ()
    outputs: tuple[SlotDifference, ...] = ()

    def __bool__(self) -> bool:
        """Whether anything counts."""
        return bool(self.inputs or self.outputs)


NO_DIFFERENCE = PairDifference()


@dataclass(frozen=True, slots=True)
class _Comparison:
    """Slots of one mapping compared: on both sides, on one side, and one-sided state slots."""

    both: tuple[SlotDifference, ...] = ()
    one_sided: tuple[SlotDifference, ...] = ()

    @property
    def one_sided_state(self) -> tuple[SlotDifference, ...]:
        return tuple(d for d in self.one_sided if d.slot.startswith(STATE_PREFIXES))


_NOTHING = _Comparison()


def compare_pair(pair: CallPair, fingerprints: FingerprintTable) -> PairDifference:
    """Find the differences of one pair that count.

    A slot on one side only, or a non-tensor argument, counts only when an output of the call
    differs: an argument passed by keyword instead of position, or a logging flag, decides
    nothing by itself. Parameter, buffer, gradient and optimizer-state slots always count.
    Of a call that did not end on one side only the inputs that both sides have are compared: a
    record that was cut off is not a difference.
    """
    x, y = pair.baseline, pair.candidate
    inputs = _compare(x.inputs, y.inputs, Role.INPUT, fingerprints)
    if not (x.ended and y.ended):
        return PairDifference(inputs=inputs.both) if inputs.both else NO_DIFFERENCE
    outputs = _compare(x.outputs, y.outputs, Role.OUTPUT, fingerprints)
    differing_outputs = outputs.both + outputs.one_sided_state + _raised(x, y, fingerprints)
    if not differing_outputs:
        counted = inputs.both + inputs.one_sided_state
        return PairDifference(inputs=counted) if counted else NO_DIFFERENCE
    arguments = _compare(x.arguments, y.arguments, Role.INPUT, fingerprints)
    soft = tuple(d for d in inputs.one_sided if not d.slot.startswith(STATE_PREFIXES))
    return PairDifference(
        inputs=inputs.both + inputs.one_sided_state + soft + arguments.both + arguments.one_sided,
        outputs=differing_outputs,
    )


def _raised(x: Call, y: Call, fingerprints: FingerprintTable) -> tuple[SlotDifference, ...]:
    if x.error == y.error:
        return ()
    names = (fingerprints.intern_value(call.error or RETURNED) for call in (x, y))
    return (SlotDifference(RAISED_SLOT, Role.OUTPUT, *names),)


def _compare(
    baseline: Mapping[str, int],
    candidate: Mapping[str, int],
    role: Role,
    fingerprints: FingerprintTable,
) -> _Comparison:
    """Compare two slot mappings; equal mappings, by far the most, cost one comparison."""
    if baseline == candidate:
        return _NOTHING
    both = tuple(
        SlotDifference(slot, role, identity, candidate[slot])
        for slot, identity in baseline.items()
        if slot in candidate and candidate[slot] != identity
    )
    left = {slot: v for slot, v in baseline.items() if slot not in candidate}
    right = {slot: v for slot, v in candidate.items() if slot not in baseline}
    left, right = match_renamed(left, right)
    one_sided = tuple(SlotDifference(slot, role, v, None) for slot, v in left.items())
    one_sided += tuple(SlotDifference(slot, role, None, v) for slot, v in right.items())
    return _Comparison(both, one_sided)


def match_renamed(
    baseline: Mapping[str, int], candidate: Mapping[str, int]
) -> tuple[dict[str, int], dict[str, int]]:
    """Match slots of one side only by fingerprint; return those left on each side.

    The same value under two names is a positional against a keyword argument, or a renamed
    module. Equal values are matched one to one, in the order recorded.
    """
    common = Counter(baseline.values()) & Counter(candidate.values())
    if not common:
        return dict(baseline), dict(candidate)
    return _without(baseline, Counter(common)), _without(candidate, common)


def _without(slots: Mapping[str, int], matched: Counter[int]) -> dict[str, int]:
    rest: dict[str, int] = {}
    for slot, identity in slots.items():
        if matched[identity] > 0:
            matched[identity] -= 1
        else:
            rest[slot] = identity
    return rest
