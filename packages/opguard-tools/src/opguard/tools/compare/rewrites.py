"""Rewritten code: pairs that mean nothing, because the values contradict them.

Calls of one callsite may come in another order on both sides, and calls in a changed statement are
only guessed to correspond, from their callee texts: code rewritten to do the same with other
operations gives ``~keep`` of one version against ``~future`` of the other. Such a pair is
withdrawn, and its calls are unpaired; were they to matter, their values would still tie them to
whatever takes a different value later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set

from opguard.tools.compare.fingerprints import FingerprintTable
from opguard.tools.compare.harmless import StepValues
from opguard.tools.compare.pairing import CallPair, Pairing
from opguard.tools.compare.slots import PairDifference

Differences = Mapping[int, PairDifference]


def mixed_up_pairs(
    pairing: Pairing,
    differences: Differences,
    values: StepValues,
    fingerprints: FingerprintTable,
) -> set[int]:
    """Pairs that take other values than each other, inside a call whose result agrees.

    Each side's value is on the other side too, so that the pair is a mix-up and not a
    difference; and the enclosing call gives equal values, so that nothing came of it.

    Returns:
        Numbers of the baseline's calls.
    """
    return _withdrawable(
        pairing,
        differences,
        lambda pair: (
            _mixed_up(pair, differences, values, fingerprints)
            and _inside_equal_result(pair, pairing, differences, fingerprints)
        ),
    )


def immaterial_guesses(
    pairing: Pairing,
    differences: Differences,
    values: StepValues,
    fingerprints: FingerprintTable,
) -> set[int]:
    """Guessed pairs that would be withdrawn if nothing else differed in the whole run.

    Either is enough here: a mix-up of values, or an enclosing call whose result agrees. A call
    that changed one of its arguments is not meant: the argument outlives the enclosing call,
    whatever that returns (a moving average of weights, say, that nothing reads until the end).

    Returns:
        Numbers of the baseline's calls.
    """
    return _withdrawable(
        pairing,
        differences,
        lambda pair: (
            pair.guessed
            and (
                _mixed_up(pair, differences, values, fingerprints)
                or (
                    not _changes_an_argument(pair, differences)
                    and _inside_equal_result(pair, pairing, differences, fingerprints)
                )
            )
        ),
    )


def _withdrawable(
    pairing: Pairing, differences: Differences, contradicted: Callable[[CallPair], bool]
) -> set[int]:
    """Differing pairs that are contradicted, and what differs below them.

    The calls inside two calls that do not correspond do not correspond either, whatever
    statements they are in. Pairs come in execution order, so parents are decided first.
    """
    found: set[int] = set()
    for pair in pairing.pairs:
        call = pair.baseline
        if call.id in differences and (call.parent in found or contradicted(pair)):
            found.add(call.id)
    return found


def _mixed_up(
    pair: CallPair, differences: Differences, values: StepValues, fingerprints: FingerprintTable
) -> bool:
    """Whether tensor inputs differ and each of the differing values is on the other side too."""
    tensors = [
        slot
        for slot in differences[pair.baseline.id].inputs
        if slot.baseline is not None
        and slot.candidate is not None
        and fingerprints.is_tensor(slot.baseline)
    ]
    return bool(tensors) and all(values.exchanged(pair, slot) for slot in tensors)


def _changes_an_argument(pair: CallPair, differences: Differences) -> bool:
    """Whether a differing output is an argument that the call wrote to."""
    outputs = differences[pair.baseline.id].outputs
    return any(slot.slot in pair.baseline.inputs for slot in outputs)


def _inside_equal_result(
    pair: CallPair, pairing: Pairing, differences: Differences, fingerprints: FingerprintTable
) -> bool:
    """Whether the call around a pair returns at least one tensor and agrees in everything.

    Only the function that the statement is in: what it returns is what the statement was for.
    That a function further out returns something equal says nothing of what was kept elsewhere.
    """
    parent = pairing.of_baseline.get(pair.baseline.parent)
    if parent is None or parent.baseline.id in differences:
        return False
    returned = (
        identity for slot, identity in parent.baseline.outputs.items() if slot.startswith("out")
    )
    return any(map(fingerprints.is_tensor, returned))


def withdraw(pairing: Pairing, calls: Set[int]) -> Pairing:
    """The pairing without the pairs of some of the baseline's calls."""
    if not calls:
        return pairing
    kept = [pair for pair in pairing.pairs if pair.baseline.id not in calls]
    gone = [pair for pair in pairing.pairs if pair.baseline.id in calls]
    return Pairing(
        pairs=kept,
        unpaired_baseline=sorted(
            [*pairing.unpaired_baseline, *(pair.baseline for pair in gone)],
            key=lambda call: call.begin,
        ),
        unpaired_candidate=sorted(
            [*pairing.unpaired_candidate, *(pair.candidate for pair in gone)],
            key=lambda call: call.begin,
        ),
        of_baseline={pair.baseline.id: pair for pair in kept},
        of_candidate={pair.candidate.id: pair for pair in kept},
    )
