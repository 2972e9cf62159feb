"""Pairing of calls: as a tree, by sequence alignment of callsite keys under each paired parent.

Never by a global counter: one call per step that exists on one side only would shift everything
after it. Children of a paired call are aligned per thread, phase and step; a step number is a
label and a tie-break, so where the labels themselves have drifted apart (an extra optimizer step
on one side) the children are aligned without it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

from opguard.tools.compare.keys import CallsiteKeys, PairingBasis
from opguard.tools.compare.place_keys import OperatorKeys, SpotKeys
from opguard.tools.compare.records import Call, CallFlag, RankRecords
from opguard.tools.compare.relations import RelationSource
from opguard.tools.compare.sequence import align_between, align_sequences

MAX_LIFT_LEVELS = 2
"""How many wrapping calls on one side are looked through to find corresponding calls."""

_UNKNOWN_BASIS = PairingBasis(
    RelationSource.INFERRED, "callsite is not in the plan; paired by the callee's name"
)

_OPERATOR_BASIS = PairingBasis(
    RelationSource.EXACT, "same operator in the recorded call, in the order of execution"
)
_OTHER_WAY = PairingBasis(
    RelationSource.INFERRED, "same operator at the same line, which was reached in another way"
)


@dataclass(slots=True, eq=False)
class CallPair:
    """A call of the baseline and the call of the candidate that corresponds to it.

    Attributes:
        in_order: Whether the pair keeps its place in the order of both runs; calls that were
            moved do not, and say nothing about where other calls lie.
        guessed: Whether the calls are in a changed statement, and only their callee texts speak
            for the pair.
    """

    baseline: Call
    candidate: Call
    source: RelationSource
    reason: str
    in_order: bool = True
    guessed: bool = False


@dataclass(slots=True)
class Pairing:
    """Result of pairing one rank.

    Attributes:
        pairs: In the baseline's execution order.
        unpaired_baseline: Calls of the baseline without counterpart, in execution order.
        unpaired_candidate: The same for the candidate.
        of_baseline: Pair by the baseline call's id.
        of_candidate: Pair by the candidate call's id.
    """

    pairs: list[CallPair] = field(default_factory=list)
    unpaired_baseline: list[Call] = field(default_factory=list)
    unpaired_candidate: list[Call] = field(default_factory=list)
    of_baseline: dict[int, CallPair] = field(default_factory=dict)
    of_candidate: dict[int, CallPair] = field(default_factory=dict)


def pair_calls(
    baseline: RankRecords,
    candidate: RankRecords,
    keys: CallsiteKeys,
    spots: SpotKeys | None = None,
) -> Pairing:
    """Pair the calls of one rank.

    A call below an unpaired call has no place on the other side and is unpaired too, unless
    ``_lift`` finds that the unpaired call only wraps what the other side runs directly.
    """
    return _Pairer(baseline, candidate, OperatorKeys(keys, spots or SpotKeys())).run()


class _Pairer:
    """State of one pairing: keys of all calls, and the pairs found so far."""

    def __init__(
        self, baseline: RankRecords, candidate: RankRecords, operators: OperatorKeys
    ) -> None:
        self._roots = (baseline.roots, candidate.roots)
        self._operators = operators
        self._keys = keys = operators.callsites
        sides = (
            (baseline.calls, keys.baseline, operators.spots.baseline),
            (candidate.calls, keys.candidate, operators.spots.candidate),
        )
        self._key_baseline, self._key_candidate = (
            [operators.strict(call, sites, spots) for call in calls]
            for calls, sites, spots in sides
        )
        self._loose_baseline, self._loose_candidate = (
            [operators.loose(call, sites, spots) for call in calls] for calls, sites, spots in sides
        )
        self._result = Pairing()

    def run(self) -> Pairing:
        pending: list[tuple[Sequence[Call], Sequence[Call]]] = [self._roots]
        while pending:
            baseline, candidate = pending.pop()
            if not baseline and not candidate:
                continue
            matches = self._align(baseline, candidate)
            left, right = _remaining(matches, baseline, candidate)
            lifted = self._lift(left, right) if left or right else []
            for x, y in matches:
                self._add(x, y, lifted=False)
                pending.append((x.children, y.children))
            for x, y in lifted:
                self._add(x, y, lifted=True)
                pending.append((x.children, y.children))
            self._unpair(left, right, lifted)
        result = self._result
        self._pair_moved()
        result.pairs.sort(key=lambda pair: pair.baseline.begin)
        result.unpaired_baseline.sort(key=lambda call: call.begin)
        result.unpaired_candidate.sort(key=lambda call: call.begin)
        return result

    def _align(
        self, baseline: Sequence[Call], candidate: Sequence[Call]
    ) -> list[tuple[Call, Call]]:
        """Align siblings by step; without the step labels when that pairs more of them."""
        by_step = self._align_segments(
            baseline, candidate, lambda call: (call.thread, call.phase, call.step)
        )
        if len(by_step) == min(len(baseline), len(candidate)):
            return by_step
        unlabelled = self._align_segments(
            baseline, candidate, lambda call: (call.thread, call.phase)
        )
        return unlabelled if len(unlabelled) > len(by_step) else by_step

    def _align_segments(
        self,
        baseline: Sequence[Call],
        candidate: Sequence[Call],
        segment: Callable[[Call], tuple[int, ...]],
    ) -> list[tuple[Call, Call]]:
        sides: tuple[dict[tuple[int, ...], list[Call]], dict[tuple[int, ...], list[Call]]]
        sides = ({}, {})
        for side, calls in zip(sides, (baseline, candidate), strict=True):
            for call in calls:
                side.setdefault(segment(call), []).append(call)
        matches: list[tuple[Call, Call]] = []
        for label, left in sides[0].items():
            right = sides[1].get(label)
            if right:
                indexes = align_sequences(
                    [self._key_baseline[call.index] for call in left],
                    [self._key_candidate[call.index] for call in right],
                )
                if len(indexes) < min(len(left), len(right)):
                    indexes = align_between(
                        indexes,
                        [self._loose_baseline[call.index] for call in left],
                        [self._loose_candidate[call.index] for call in right],
                    )
                matches += [(left[i], right[j]) for i, j in indexes]
        return matches

    def _lift(self, left: Sequence[Call], right: Sequence[Call]) -> list[tuple[Call, Call]]:
        """Look through unpaired calls that only wrap what the other side runs directly.

        A training loop moved into a function puts every call one level deeper on one side, a
        renamed entry point hides everything below it. Leftover siblings, or the calls inside
        them, are aligned with the calls inside the other side's leftovers. Calls of a shared
        helper could match by chance, so the values decide: the first matched call that takes
        tensors must take equal ones, else nothing is lifted.
        """
        levels_left = list(_levels(left))
        levels_right = list(_levels(right))
        best: list[tuple[Call, Call]] = []
        for x, y in product(levels_left, levels_right):
            if x is levels_left[0] and y is levels_right[0]:
                continue
            if self._share_keys(x, y):
                matches = self._align(x, y)
                if len(matches) > len(best) and _enter_with_equal_values(matches):
                    best = matches
        return best

    def _share_keys(self, left: Sequence[Call], right: Sequence[Call]) -> bool:
        known = {self._key_baseline[call.index] for call in left}
        return any(self._key_candidate[call.index] in known for call in right)

    def _add(self, baseline: Call, candidate: Call, *, lifted: bool) -> None:
        key = self._key_baseline[baseline.index]
        basis = self._keys.basis.get(key, _UNKNOWN_BASIS)
        if key not in self._keys.basis and baseline.flags & candidate.flags & CallFlag.OPERATOR:
            basis = self._operators.basis(baseline) or _OPERATOR_BASIS
            if key != self._key_candidate[candidate.index]:
                basis = _OTHER_WAY
        source, reason = basis.source, basis.reason
        if lifted:
            source = RelationSource.INFERRED
            reason += "; one side runs it inside a call that the other side does not have"
        elif baseline.step != candidate.step:
            source = RelationSource.INFERRED
            reason += f"; step {baseline.step} against {candidate.step}"
        self._register(CallPair(baseline, candidate, source, reason, guessed=basis.guessed))

    def _register(self, pair: CallPair) -> None:
        self._result.pairs.append(pair)
        self._result.of_baseline[pair.baseline.id] = pair
        self._result.of_candidate[pair.candidate.id] = pair

    def _pair_moved(self) -> None:
        """Pair leftover calls of one callsite and step that take and give exactly the same values.

        Such a call was only moved (an initialisation made earlier or later); as a call on one
        side only it would be blamed for values that both sides have. Values decide, so nothing
        that differs can be paired this way.
        """
        result = self._result
        waiting: dict[Hashable, list[Call]] = {}
        for call in result.unpaired_candidate:
            identity = self._identity(self._key_candidate, call)
            if identity is not None:
                waiting.setdefault(identity, []).append(call)
        moved: set[int] = set()
        for call in result.unpaired_baseline:
            identity = self._identity(self._key_baseline, call)
            found = waiting.get(identity) if identity is not None else None
            if found:
                other = found.pop(0)
                pair = CallPair(
                    call, other, RelationSource.INFERRED,
                    "same callsite and same values at another place in the order", in_order=False,
                )  # fmt: skip
                self._register(pair)
                moved |= {id(call), id(other)}
        result.unpaired_baseline = [c for c in result.unpaired_baseline if id(c) not in moved]
        result.unpaired_candidate = [c for c in result.unpaired_candidate if id(c) not in moved]

    def _identity(self, keys: Sequence[int], call: Call) -> Hashable | None:
        """Everything a call takes and gives, or None for a call that gives nothing."""
        if not call.outputs or not call.ended:
            return None
        key = keys[call.index]
        slots = (call.inputs, call.arguments, call.outputs)
        return (
            self._keys.movable.get(key, key), call.step, call.error,
            *(frozenset(found.items()) for found in slots),
        )  # fmt: skip

    def _unpair(
        self, left: Sequence[Call], right: Sequence[Call], lifted: Sequence[tuple[Call, Call]]
    ) -> None:
        """Record leftovers and everything below them, save the subtrees that were lifted out."""
        baseline_lifted = {x.id for x, _ in lifted}
        candidate_lifted = {y.id for _, y in lifted}
        for calls, excluded, unpaired in (
            (left, baseline_lifted, self._result.unpaired_baseline),
            (right, candidate_lifted, self._result.unpaired_candidate),
        ):
            stack = list(calls)
            while stack:
                call = stack.pop()
                if call.id not in excluded:
                    unpaired.append(call)
                    stack.extend(call.children)


def _remaining(
    matches: Sequence[tuple[Call, Call]], baseline: Sequence[Call], candidate: Sequence[Call]
) -> tuple[list[Call], list[Call]]:
    left = {x.id for x, _ in matches}
    right = {y.id for _, y in matches}
    return (
        [call for call in baseline if call.id not in left],
        [call for call in candidate if call.id not in right],
    )


def _enter_with_equal_values(matches: Sequence[tuple[Call, Call]]) -> bool:
    """Whether the first matched calls that take tensors take the same ones."""
    for x, y in matches:
        if x.inputs or y.inputs:
            return x.inputs == y.inputs
    return False


def _levels(calls: Sequence[Call]) -> Iterator[Sequence[Call]]:
    """The calls themselves, then what they run one level deeper, and so on."""
    for _ in range(MAX_LIFT_LEVELS + 1):
        if not calls:
            return
        yield calls
        calls = [child for call in calls for child in call.children]
