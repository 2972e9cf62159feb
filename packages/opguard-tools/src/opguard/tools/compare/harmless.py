"""When recorded differences show no difference between the runs at all.

Origins are looked for only when some value differs. Three things look like differences call by
call and are none: a gradient, or an unused parameter, that exists on one side only while every
value that both sides have agrees; and the same calls made in another order, while each side has
the values of the other in the same step.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

from opguard.tools.compare.events import DifferenceEvent
from opguard.tools.compare.fingerprints import FingerprintTable
from opguard.tools.compare.pairing import CallPair
from opguard.tools.compare.records import Call, RankRecords, Role
from opguard.tools.compare.slots import SlotDifference


class StepValues:
    """Every value recorded in each step of both sides; collected when first asked for."""

    def __init__(self, baseline: RankRecords, candidate: RankRecords) -> None:
        """Keep the records of both sides."""
        self._baseline = baseline
        self._candidate = candidate

    @cached_property
    def _sides(self) -> tuple[dict[int, set[int]], dict[int, set[int]]]:
        return _values_by_step(self._baseline.calls), _values_by_step(self._candidate.calls)

    def exchanged(self, pair: CallPair, slot: SlotDifference) -> bool:
        """Whether what each side has in a slot is also on the other side, in the pair's step."""
        left, right = self._sides
        return (slot.baseline is None or slot.baseline in right.get(pair.candidate.step, ())) and (
            slot.candidate is None or slot.candidate in left.get(pair.baseline.step, ())
        )


def some_value_differs(
    events: Sequence[DifferenceEvent], values: StepValues, fingerprints: FingerprintTable
) -> bool:
    """Whether at least one event shows a value that the other run did not have in that step."""
    return any(
        _is_decisive(slot, fingerprints) and not values.exchanged(event.pair, slot)
        for event in events
        for slot in event.slots
    )


def _is_decisive(slot: SlotDifference, fingerprints: FingerprintTable) -> bool:
    """Whether a differing slot can show that a value differs.

    On one side only, an output can: the call changed a parameter there and not on the other side.
    An input cannot: the other side just has no such parameter.
    """
    if slot.baseline is None or slot.candidate is None:
        identity = slot.baseline if slot.candidate is None else slot.candidate
        return (
            slot.role is Role.OUTPUT and identity is not None and fingerprints.is_tensor(identity)
        )
    return not is_gradient_presence(slot, fingerprints)


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
