"""Origins: the places where equal inputs gave different outputs.

One function per kind of event decides whether the event is an origin or only inherited an earlier
difference. The rules hold on real bugs; each has a test on a hand-made capture.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set

from opguard.tools.compare import dataflow
from opguard.tools.compare.events import DifferenceEvent, EventKind, UnpairedCall
from opguard.tools.compare.origin import Origin, OriginKind
from opguard.tools.compare.pairing import CallPair
from opguard.tools.compare.records import Call, Role, Side
from opguard.tools.compare.relations import Relation, RelationSource
from opguard.tools.compare.slots import RAISED_SLOT, RETURNED, SlotDifference
from opguard.tools.compare.state import RankState

Place = tuple[int, str]
"""A baseline call's id and a slot of that call."""


def find_origins(state: RankState, varying: Set[Place] = frozenset()) -> list[Origin]:
    """Origins of one rank, in execution order.

    Only the first difference of the run can be unexplained: whatever comes later may have been
    inherited from it along paths that no record shows.

    Args:
        state: The pairs of the rank and their differences.
        varying: Places that differ between equal runs as well. What is first after these can be
            unexplained too, since equal runs show what those differences reach.
    """
    origins: list[Origin] = []
    firsts = {0, _first_steady(state.events, varying)}
    seen: set[tuple[int | None, int | None]] = set()
    for index, event in enumerate(state.events):
        is_first = index in firsts
        handed_over = _hands_over(event, seen)
        seen.update((slot.baseline, slot.candidate) for slot in event.slots)
        if handed_over:
            continue
        if event.kind is EventKind.OUTPUT:
            origin = _output_differs(state, event, is_first=is_first)
        elif not is_first:
            continue
        elif event.kind is EventKind.INPUT:
            origin = _first_input_differs(state, event)
        elif event.kind is EventKind.GRADIENT:
            origin = _first_gradient_differs(state, event)
        else:
            origin = _gradient_missing(state, event)
        if origin is not None:
            origins.append(origin)
    return origins


def _first_steady(events: Sequence[DifferenceEvent], varying: Set[Place]) -> int:
    """Index of the first event with a slot that does not vary between equal runs."""
    for index, event in enumerate(events):
        if any((event.pair.baseline.id, slot.slot) not in varying for slot in event.slots):
            return index
    return 0


def _hands_over(event: DifferenceEvent, seen: Set[tuple[int | None, int | None]]) -> bool:
    """Whether a call only fetches values that both sides are known to hold differently.

    An iterator's ``__next__`` or a getter takes no tensor and returns one that was made before.
    When the very same two values stood against each other at an earlier call, this one inherits
    the difference. A loader that yields other data is not meant: its values were not set side by
    side before.
    """
    if event.kind is not EventKind.OUTPUT:
        return False
    pair = event.pair
    if pair.baseline.inputs or pair.candidate.inputs:
        return False
    return all((slot.baseline, slot.candidate) in seen for slot in event.slots)


def _output_differs(state: RankState, event: DifferenceEvent, *, is_first: bool) -> Origin | None:
    """An output differs: an origin when nothing recorded explains it.

    Not when an input differs (inherited), nor when something inside differs (the inner call is
    the origin, and the calls around it only pass the difference on). A generator state that
    differs explains the output; then the call that moved the generator is looked for instead.
    """
    pair = event.pair
    if state.difference(pair).inputs:
        return None
    generator = _differing_generator(pair)
    if generator is not None and not state.paired_call_differs_inside(pair):
        return _generator_differs(state, event, generator) if is_first else None
    if state.differs_inside(pair):
        return None
    inside = state.unpaired_inside(pair)
    if inside and pair.baseline.compiled == pair.candidate.compiled:
        return _unpaired_inside(state, event, inside)
    return _equal_inputs(state, event)


def _equal_inputs(state: RankState, event: DifferenceEvent) -> Origin:
    """The plain case: inputs equal, outputs differ, and nothing inside tells more.

    When only one side's callee is compiled, calls inside are visible on the other side alone, and
    say nothing about the difference.
    """
    pair = event.pair
    consumer = dataflow.parameter_consumer(state, pair.baseline, event.slots)
    if pair.baseline.name == "backward" and consumer is not None:
        why = (
            "inputs of the backward call are equal, a parameter's gradient differs; the parameter "
            f"was used last in the forward by {state.where(Side.BASELINE, consumer.baseline)}"
        )
    elif pair.baseline.compiled != pair.candidate.compiled:
        compiled = Side.BASELINE if pair.baseline.compiled else Side.CANDIDATE
        why = f"inputs equal, outputs differ; only the {compiled}'s callee is compiled"
    else:
        why = _raised(state, event.slots) or "inputs equal, outputs differ"
    return _of_pair(state, OriginKind.OUTPUTS_DIFFER, event.position, pair, event.slots, why)


