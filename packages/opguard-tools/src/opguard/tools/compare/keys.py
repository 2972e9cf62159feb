"""Callsite keys: which callsite of the candidate corresponds to which of the baseline.

A key is (file, function, aligned statement, callee text, ordinal in the statement), interned as an
integer. Calls are later aligned by the keys of their callsites, so a key says only "these two
expressions are the same place in the program", never that two calls of it belong together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from opguard.tools.compare.capture import Callsite
from opguard.tools.compare.records import Call, CallFlag
from opguard.tools.compare.relations import RelationSource
from opguard.tools.compare.sequence import align_sequences


class StatementKey(Protocol):
    """A statement's place in the alignment of both sources."""

    @property
    def kind(self) -> str:
        """``shared`` (both versions have the statement) or ``changed``."""

    @property
    def number(self) -> int:
        """Number of the statement, or of the changed block; the same on both sides."""

    @property
    def file_key(self) -> Hashable:
        """Identifies the file on both sides, also when it was renamed."""


class SourceAlignment(Protocol):
    """Statements of both checkouts by ``(file, line, col)``."""

    @property
    def baseline(self) -> Mapping[tuple[str, int, int], StatementKey]:
        """Keys of the baseline's statements."""

    @property
    def candidate(self) -> Mapping[tuple[str, int, int], StatementKey]:
        """Keys of the candidate's statements."""


@dataclass(frozen=True, slots=True)
class PairingBasis:
    """How firmly one key ties both sides together, and why.

    Attributes:
        guessed: Whether the statement changed, so that only callee texts speak for the pair.
    """

    source: RelationSource
    reason: str
    guessed: bool = False


@dataclass(slots=True)
class CallsiteKeys:
    """Keys of every callsite on both sides.

    Attributes:
        baseline: Key by the baseline's callsite id.
        candidate: Key by the candidate's callsite id.
        basis: How firm each key that exists on both sides is.
        movable: For keys of changed statements on one side only, a key that a statement with the
            same text in the same function has on the other side, too. It may only pair calls
            whose values agree.
    """

    baseline: dict[int, int] = field(default_factory=dict)
    candidate: dict[int, int] = field(default_factory=dict)
    basis: dict[int, PairingBasis] = field(default_factory=dict)
    movable: dict[int, int] = field(default_factory=dict)
    _interned: dict[Hashable, int] = field(default_factory=dict)
    _in_changed_block: set[int] = field(default_factory=set)

    def intern(self, key: Hashable) -> int:
        """Small integer for a key."""
        return self._interned.setdefault(key, len(self._interned))

    def call_key(self, call: Call, sites: Mapping[int, int]) -> int:
        """Key of a call: its callsite's, and the operator's name for an operator-level record.

        A callsite that the plan does not know is keyed by the callee that was recorded.
        """
        site = sites.get(call.site)
        if call.flags & CallFlag.OPERATOR:
            return self.intern(("operator", site, call.phase, call.operator))
        return self.intern(("callee", call.callee)) if site is None else site


def callsite_keys(
    baseline: Mapping[int, Callsite], candidate: Mapping[int, Callsite], alignment: SourceAlignment
) -> CallsiteKeys:
    """Key the callsites of both sides.

    In a statement that both versions have, structure is equal, so kind and ordinal name the
    expression even where local variables were renamed. In a changed block callsites correspond
    by sequence alignment of their callee texts, and such pairs are inferred.
    """
    keys = CallsiteKeys()
    changed_baseline = _key_shared(keys, keys.baseline, baseline.values(), alignment.baseline)
    changed_candidate = _key_shared(keys, keys.candidate, candidate.values(), alignment.candidate)
    for block in changed_baseline.keys() | changed_candidate.keys():
        _key_changed(keys, block, changed_baseline.get(block, []), changed_candidate.get(block, []))
    _judge(keys, baseline, candidate)
    return keys


