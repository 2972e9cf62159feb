"""When recorded differences show no difference between the runs at all.

Origins are looked for only when some value differs. Two things look like differences call by call
and are none: a gradient that exists on one side only, while every value agrees, and the same calls
made in another order, while each side has the values of the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from opguard.tools.compare.events import DifferenceEvent, EventKind
from opguard.tools.compare.fingerprints import FingerprintTable
from opguard.tools.compare.records import Call, RankRecords
from opguard.tools.compare.slots import SlotDifference


def some_value_differs(
    events: Sequence[DifferenceEvent],
    baseline: RankRecords,
    candidate: RankRecords,
    fingerprints: FingerprintTable,
) -> bool:
    """Whether at least one event shows a value that the other run did not have in that step."""
    decisive = [
        (event, slot)
        for event in events
        if event.kind is not EventKind.GRADIENT_MISSING
        for slot in event.slots
        if not is_gradient_presence(slot, fingerprints)
    ]
    if not decisive:
        return False
    left = _values_by_step(baseline.calls)
    right = _values_by_step(candidate.calls)
    return any(
        slot.baseline is None
        or slot.candidate is None
        or slot.baseline not in right.get(event.pair.candidate.step, ())
        or slot.candidate not in left.get(event.pair.baseline.step, ())
        for event, slot in decisive
    )


def is_gradient_presence(slot: SlotDifference, fingerprints: FingerprintTable) -> bool:
    """Whether a gradient exists on one side and is absent or None on the other.

    By itself this says that one run asked autograd for more, or that ``zero_grad`` keeps zeros
    instead of None, which decides nothing.
    """
    if not slot.slot.startswith("grad."):
        return False
    present = [
        identity is not None and fingerprints.is_tensor(identity)
        for identity in (slot.baseline, slot.candidate)
    ]
    return present[0] != present[1]


def _values_by_step(calls: Iterable[Call]) -> dict[int, set[int]]:
    """Every value recorded in each step, whatever call or slot it belongs to."""
    values: dict[int, set[int]] = {}
    for call in calls:
        step = values.setdefault(call.step, set())
        step.update(call.inputs.values(), call.arguments.values(), call.outputs.values())
        step.update(record.fingerprint for record in call.gradients)
    return values