def _raised(state: RankState, slots: Sequence[SlotDifference]) -> str | None:
    """What happened on each side where one of them raised; None where none did."""
    for slot in slots:
        if slot.slot == RAISED_SLOT and slot.baseline is not None and slot.candidate is not None:
            left, right = (
                text if text == RETURNED else f"raised {text}"
                for text in (state.fingerprints[i].note for i in (slot.baseline, slot.candidate))
            )
            return f"inputs equal; the baseline {left} and the candidate {right}"
    return None


def _differing_generator(pair: CallPair) -> str | None:
    """A generator that both sides moved in this call itself, from different states.

    Where calls inside made all of the moves, the state is their input, and not that of the call
    around them.
    """
    after = pair.candidate.rng_before
    for generator, before in pair.baseline.rng_before.items():
        if generator not in after or after[generator] == before:
            continue
        if not all(_moved_inside(call, generator) for call in (pair.baseline, pair.candidate)):
            return generator
    return None


def _moved_inside(call: Call, generator: str) -> bool:
    """Whether calls inside took a generator all the way from a call's begin to its end."""
    at = call.rng_before[generator]
    for child in call.children:
        if generator in child.rng_before:
            if child.rng_before[generator] != at:
                return False
            at = child.rng_after.get(generator, at)
    return at == call.rng_after.get(generator)


def _generator_differs(state: RankState, event: DifferenceEvent, generator: str) -> Origin:
    """The first differing output drew from a generator in another state: find who moved it.

    An unpaired call that moved it before, else the last paired call that found it equal and
    left it different, else it was moved by something that was not recorded.
    """
    slot = SlotDifference(
        generator,
        Role.RNG_BEFORE,
        event.pair.baseline.rng_before[generator],
        event.pair.candidate.rng_before[generator],
    )
    consumer = state.where(Side.BASELINE, event.pair.baseline)
    movers = [
        u for u in state.unpaired if u.position < event.position and generator in u.call.rng_before
    ]
    if movers:
        why = f"this call exists on one side only and moved {generator}, from which {consumer} drew"
        return _of_unpaired(state, event, movers[-1:], (slot,), why)
    pair = dataflow.moved_generator_apart(state, generator, event.position)
    if pair is not None:
        why = f"found {generator} in the same state and left it in another; {consumer} drew from it"
        kind = OriginKind.OUTPUTS_DIFFER
        return _of_pair(state, kind, event.position, pair, (slot,), why, event.pair)
    why = f"{generator} is in another state here, and no recorded call moved it apart"
    kind = OriginKind.UNEXPLAINED_INPUT
    return _of_pair(state, kind, event.position, event.pair, (slot,), why)


def _unpaired_inside(
    state: RankState, event: DifferenceEvent, inside: Sequence[UnpairedCall]
) -> Origin:
    """Equal inputs, different outputs, and only unpaired calls lie inside.

    On each side the innermost unpaired call whose output is the differing value, else that
    side's first; both sides are named when both have one.
    """
    chosen = dataflow.innermost(dataflow.producers(state, inside, event.slots))
    sides = {u.side for u in chosen}
    chosen += [u for u in inside if u.side not in sides]
    enclosing = state.where(Side.BASELINE, event.pair.baseline)
    why = f"calls on one side only, inside {enclosing}, which takes equal inputs and differs"
    return _of_unpaired(state, event, chosen, event.slots, why)


def _first_input_differs(state: RankState, event: DifferenceEvent) -> Origin:
    """The first difference is an input: nobody is recorded to have produced it differently.

    An unpaired call that ended earlier in the step is named only when it produced the very value,
    the outermost one where they nest, for its statement is what the other side lacks. Else the
    consumer is the origin, and the nearest unpaired call is mentioned.
    """
    event = dataflow.innermost_consumer(state, event)
    pair, slots = event.pair, event.slots
    takes = {Side.BASELINE: pair.baseline, Side.CANDIDATE: pair.candidate}
    before = [
        u
        for u in state.unpaired
        if u.call.end < takes[u.side].begin and u.call.step == takes[u.side].step
    ]
    consumer = state.where(Side.BASELINE, pair.baseline)
    flow = dataflow.producers(state, _just_before(state, takes), slots)
    if flow:
        why = f"this call exists on one side only and produced what {consumer} takes differently"
        return _of_unpaired(state, event, flow, slots, why)
    reasons = [_describe_input(state, slots)]
    producer = dataflow.last_equal_producer(state, event)
    if producer is not None:
        reasons.append(f"last equal producer: {state.where(Side.BASELINE, producer.baseline)}")
    if before:
        nearest = before[-1]
        where = state.where(nearest.side, nearest.call)
        reasons.append(f"nearest call on one side only: {where} ({nearest.side})")
    why = "; ".join(reasons)
    return _of_pair(state, OriginKind.UNEXPLAINED_INPUT, event.position, pair, slots, why)


