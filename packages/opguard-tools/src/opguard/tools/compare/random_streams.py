"""Random generators that are in another state on either side, and where that shows first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from opguard.tools.compare.circumstances import Circumstance, CircumstanceKind
from opguard.tools.compare.fingerprints import FingerprintTable
from opguard.tools.compare.pairing import CallPair
from opguard.tools.compare.records import Call, Phase, RankRecords, Side

Where = Callable[[Side, Call], str]
"""``file:line `text``` of a call."""


def differing_streams(
    pairs: Sequence[CallPair],
    records: Mapping[Side, RankRecords],
    fingerprints: FingerprintTable,
    where: Where,
) -> Iterator[tuple[int, Circumstance]]:
    """For each generator the first paired call that drew from it in different states.

    Only the innermost call that moved a generator counts: one around it may seed the generator
    itself, and then the state before it decides nothing. Nor does a draw count that shows in
    nothing (see ``_matters``). Calls that were moved in the program's order say nothing about the
    stream.

    Args:
        pairs: Paired calls in the baseline's execution order.
        records: All calls of both sides.
        fingerprints: Table of the recorded digests.
        where: Describes a call's place.

    Yields:
        Tick on the baseline's clock, and the circumstance.
    """
    around = {side: _around_draws(records[side].calls) for side in Side}
    first: dict[str, CallPair] = {}
    agreed: dict[str, CallPair] = {}
    for pair in pairs:
        if not pair.in_order:
            continue
        for generator, state in pair.baseline.rng_before.items():
            other = pair.candidate.rng_before.get(generator)
            if other is None or generator in first:
                continue
            if (pair.baseline.id, generator) in around[Side.BASELINE]:
                continue
            if (pair.candidate.id, generator) in around[Side.CANDIDATE]:
                continue
            if state == other:
                agreed[generator] = pair
            elif _matters(pair, generator):
                first[generator] = pair
    for generator, pair in first.items():
        yield (
            pair.baseline.begin,
            _describe(generator, pair, agreed.get(generator), fingerprints, where),
        )


def _matters(pair: CallPair, generator: str) -> bool:
    """Whether the draw of a call can decide what the program computes.

    Libraries draw names and ports from ``random``, which few programs seed, so that one counts
    only where an output differs. A call with others inside, none of which drew, counts under the
    same condition and within one step: a whole training surely gives something else and says
    nothing about its draw.
    """
    sides = (pair.baseline, pair.candidate)
    differs = pair.baseline.outputs != pair.candidate.outputs
    if any(call.children for call in sides):
        return differs and all(
            inner.step == call.step and inner.phase != Phase.OPTIMIZER
            for call in sides
            for inner in call.subtree()
        )
    return differs or generator != "rng.python"


def _around_draws(calls: Sequence[Call]) -> set[tuple[int, str]]:
    """Call id and generator of every call in whose extent another one moved the generator."""
    parents = {call.id: call.parent for call in calls}
    around: set[tuple[int, str]] = set()
    for call in calls:
        for generator in call.rng_before:
            parent = call.parent
            while parent in parents and (parent, generator) not in around:
                around.add((parent, generator))
                parent = parents[parent]
    return around


def _describe(
    generator: str,
    pair: CallPair,
    agreed: CallPair | None,
    fingerprints: FingerprintTable,
    where: Where,
) -> Circumstance:
    place = where(Side.BASELINE, pair.baseline)
    if agreed is None:
        cause = (
            "it differs from its first recorded use on: another seed, or draws before that were "
            "not recorded"
        )
    else:
        cause = f"it was last found in the same state by {where(Side.BASELINE, agreed.baseline)}"
    left, right = (
        fingerprints[call.rng_before[generator]].describe()
        for call in (pair.baseline, pair.candidate)
    )
    return Circumstance(
        CircumstanceKind.RANDOM_STREAM,
        generator,
        f"{generator} is in another state where {place} draws; {cause}",
        left,
        right,
        step=pair.baseline.step,
        calls=(pair.baseline, pair.candidate),
    )
