"""Places of operator-level calls: the lines of libraries between a callsite and an operator."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import polars as pl

from opguard.tools.digests import sha256

PLACE_MARK: Final = 4
"""``kind`` of a mark that describes a place."""

LIBRARIES: Final = "libraries"
"""Folder of a capture with the source files of places, by SHA-256."""

Spot = tuple[str, str, tuple[int, int, int, int]]
"""File by its shared name, function, and ``(line, end_line, col, end_col)``."""


@dataclass(slots=True, eq=False)
class Place:
    """A position in a file, and those around it up to the recorded call.

    Attributes:
        number: Number in its rank's capture, from 1.
        outer: The place around it; None for the outermost.
        path: Absolute path of a library's file; empty for a file of the checkout.
        name: Name of the file that other environments share; relative to the checkout for a file
            of it.
        qualname: Function.
        position: ``(line, end_line, col, end_col)``, -1 where unknown.
        source: SHA-256 of the file, or empty.
        changed: Whether the other side's source has no such statement.
    """

    number: int
    outer: Place | None
    path: str
    name: str
    qualname: str
    position: tuple[int, int, int, int]
    source: str
    changed: bool = False

    @property
    def spot(self) -> Spot:
        """The position without what is around it."""
        return (self.name, self.qualname, self.position)

    @property
    def in_torch(self) -> bool:
        """Whether the file is torch's own."""
        return bool(self.path) and self.name.startswith("torch/")

    def chain(self) -> Iterator[Place]:
        """This place and those around it, the innermost first."""
        place: Place | None = self
        while place is not None:
            yield place
            place = place.outer

    @property
    def telling(self) -> Place | None:
        """The place that an operator is named at, or None for the recorded call itself.

        The innermost line that differs between both sides, of torch or of another library; else
        the innermost one outside torch. Where only torch's own unchanged lines lie between the
        recorded call and the operator, the call says more than they do.
        """
        if self.changed:
            return self
        return next((place for place in self.chain() if place.changed or not place.in_torch), None)


@dataclass(slots=True)
class LibrarySources:
    """Source files of libraries as a capture keeps them, read on demand.

    Attributes:
        folders: Folders to look in.
    """

    folders: tuple[Path, ...] = ()
    _known: dict[str, bytes | None] = field(default_factory=dict)

    def get(self, digest: str) -> bytes | None:
        """A file's content, or None if the capture does not have it as it was."""
        if digest not in self._known:
            self._known[digest] = self._read(digest)
        return self._known[digest]

    def _read(self, digest: str) -> bytes | None:
        for folder in self.folders if digest.isalnum() else ():
            try:
                data = (folder / digest).read_bytes()
            except OSError:
                continue
            if sha256(data) == digest:
                return data
        return None


def read_places(marks: pl.DataFrame) -> dict[int, Place]:
    """The places of one rank by number; what cannot be understood is left out."""
    places: dict[int, Place] = {}
    rows = marks.filter(pl.col("kind") == PLACE_MARK).sort("tick")
    for name, text in zip(rows["name"].to_list(), rows["value"].to_list(), strict=True):
        try:
            facts = json.loads(text)
            line, end_line, col, end_col = (int(part) for part in facts["position"])
            number = int(name)
            places[number] = Place(
                number,
                places.get(facts["outer"]),
                str(facts["file"]),
                str(facts["name"]),
                str(facts["qualname"]),
                (line, end_line, col, end_col),
                str(facts["source"]),
            )
        except (KeyError, TypeError, ValueError):
            continue
    return places


def place_of(callee: str, places: Mapping[int, Place]) -> Place | None:
    """The place that a recorded callee ``operator@number`` refers to."""
    number = callee.partition("@")[2]
    return places.get(int(number)) if number.isdigit() else None
