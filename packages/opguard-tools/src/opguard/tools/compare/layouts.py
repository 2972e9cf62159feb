"""Captures whose fingerprints were taken with different numbers of regions.

Signatures of different layouts cannot be set side by side, so no tensor says anything. That is one
fact about the captures, not a difference at every call, and it must not read as "nothing differs".

Source: fingerprint spec F11; protocol G4 states the same rule for reviewed pairs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from opguard.tools.compare.fingerprints import FingerprintTable
from opguard.tools.compare.origin import Origin, OriginKind
from opguard.tools.compare.pairing import CallPair
from opguard.tools.compare.records import Role
from opguard.tools.compare.slots import SlotDifference


@dataclass(frozen=True, slots=True)
class LayoutMismatch:
    """The first slot whose signatures have different numbers of regions."""

    pair: CallPair
    slot: SlotDifference
    baseline_regions: int
    candidate_regions: int


def find_layout_mismatch(
    pairs: Iterable[CallPair], fingerprints: FingerprintTable
) -> LayoutMismatch | None:
    """Compare the region counts of the first slot that both sides read.

    A capture has one layout throughout, so one slot decides.
    """
    for pair in pairs:
        for role, left, right in (
            (Role.INPUT, pair.baseline.inputs, pair.candidate.inputs),
            (Role.OUTPUT, pair.baseline.outputs, pair.candidate.outputs),
        ):
            for slot, identity in left.items():
                other = right.get(slot)
                if other is None:
                    continue
                if not (fingerprints.is_signed(identity) and fingerprints.is_signed(other)):
                    continue
                x, y = fingerprints[identity].regions, fingerprints[other].regions
                if x == y:
                    return None
                difference = SlotDifference(slot, role, identity, other)
                return LayoutMismatch(pair, difference, x, y)
    return None


def mismatch_origin(mismatch: LayoutMismatch) -> Origin:
    """The single origin of a comparison that could not be made."""
    pair = mismatch.pair
    why = (
        f"fingerprints have {mismatch.baseline_regions} regions in the baseline and "
        f"{mismatch.candidate_regions} in the candidate, so no tensor could be compared; trace "
        "both sides with the same OPGUARD_XOR_REGIONAL"
    )
    return Origin(
        OriginKind.INCOMPATIBLE,
        pair.baseline.begin,
        pair.baseline,
        pair.candidate,
        (mismatch.slot,),
        why,
        pair.source,
    )
