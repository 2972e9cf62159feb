"""Searches over the records: who produced, consumed or last agreed on a value.

Records carry values, not tensor identities, so dataflow is read from equal fingerprints. Only
fingerprints of bytes that were read are evidence; a state slot (a parameter, a gradient) is also
recognised by name and value, since "no gradient" has no bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from opguard.tools.compare.events import DifferenceEvent, EventKind, UnpairedCall
from opguard.tools.compare.pairing import CallPair
from opguard.tools.compare.records import STATE_PREFIXES, Call, Phase, Side
from opguard.tools.compare.slots import SlotDifference
from opguard.tools.compare.state import RankState


def producers(
    state: RankState, unpaired: Iterable[UnpairedCall], slots: Sequence[SlotDifference]
) -> list[UnpairedCall]:
    """Unpaired calls that produced one of the differing values, in the order given."""
    wanted = {
        Side.BASELINE: {d.slot: d.baseline for d in slots if d.baseline is not None},
        Side.CANDIDATE: {d.slot: d.candidate for d in slots if d.candidate is not None},
    }
    signed = {
        side: {v for v in values.values() if state.fingerprints.is_signed(v)}
        for side, values in wanted.items()
    }
    return [u for u in unpaired if _produces(u.call, wanted[u.side], signed[u.side])]


def _produces(call: Call, wanted: dict[str, int], signed: set[int]) -> bool:
    """Whether a call gives a wanted value that it was not given (as ``state_dict()`` is)."""
    made = signed.intersection(call.outputs.values())
    if not made.issubset(call.inputs.values()):
        return True
    return any(
        slot.startswith(STATE_PREFIXES)
        and call.outputs.get(slot) == identity != call.inputs.get(slot)
        for slot, identity in wanted.items()
    )


def innermost(calls: Sequence[UnpairedCall]) -> list[UnpairedCall]:
    """Drop every call that has another of the same side inside its extent."""
    return [
        u
        for u in calls
        if not any(
            other.side is u.side and u.call.begin < other.call.begin < u.call.end for other in calls
        )
    ]


def first_of_each_side(calls: Sequence[UnpairedCall]) -> tuple[Call | None, Call | None]:
    """The first unpaired call of the baseline and of the candidate."""
    left = next((u.call for u in calls if u.side is Side.BASELINE), None)
    right = next((u.call for u in calls if u.side is Side.CANDIDATE), None)
    return left, right


def innermost_consumer(state: RankState, event: DifferenceEvent) -> DifferenceEvent:
    """The innermost paired call that consumes the value with which the first event differs.

    ``model(x)`` takes a differing value before the layer inside it does, but the layer is the
    place to look at. Inner events count only until something is produced differently.
    """
    end = event.pair.baseline.end
    chosen = event
    for other in state.events:
        if other.position > end or other.kind is not EventKind.INPUT:
            break
        inner, outer = other.pair.baseline, chosen.pair.baseline
        if inner.begin > outer.begin and inner.end < outer.end:
            chosen = other
    return chosen


def consumers(state: RankState, identities: set[int], begin: int, end: float) -> list[CallPair]:
    """Innermost forward pairs between two ticks that take one of the baseline's values."""
    found = [
        pair
        for pair in state.pairing.pairs
        if begin < pair.baseline.begin < end
        and pair.baseline.phase != Phase.BACKWARD
        and pair.baseline.name != "backward"
        and not identities.isdisjoint(pair.baseline.inputs.values())
    ]
    parents = {pair.baseline.parent for pair in found}
    return [pair for pair in found if pair.baseline.id not in parents]


