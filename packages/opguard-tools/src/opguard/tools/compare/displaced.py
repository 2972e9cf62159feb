"""Calls that both sides make at another place in the order, and that leave another value behind.

A moving average taken before the optimizer's step instead of after it, or a schedule moved before
the step, leaves calls of one callsite over on both sides. By itself a call on one side only is no
divergence. These are one when they change something that outlives them: a parameter, an optimizer's
state, or a tensor that was there before. They are paired here, so that what differs can be seen.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence

from opguard.tools.compare.keys import CallsiteKeys
from opguard.tools.compare.pairing import CallPair, Pairing
from opguard.tools.compare.records import STATE_PREFIXES, Call, RankRecords
from opguard.tools.compare.relations import RelationSource

_SAME = "same callsite and same values at another place in the order"
_OTHER = "same callsite at another place in the order"


def pair_displaced(
    pairing: Pairing, baseline: RankRecords, candidate: RankRecords, keys: CallsiteKeys
) -> None:
    """Pair leftover calls that change something lasting; adds to the pairing.

    Calls with equal values first, whatever their steps, then those of one step, then the others in
    order. Calls whose change nothing outside can see (a counter inside an evaluation that one side
    makes later) stay unpaired.
    """
    left = _by_key(pairing.unpaired_baseline, lambda call: keys.call_key(call, keys.baseline))
    right = _by_key(pairing.unpaired_candidate, lambda call: keys.call_key(call, keys.candidate))
    shared = left.keys() & right.keys()
    if not any(_writes(call) for side in (left, right) for key in shared for call in side[key]):
        return
    lasting = _lasting(baseline, pairing.unpaired_baseline)
    lasting |= _lasting(candidate, pairing.unpaired_candidate)
    for key in sorted(shared, key=lambda key: left[key][0].begin):
        waiting = list(right[key])
        rest = list(left[key])
        for reason, alike in (
            (_SAME, lambda x, y: _values(x) == _values(y)),
            (_OTHER, lambda x, y: x.step == y.step),
            (_OTHER, lambda x, y: True),
        ):
            rest = _match(pairing, rest, waiting, lasting, reason, alike)
    pairing.pairs.sort(key=lambda pair: pair.baseline.begin)
    pairing.unpaired_baseline = [
        call for call in pairing.unpaired_baseline if call.id not in pairing.of_baseline
    ]
    pairing.unpaired_candidate = [
        call for call in pairing.unpaired_candidate if call.id not in pairing.of_candidate
    ]


def _match(
    pairing: Pairing,
    rest: Iterable[Call],
    waiting: list[Call],
    lasting: set[int],
    reason: str,
    alike: Callable[[Call, Call], bool],
) -> list[Call]:
    """Pair what is alike; returns the baseline's calls that are still left."""
    left: list[Call] = []
    for call in rest:
        other = next(
            (
                y
                for y in waiting
                if (id(call) in lasting or id(y) in lasting) and call.ended and y.ended
                and alike(call, y)
            ),
            None,
        )  # fmt: skip
        if other is None:
            left.append(call)
            continue
        waiting.remove(other)
        pair = CallPair(call, other, RelationSource.INFERRED, reason, in_order=False)
        pairing.pairs.append(pair)
        pairing.of_baseline[call.id] = pairing.of_candidate[other.id] = pair
    return left


def _by_key(calls: Iterable[Call], key: Callable[[Call], int]) -> dict[int, list[Call]]:
    found: dict[int, list[Call]] = {}
    for call in calls:
        found.setdefault(key(call), []).append(call)
    return found


def _values(call: Call) -> Hashable:
    slots = (call.inputs, call.arguments, call.outputs)
    return (call.error, *(frozenset(found.items()) for found in slots))


def _writes(call: Call) -> list[str]:
    """Slots of what a call changed: state, and arguments that it wrote to."""
    return [s for s in call.outputs if s.startswith(STATE_PREFIXES) or s in call.inputs]


def _lasting(records: RankRecords, unpaired: Sequence[Call]) -> set[int]:
    """Identities of unpaired calls that change something lasting, the innermost ones only."""
    of_id = {call.id: call for call in unpaired}
    seen = _first_seen(records.calls)
    found: dict[int, Call] = {}
    for call in unpaired:
        slots = _writes(call)
        if slots and any(_outlives(call, slot, of_id, seen) for slot in slots):
            found[call.id] = call
    around: set[int] = set()
    for call in found.values():
        parent = of_id.get(call.parent)
        while parent is not None and parent.id not in around:
            around.add(parent.id)
            parent = of_id.get(parent.parent)
    return {id(call) for call in found.values() if call.id not in around}


def _outlives(call: Call, slot: str, unpaired: dict[int, Call], seen: dict[int, int]) -> bool:
    """Whether what a call changed was there before the unpaired calls around it began."""
    if slot.startswith(STATE_PREFIXES):
        return True
    outermost = call
    while (parent := unpaired.get(outermost.parent)) is not None:
        outermost = parent
    if outermost is call:
        return True
    old = call.inputs[slot]
    return seen[old] < outermost.begin and not any(
        old in inner.outputs.values()
        for inner in outermost.subtree()
        if inner is not outermost and inner.end < call.begin
    )


def _first_seen(calls: Iterable[Call]) -> dict[int, int]:
    """For each value of a run, the tick at which a call first took or gave it."""
    seen: dict[int, int] = {}
    for call in calls:
        for tick, slots in ((call.begin, call.inputs), (call.end, call.outputs)):
            for value in slots.values():
                if tick < seen.get(value, tick + 1):
                    seen[value] = tick
    return seen
