"""When recorded differences show no difference between the runs at all.

Origins are looked for only when some value differs. Three things look like differences call by
call and are none: a gradient, or an unused parameter, that exists on one side only while every
value that both sides have agrees; and the same calls made in another order, while each side has
the values of the other in the same step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from opguard.tools.compare.events import DifferenceEvent
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
        (event.pair, slot.baseline, slot.candidate)
        for event in events
        for slot in event.slots
        if slot.baseline is not None
        and slot.candidate is not None
        and not is_gradient_presence(slot, fingerprints)
    ]
    if not decisive:
        return False
    left = _values_by_step(baseline.calls)
    right = _values_by_step(candidate.calls)
    return any(
        x not in right.get(pair.candidate.step, ()) or y not in left.get(pair.baseline.step, ())
        for pair, x, y in decisive
    )


def is_gradient_presence(slot: SlotDifference, fingerprints: FingerprintTable) -> bool:
    """Whether a gradient exists on one side and is None on the other.

    By itself this says that one run asked autograd for more, or that its ``zero_grad`` keeps
    zeros, which decides nothing.
    """
    present = {
        fingerprints.is_tensor(identity)
        for identity in (slot.baseline, slot.candidate)
        if identity is not None
    }
    return slot.slot.startswith("grad.") and present == {True, False}


def _values_by_step(calls: Iterable[Call]) -> dict[int, set[int]]:
    """Every value recorded in each step, whatever call or slot it belongs to."""
    values: dict[int, set[int]] = {}
    for call in calls:
        step = values.setdefault(call.step, set())
        step.update(call.inputs.values(), call.arguments.values(), call.outputs.values())
        step.update(record.fingerprint for record in call.gradients)
    return values