def keys_of_one_plan(sites: Iterable[int]) -> CallsiteKeys:
    """Key the callsites of two runs of one plan: each corresponds to itself."""
    keys = CallsiteKeys()
    for site in sites:
        key = keys.baseline[site] = keys.candidate[site] = keys.intern(("site", site))
        keys.basis[key] = PairingBasis(RelationSource.EXACT, "same callsite of the same plan")
    return keys


def _key_shared(
    keys: CallsiteKeys,
    assigned: dict[int, int],
    sites: Iterable[Callsite],
    statements: Mapping[tuple[str, int, int], StatementKey],
) -> dict[Hashable, list[Callsite]]:
    """Key callsites in shared statements; return the others by changed block, in source order."""
    changed: dict[Hashable, list[Callsite]] = {}
    unaligned: Counter[Hashable] = Counter()
    for site in sorted(sites, key=_position):
        statement = statements.get((site.file, *site.statement))
        if statement is None:
            place = ("unaligned", site.file, site.qualname, site.kind, site.callee)
            unaligned[place] += 1
            assigned[site.id] = keys.intern((*place, unaligned[place]))
        elif statement.kind == "shared":
            assigned[site.id] = keys.intern(
                ("shared", statement.file_key, statement.number, site.kind, site.ordinal)
            )
        else:
            block = ("changed", statement.file_key, statement.number)
            changed.setdefault(block, []).append(site)
    return changed


def _key_changed(
    keys: CallsiteKeys, block: Hashable, baseline: list[Callsite], candidate: list[Callsite]
) -> None:
    """Key the callsites of one changed block: equal callee texts, in order, correspond."""
    texts: dict[tuple[str, str], int] = {}

    def numbered(sites: list[Callsite]) -> list[int]:
        return [texts.setdefault((site.kind, site.callee), len(texts)) for site in sites]

    for place, (i, j) in enumerate(align_sequences(numbered(baseline), numbered(candidate))):
        key = keys.intern((block, "paired", place))
        keys.baseline[baseline[i].id] = keys.candidate[candidate[j].id] = key
        keys._in_changed_block.add(key)
    for side, assigned, sites in (
        ("baseline", keys.baseline, baseline),
        ("candidate", keys.candidate, candidate),
    ):
        for site in sites:
            if site.id not in assigned:
                key = assigned[site.id] = keys.intern((block, side, site.id))
                keys.movable[key] = keys.intern(
                    ("movable", site.file, site.qualname, site.kind, site.text)
                )


def _judge(
    keys: CallsiteKeys, baseline: Mapping[int, Callsite], candidate: Mapping[int, Callsite]
) -> None:
    """Say for every key on both sides whether it is exact, and if not, why not."""
    counterpart = {key: candidate[site] for site, key in keys.candidate.items()}
    for site, key in keys.baseline.items():
        other = counterpart.get(key)
        if other is not None:
            keys.basis[key] = _basis(baseline[site], other, changed=key in keys._in_changed_block)


def _basis(baseline: Callsite, candidate: Callsite, *, changed: bool) -> PairingBasis:
    """Exact means same file, function, statement and callee text."""
    weaker = [
        text
        for applies, text in (
            (changed, f"the statement changed; callee {baseline.callee} is on both sides"),
            (
                baseline.file != candidate.file,
                f"moved from {baseline.file} to {candidate.file}",
            ),
            (
                baseline.qualname != candidate.qualname,
                f"function {baseline.qualname} against {candidate.qualname}",
            ),
            (
                baseline.callee != candidate.callee,
                f"same expression with other names: {baseline.callee} against {candidate.callee}",
            ),
        )
        if applies
    ]
    if weaker:
        return PairingBasis(RelationSource.INFERRED, "; ".join(weaker), guessed=changed)
    return PairingBasis(RelationSource.EXACT, "same statement, callee and ordinal")


def _position(site: Callsite) -> tuple[str, int, int, int, int]:
    return (site.file, site.line, site.col, site.end_line, site.end_col)