def _just_before(state: RankState, takes: Mapping[Side, Call]) -> list[UnpairedCall]:
    """Unpaired calls of a consumer's step that ended before it; then the last updates of weights.

    An optimizer's step changes the number, so that what it left is consumed under the next one.
    """
    ended = [u for u in state.unpaired if u.call.end < takes[u.side].begin]
    same = [u for u in ended if u.call.step == takes[u.side].step]
    stepped = [
        u
        for u in ended
        if u.call.step == takes[u.side].step - 1
        and any(slot.startswith(("param.", "state.")) for slot in u.call.outputs)
    ]
    return same + stepped


def _describe_input(state: RankState, slots: Sequence[SlotDifference]) -> str:
    """Say what differs first, with the deciding value when it is not a tensor."""
    for slot in slots:
        given = [i for i in (slot.baseline, slot.candidate) if i is not None]
        if not any(state.fingerprints.is_tensor(identity) for identity in given):
            left, right = (
                "absent" if i is None else state.fingerprints[i].describe()
                for i in (slot.baseline, slot.candidate)
            )
            return (
                f"{slot.slot} is {left} in the baseline and {right} in the candidate, "
                "with no recorded difference before"
            )
    return f"{slots[0].slot} differs with no recorded difference before"


def _first_gradient_differs(state: RankState, event: DifferenceEvent) -> Origin:
    """A gradient of an output differs first: the backward of the call that consumed the output.

    Forward values agree and so do the gradients that reached the consumer, so its backward made
    the difference.
    """
    consumer = dataflow.backward_consumer(state, event)
    produced = state.where(Side.BASELINE, event.pair.baseline)
    if consumer is None:
        takers = dataflow.unpaired_consumers(state, event)
        if takers:
            why = f"a call on one side only takes the output of {produced}, whose gradient differs"
            return _of_unpaired(state, event, takers, event.slots, why)
        why = f"the gradient that reached the output of {produced} differs with no cause recorded"
        kind = OriginKind.UNEXPLAINED_INPUT
        return _of_pair(state, kind, event.position, event.pair, event.slots, why)
    why = (
        f"gradients of its outputs are equal, the gradient it passed back to {produced} differs: "
        "its backward"
    )
    kind = OriginKind.OUTPUTS_DIFFER
    return _of_pair(state, kind, event.position, consumer, event.slots, why, event.pair)


def _gradient_missing(state: RankState, event: DifferenceEvent) -> Origin:
    """A gradient on one side only comes first, and values differ later.

    A call on one side only that takes the output, such as a ``detach()``, is why.
    """
    has = Side.BASELINE if event.slots[0].baseline is not None else Side.CANDIDATE
    takers = dataflow.unpaired_consumers(state, event)
    if takers:
        produced = state.where(Side.BASELINE, event.pair.baseline)
        why = (
            f"only the {has} computed a gradient for the output of {produced}, which this call on "
            "one side only takes"
        )
        return _of_unpaired(state, event, takers, event.slots, why)
    why = f"only the {has} computed a gradient for this output"
    return _of_pair(state, OriginKind.UNPAIRED, event.position, event.pair, event.slots, why)


def _of_pair(
    state: RankState,
    kind: OriginKind,
    position: float,
    pair: CallPair,
    slots: tuple[SlotDifference, ...],
    why: str,
    slots_of: CallPair | None = None,
) -> Origin:
    """Make an origin at a pair; incompatible when no slot could be set side by side at all."""
    if kind is OriginKind.OUTPUTS_DIFFER and all(_incompatible(state, d) for d in slots):
        kind = OriginKind.INCOMPATIBLE
        why += "; dtype, shape or layout differ, so values could not be set side by side"
    if pair.source is RelationSource.INFERRED:
        why += f" (pair inferred: {pair.reason})"
    return Origin(
        kind,
        position,
        pair.baseline,
        pair.candidate,
        slots,
        why,
        pair.source,
        slots_of=slots_of,
    )


def _incompatible(state: RankState, slot: SlotDifference) -> bool:
    if slot.baseline is None or slot.candidate is None:
        return False
    return state.fingerprints.relation(slot.baseline, slot.candidate) is Relation.INCOMPATIBLE


def _of_unpaired(
    state: RankState,
    event: DifferenceEvent,
    chosen: Sequence[UnpairedCall],
    slots: tuple[SlotDifference, ...],
    why: str,
) -> Origin:
    """Make an origin of the first chosen call of each side, shown by slots of the event's pair."""
    baseline, candidate = dataflow.first_of_each_side(chosen)
    return Origin(
        OriginKind.UNPAIRED, event.position, baseline, candidate, slots, why, slots_of=event.pair
    )
