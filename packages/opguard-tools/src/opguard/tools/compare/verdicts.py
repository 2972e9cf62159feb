"""The relation of each paired call, with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from opguard.tools.compare.fingerprints import FingerprintTable
from opguard.tools.compare.pairing import CallPair
from opguard.tools.compare.relations import Relation, RelationSource
from opguard.tools.compare.slots import PairDifference, SlotDifference


@dataclass(frozen=True, slots=True)
class SlotRelations:
    """How many tensor slots were set side by side, and with which result.

    Attributes:
        compared: Tensor slots that both sides recorded.
        metadata_only: Of the equal ones, those whose bytes neither side read.
    """

    compared: int = 0
    equal: int = 0
    different: int = 0
    incompatible: int = 0
    metadata_only: int = 0

    def __add__(self, other: SlotRelations) -> SlotRelations:
        """Sum of two counts."""
        return SlotRelations(
            self.compared + other.compared,
            self.equal + other.equal,
            self.different + other.different,
            self.incompatible + other.incompatible,
            self.metadata_only + other.metadata_only,
        )


@dataclass(frozen=True, slots=True)
class PairVerdict:
    """A paired call with the relation of its two sides.

    Attributes:
        difference: What differs and counts.
        slots: Counts over the pair's tensor slots.
    """

    pair: CallPair
    relation: Relation
    reason: str
    difference: PairDifference
    slots: SlotRelations

    @property
    def source(self) -> RelationSource:
        """Whether the pair itself is exact or inferred."""
        return self.pair.source


def judge_pair(
    pair: CallPair,
    difference: PairDifference,
    fingerprints: FingerprintTable,
    *,
    harmless: bool,
) -> PairVerdict:
    """Give a pair its relation.

    A call that did not end on both sides is incomplete whatever its inputs say; it is
    incompatible when no differing slot could be set side by side; otherwise one counted
    difference, or one gradient that differs, makes it different. ``harmless`` says that no value
    differs in the whole run: then a difference at this pair is a matter of order or presence.
    """
    slots = _count_slots(pair, fingerprints)
    relation, reason = _relation(pair, difference, slots, fingerprints)
    if harmless and relation in (Relation.DIFFERENT, Relation.INCOMPATIBLE):
        relation = Relation.EQUAL
        reason = f"no value differs: each side has the other's values in this step ({reason})"
    return PairVerdict(pair, relation, reason, difference, slots)


def _relation(
    pair: CallPair,
    difference: PairDifference,
    slots: SlotRelations,
    fingerprints: FingerprintTable,
) -> tuple[Relation, str]:
    if not (pair.baseline.ended and pair.candidate.ended):
        sides = " and ".join(
            name
            for name, call in (("baseline", pair.baseline), ("candidate", pair.candidate))
            if not call.ended
        )
        return Relation.INCOMPLETE, f"the call did not end in the {sides}"
    differing = difference.inputs + difference.outputs
    if differing:
        relations = {relate_slot(slot, fingerprints) for slot in differing}
        relation = (
            Relation.INCOMPATIBLE if relations == {Relation.INCOMPATIBLE} else Relation.DIFFERENT
        )
        return relation, _name_slots(difference)
    gradients = _differing_gradients(pair)
    if gradients:
        return Relation.DIFFERENT, f"gradients differ: {', '.join(gradients)}"
    if slots.metadata_only:
        return Relation.EQUAL, (
            f"{slots.metadata_only} of {slots.compared} tensors agree in metadata only: "
            "their values were not read"
        )
    return Relation.EQUAL, f"{slots.compared} tensors agree"


def relate_slot(slot: SlotDifference, fingerprints: FingerprintTable) -> Relation:
    """Relation of a slot that differs; a slot on one side only is unpaired."""
    if slot.baseline is None or slot.candidate is None:
        return Relation.UNPAIRED
    return fingerprints.relation(slot.baseline, slot.candidate)


def _name_slots(difference: PairDifference) -> str:
    parts = [
        f"{name} differ: {', '.join(d.slot for d in found[:3])}{', …' if len(found) > 3 else ''}"
        for name, found in (("inputs", difference.inputs), ("outputs", difference.outputs))
        if found
    ]
    return "; ".join(parts)


def _differing_gradients(pair: CallPair) -> list[str]:
    if not (pair.baseline.gradients and pair.candidate.gradients):
        return []
    left = {(g.slot, g.arrival): g.fingerprint for g in pair.baseline.gradients}
    right = {(g.slot, g.arrival): g.fingerprint for g in pair.candidate.gradients}
    return sorted({slot for (slot, n), v in left.items() if right.get((slot, n), v) != v})


def _count_slots(pair: CallPair, fingerprints: FingerprintTable) -> SlotRelations:
    x, y = pair.baseline, pair.candidate
    total = _count(x.inputs, y.inputs, fingerprints)
    total += _count(x.outputs, y.outputs, fingerprints)
    if x.gradients and y.gradients:
        left = {f"{g.slot}#{g.arrival}": g.fingerprint for g in x.gradients}
        right = {f"{g.slot}#{g.arrival}": g.fingerprint for g in y.gradients}
        total += _count(left, right, fingerprints)
    return total


def _count(
    baseline: Mapping[str, int], candidate: Mapping[str, int], fingerprints: FingerprintTable
) -> SlotRelations:
    """Count the tensor slots of both mappings by relation."""
    compared = equal = different = incompatible = metadata_only = 0
    for slot, identity in baseline.items():
        other = candidate.get(slot)
        if other is None or not fingerprints.is_tensor(identity):
            continue
        compared += 1
        if identity == other:
            equal += 1
            metadata_only += not fingerprints.is_signed(identity)
        elif fingerprints.relation(identity, other) is Relation.DIFFERENT:
            different += 1
        else:
            incompatible += 1
    return SlotRelations(compared, equal, different, incompatible, metadata_only)
