"""Keys of operator-level calls: which line of one environment's libraries is which of the other's.

Files that both sides have with the same content correspond position by position. The others (a
patched function, another version) are aligned statement by statement, as the checkout's are.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field

from opguard.tools.compare.capture import Callsite
from opguard.tools.compare.keys import (
    CallsiteKeys,
    PairingBasis,
    SourceAlignment,
    callsite_keys,
)
from opguard.tools.compare.places import LibrarySources, Place, Spot
from opguard.tools.compare.records import Call
from opguard.tools.compare.relations import RelationSource
from opguard.tools.source.align import align_sources
from opguard.tools.source.lookup import SourceLookup

_SAME_CODE = PairingBasis(RelationSource.EXACT, "same operator at the same place of the library")


@dataclass(slots=True)
class SideSpots:
    """Positions of one side with the sources to look them up in."""

    places: Iterable[Place]
    sources: Mapping[str, bytes]
    libraries: LibrarySources

    def spots(self) -> dict[Spot, Place]:
        """One place per position."""
        return {place.spot: place for place in self.places}

    def content(self, place: Place) -> bytes | None:
        """The source file of a place."""
        return self.libraries.get(place.source) if place.path else self.sources.get(place.name)


@dataclass(slots=True)
class SpotKeys:
    """Keys of positions, per side.

    Attributes:
        baseline: Key by position.
        candidate: The same for the candidate.
        basis: How firm a key is that both sides have.
    """

    baseline: dict[Spot, Hashable] = field(default_factory=dict)
    candidate: dict[Spot, Hashable] = field(default_factory=dict)
    basis: dict[Hashable, PairingBasis] = field(default_factory=dict)


def spot_keys(baseline: SideSpots, candidate: SideSpots) -> SpotKeys:
    """Key the positions of both sides, and note at each place whether its statement changed."""
    sides = (baseline, candidate)
    found = SpotKeys()
    digests = [{place.name: _digest(side, place) for place in side.places} for side in sides]
    same = {name for name, digest in digests[0].items() if digests[1].get(name) == digest}
    differing: list[dict[Spot, Place]] = [{}, {}]
    for side, keys, rest in zip(sides, (found.baseline, found.candidate), differing, strict=True):
        for spot, place in side.spots().items():
            if place.name in same:
                keys[spot] = ("same", spot)
                found.basis[keys[spot]] = _SAME_CODE
            else:
                rest[spot] = place
    if differing[0] or differing[1]:
        _align(found, sides, differing)
        _note_changes(found, sides)
    return found


def _digest(side: SideSpots, place: Place) -> Hashable:
    """Identity of a file's content; every file that cannot be read counts as the same one."""
    return place.source if place.path else side.sources.get(place.name, b"")


def _align(
    found: SpotKeys,
    sides: tuple[SideSpots, SideSpots],
    differing: list[dict[Spot, Place]],
) -> None:
    contents: list[dict[str, bytes]] = []
    callsites: list[dict[int, Callsite]] = []
    numbers: list[dict[int, Spot]] = []
    for side, rest in zip(sides, differing, strict=True):
        files = {
            place.name: content
            for place in rest.values()
            if (content := side.content(place)) is not None
        }
        lookup = SourceLookup(files)
        known: dict[int, Callsite] = {}
        for number, place in enumerate(rest.values()):
            known[number] = _callsite(number, place, lookup)
        contents.append(files)
        callsites.append(known)
        numbers.append(dict(enumerate(rest)))
    alignment: SourceAlignment = align_sources(contents[0], contents[1])
    keys = callsite_keys(callsites[0], callsites[1], alignment)
    for assigned, own, spots in (
        (keys.baseline, found.baseline, numbers[0]),
        (keys.candidate, found.candidate, numbers[1]),
    ):
        for number, key in assigned.items():
            own[spots[number]] = ("aligned", key)
    found.basis |= {("aligned", key): basis for key, basis in keys.basis.items()}


def _callsite(number: int, place: Place, lookup: SourceLookup) -> Callsite:
    """A position as a callsite; one without an expression of its own is keyed by its line."""
    line, end_line, col, end_col = place.position
    found = lookup.expression(place.name, place.qualname, place.position)
    if found is None:
        text = lookup.line(place.name, line)
        statement = lookup.statement(place.name, line) or (line, col)
        kind, callee, ordinal = "line", text, 0
    else:
        kind, callee = found.kind, found.callee
        text, statement, ordinal = found.text, found.statement, found.ordinal
    return Callsite(
        number, place.name, line, end_line, col, end_col, place.qualname, kind, callee, text,
        statement, ordinal,
    )  # fmt: skip


def _note_changes(found: SpotKeys, sides: tuple[SideSpots, SideSpots]) -> None:
    """Mark places in statements that only one side has."""
    for side, keys, others in (
        (sides[0], found.baseline, found.candidate),
        (sides[1], found.candidate, found.baseline),
    ):
        elsewhere = set(others.values())
        for place in side.places:
            key = keys[place.spot]
            basis = found.basis.get(key)
            place.changed = key not in elsewhere or (basis is not None and basis.guessed)


@dataclass(slots=True)
class OperatorKeys:
    """Keys of calls, those of operators included, for one rank.

    Attributes:
        callsites: Keys of the callsites of both plans.
        spots: Keys of positions in libraries.
    """

    callsites: CallsiteKeys
    spots: SpotKeys
    _chains: dict[Place, tuple[Hashable, Hashable]] = field(default_factory=dict)

    def strict(self, call: Call, sites: Mapping[int, int], spots: Mapping[Spot, Hashable]) -> int:
        """Key of a call by everything that is known of its place."""
        if call.place is None:
            return self.callsites.call_key(call, sites)
        chain, _ = self._chain(call.place, spots)
        site = sites.get(call.site)
        return self.callsites.intern(("operator", site, chain, call.phase, call.action))

    def loose(self, call: Call, sites: Mapping[int, int], spots: Mapping[Spot, Hashable]) -> int:
        """Key of a call by its innermost line, whatever led there.

        A version that puts a wrapper around a function changes the way to every operator in it.
        """
        if call.place is None:
            return self.callsites.call_key(call, sites)
        _, line = self._chain(call.place, spots)
        return self.callsites.intern(("line", line, call.phase, call.action))

    def _chain(self, place: Place, spots: Mapping[Spot, Hashable]) -> tuple[Hashable, Hashable]:
        """Keys of a place: with everything around it, and of the line alone."""
        known = self._chains.get(place)
        if known is None:
            library = next((p for p in place.chain() if not p.in_torch), None)
            line = (spots[place.spot], None if library is None else spots[library.spot])
            around = None if place.outer is None else self._chain(place.outer, spots)[0]
            # A number for each, so that a key is no longer than what it adds.
            known = (self.callsites.intern(("place", around, spots[place.spot])), line)
            self._chains[place] = known
        return known

    def basis(self, call: Call) -> PairingBasis | None:
        """How firm a pair of operators at one place is, ``call`` being the baseline's."""
        if call.place is None:
            return None
        found = [self.spots.basis.get(self.spots.baseline[p.spot]) for p in call.place.chain()]
        inferred = [b for b in found if b is not None and b.source is RelationSource.INFERRED]
        return inferred[0] if inferred else _SAME_CODE
