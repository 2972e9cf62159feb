"""Further runs of the baseline: which differences also lie between equal runs.

A program that does not repeat itself bit by bit differs from any other program as well. What
differs between equal runs of the baseline is set apart, so that the first origin is one that the
candidate can be asked about.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from opguard.tools.compare.capture import CaptureView
from opguard.tools.compare.circumstances import Circumstance, CircumstanceKind
from opguard.tools.compare.context import with_circumstances
from opguard.tools.compare.engine import compare_keyed
from opguard.tools.compare.errors import UnequalRepeatError
from opguard.tools.compare.keys import (
    CallsiteKeys,
    SourceAlignment,
    callsite_keys,
    keys_of_one_plan,
)
from opguard.tools.compare.origin import Origin
from opguard.tools.compare.origins import Place
from opguard.tools.compare.ranks import first_over_ranks
from opguard.tools.compare.records import NEVER_ENDED, Call, Role
from opguard.tools.compare.results import (
    Comparison,
    Repeatability,
    UnrepeatableCallsite,
    UnrepeatableOrigin,
)


@dataclass(slots=True)
class _EqualRuns:
    """What lies between the baseline and its repeats.

    Attributes:
        origins: Per callsite id, the numbers of the runs with an origin there.
        places: Per rank, by call and slot, the numbers of the runs in which the slot differs.
        first_calls: Per callsite id, rank and call of its first origin, and why it is one.
        ranks: Per callsite id, the ranks with an origin there.
        differing: Numbers of the runs that differ at all.
        circumstances: What differs around the equal runs.
    """

    runs: int = 0
    origins: dict[Hashable, set[int]] = field(default_factory=dict)
    places: dict[int, dict[Place, set[int]]] = field(default_factory=dict)
    first_calls: dict[Hashable, tuple[int, Call, str]] = field(default_factory=dict)
    ranks: dict[Hashable, set[int]] = field(default_factory=dict)
    differing: set[int] = field(default_factory=set)
    circumstances: list[Circumstance] = field(default_factory=list)

    def add(self, comparison: Comparison) -> None:
        """Take in the comparison of the baseline with one more run of it."""
        run = self.runs
        self.runs += 1
        self.circumstances += comparison.circumstances
        for rank in comparison.ranks:
            for origin in rank.origins:
                self.differing.add(run)
                for call in (origin.baseline, origin.candidate):
                    if call is not None:
                        self.origins.setdefault(call.callsite, set()).add(run)
                        self.ranks.setdefault(call.callsite, set()).add(rank.rank)
                        self.first_calls.setdefault(call.callsite, (rank.rank, call, origin.why))
            places = self.places.setdefault(rank.rank, {})
            for event in rank.events:
                for slot in event.slots:
                    places.setdefault((event.pair.baseline.id, slot.slot), set()).add(run)

    def summary(self) -> Repeatability:
        """What the repeats show by themselves."""
        callsites = [
            UnrepeatableCallsite(
                call, len(self.origins[site]), tuple(sorted(self.ranks[site])), why
            )
            for site, (_, call, why) in sorted(
                self.first_calls.items(), key=lambda entry: (entry[1][1].begin, entry[1][0])
            )
        ]
        around: dict[tuple[CircumstanceKind, str], Circumstance] = {}
        for item in self.circumstances:
            around.setdefault((item.kind, item.subject), item)
        return Repeatability(self.runs, len(self.differing), callsites, list(around.values()))

    def have(self, item: Circumstance) -> bool:
        """Whether equal runs differ in the same thing, and not only later."""
        call = item.calls[0]
        return self._show(item.kind, item.subject, NEVER_ENDED if call is None else call.begin)

    def _show(self, kind: CircumstanceKind, subject: str, position: float) -> bool:
        """Whether equal runs differ in a thing, no later than at a tick of the baseline."""
        return any(
            (item.kind, item.subject) == (kind, subject)
            and (item.calls[0] is None or item.calls[0].begin <= position)
            for item in self.circumstances
        )

    def explain(self, rank: int, origin: Origin, site: Hashable) -> str | None:
        """Why an origin is not repeatable, or None where equal runs agree.

        The callsite counts, not the single call: a statement that is not repeatable at one step
        need not be at another. An input that nothing explains is looked up at its own call,
        since only the first of a run can be an origin.
        """
        if site is not None and site in self.origins:
            return self._say("this callsite also stops agreeing", len(self.origins[site]))
        for slot in origin.slots:
            if slot.role is Role.RNG_BEFORE:
                if self._show(CircumstanceKind.RANDOM_STREAM, slot.slot, origin.position):
                    return f"{slot.slot} also differs between equal runs of the baseline"
            elif slot.role is Role.INPUT and origin.baseline is not None:
                runs = self.places.get(rank, {}).get((origin.baseline.id, slot.slot))
                if runs:
                    return self._say(f"{slot.slot} of this call also differs", len(runs))
        return None

    def _say(self, what: str, runs: int) -> str:
        return f"{what} between equal runs of the baseline ({runs} of {self.runs})"


def compare_with_repeats(
    baseline: CaptureView,
    candidate: CaptureView,
    alignment: SourceAlignment,
    ranks: Sequence[int],
    repeats: Sequence[CaptureView],
) -> Comparison:
    """Compare two captures, and set apart what further runs of the baseline show to vary.

    Args:
        baseline: The run that is taken as reference.
        candidate: The run that is compared with it.
        alignment: Statements of both versions of the sources.
        ranks: Global ranks to compare; each must be in all captures.
        repeats: Further runs of the baseline's plan, at least one.

    Raises:
        CaptureReadError: A rank or one of its tables is missing in a capture.
        UnequalRepeatError: A repeat ran other sources, another plan, or was started otherwise.
    """
    equal = _EqualRuns()
    same_plan = keys_of_one_plan(baseline.sites)
    for number, repeat in enumerate(repeats, 1):
        if (repeat.sources, repeat.sites) != (baseline.sources, baseline.sites):
            raise UnequalRepeatError(
                f"repeat {number} did not run the baseline's sources with the baseline's plan, so "
                "it says nothing about repeatability; repeat the baseline's trace with the same "
                "plan",
                repeat=number,
            )
        again = with_circumstances(compare_keyed(baseline, repeat, same_plan, ranks))
        _check_equal_launch(number, again.circumstances)
        equal.add(again)
    keys = callsite_keys(baseline.sites, candidate.sites, alignment)
    varying = {rank: places.keys() for rank, places in equal.places.items()}
    compared = compare_keyed(baseline, candidate, keys, ranks, varying)
    found = with_circumstances(_set_apart(compared, equal, keys))
    return replace(
        found,
        circumstances=[
            replace(item, also_between_equal_runs=equal.have(item)) for item in found.circumstances
        ],
    )


def _check_equal_launch(number: int, circumstances: Sequence[Circumstance]) -> None:
    for item in circumstances:
        if item.kind.of_the_launch:
            text = item.text.replace("in the candidate", "in the repeat")
            raise UnequalRepeatError(
                f"repeat {number} is no equal run: {text}; start it as the baseline was",
                repeat=number,
            )


def _set_apart(comparison: Comparison, equal: _EqualRuns, keys: CallsiteKeys) -> Comparison:
    site_of_key = {key: site for site, key in keys.baseline.items()}
    ranks = []
    for rank in comparison.ranks:
        why = [
            equal.explain(rank.rank, origin, site)
            for origin, site in _with_callsite(rank.origins, keys, site_of_key)
        ]
        ranks.append(
            replace(
                rank,
                origins=[o for o, reason in zip(rank.origins, why, strict=True) if reason is None],
                not_repeatable=[
                    UnrepeatableOrigin(o, reason)
                    for o, reason in zip(rank.origins, why, strict=True)
                    if reason is not None
                ],
            )
        )
    return replace(
        comparison,
        ranks=ranks,
        first=first_over_ranks({rank.rank: rank.origins for rank in ranks}),
        repeatability=equal.summary(),
    )


def _with_callsite(
    origins: Sequence[Origin], keys: CallsiteKeys, site_of_key: dict[int, int]
) -> Iterator[tuple[Origin, Hashable]]:
    """Each origin with its callsite in the baseline's plan, where both versions have it."""
    for origin in origins:
        if origin.baseline is not None:
            yield origin, origin.baseline.callsite
        elif origin.candidate is not None:
            key = keys.candidate.get(origin.candidate.site)
            yield origin, None if key is None else site_of_key.get(key)
        else:
            yield origin, None