def backward_consumer(state: RankState, event: DifferenceEvent) -> CallPair | None:
    """The forward consumer whose backward produced a gradient that differs first.

    When the gradient of an output differs, but the gradients of all outputs of the call that
    consumed it agree, the backward of that consumer is where both runs parted. With several such
    consumers the last one in forward order is meant: its backward runs first.
    """
    producer = event.pair.baseline
    values = {producer.outputs.get(d.slot.removeprefix("grad.")) for d in event.slots}
    identities = {v for v in values if v is not None and state.fingerprints.is_signed(v)}
    differing = {
        (other.pair.baseline.id, d.slot)
        for other in state.events
        if other.kind is EventKind.GRADIENT
        for d in other.slots
    }
    agreeing = [
        pair
        for pair in consumers(state, identities, producer.end, event.position)
        if not any(
            (pair.baseline.id, f"grad.{slot}") in differing for slot in pair.baseline.outputs
        )
    ]
    return agreeing[-1] if agreeing else None


def unpaired_consumers(state: RankState, event: DifferenceEvent) -> list[UnpairedCall]:
    """The last forward calls on one side only that take an output whose gradient differs first.

    They ran before the gradient arrived, maybe in a later step than what gave the output: of two
    optimizers one may step between a generator's forward and its backward.
    """
    found: list[UnpairedCall] = []
    for side, call in (
        (Side.BASELINE, event.pair.baseline),
        (Side.CANDIDATE, event.pair.candidate),
    ):
        values = {call.outputs.get(d.slot.removeprefix("grad.")) for d in event.slots}
        identities = {v for v in values if v is not None and state.fingerprints.is_signed(v)}
        takers = [
            u
            for u in state.unpaired
            if u.side is side
            and call.end < u.call.begin
            and u.position <= event.position
            and u.call.phase == call.phase
            and not identities.isdisjoint(u.call.inputs.values())
        ]
        found += innermost(takers)[-1:]
    return found


def parameter_consumer(
    state: RankState, backward: Call, slots: Sequence[SlotDifference]
) -> CallPair | None:
    """The forward call that used a parameter whose gradient differs after ``backward``.

    Of several parameters the one used last in the forward comes first in the backward.
    """
    names = {d.slot.removeprefix("grad.") for d in slots if d.slot.startswith("grad.param.")}
    if not names:
        return None
    found = None
    for pair in state.pairing.pairs:
        call = pair.baseline
        if call.begin >= backward.begin:
            break
        if call.step != backward.step or call.phase != Phase.FORWARD:
            continue
        if any(
            slot.startswith("param.") and any(_names_parameter(slot, name) for name in names)
            for slot in call.inputs
        ):
            found = pair
    return found


def _names_parameter(slot: str, known: str) -> bool:
    """Whether a Module's own name of a parameter is the tail of its longest known name."""
    own = slot.removeprefix("param.")
    full = known.removeprefix("param.")
    return full == own or full.endswith("." + own)


def last_equal_producer(state: RankState, event: DifferenceEvent) -> CallPair | None:
    """The last paired call before the event that left an equal value of the differing kind.

    Same state slot where there is one, else the same dtype and shape.
    """
    wanted = next((d for d in event.slots if d.baseline is not None), None)
    if wanted is None or wanted.baseline is None:
        return None
    is_state = wanted.slot.startswith(STATE_PREFIXES)
    for pair in reversed(state.pairing.pairs):
        if pair.baseline.end >= event.position:
            continue
        other = pair.candidate.outputs
        for slot, identity in pair.baseline.outputs.items():
            if other.get(slot) != identity or not state.fingerprints.is_tensor(identity):
                continue
            if (
                slot == wanted.slot
                if is_state
                else state.fingerprints.same_layout(identity, wanted.baseline)
            ):
                return pair
    return None


def moved_generator_apart(state: RankState, generator: str, position: float) -> CallPair | None:
    """The last innermost pair that took an equal generator state and left another one."""
    moved = [
        pair
        for pair in state.pairing.pairs
        if pair.baseline.end < position
        and generator in pair.baseline.rng_before
        and pair.baseline.rng_before.get(generator) == pair.candidate.rng_before.get(generator)
        and pair.baseline.rng_after.get(generator) != pair.candidate.rng_after.get(generator)
    ]
    parents = {pair.baseline.parent for pair in moved}
    innermost = [pair for pair in moved if pair.baseline.id not in parents]
    return innermost[-1] if innermost else None
