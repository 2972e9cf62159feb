"""The five relations between the two sides of a comparison."""

from __future__ import annotations

from enum import StrEnum


class Relation(StrEnum):
    """How baseline and candidate relate at one call or slot.

    ``incomplete`` (one side ended before the record was whole) is never equal.
    """

    EQUAL = "equal"
    DIFFERENT = "different"
    INCOMPATIBLE = "incompatible"
    UNPAIRED = "unpaired"
    INCOMPLETE = "incomplete"


class RelationSource(StrEnum):
    """How a pair was found.

    ``exact``: same file, function, statement and callee text; ``inferred``: anything weaker, and
    the pair's reason says what.
    """

    EXACT = "exact"
    INFERRED = "inferred"
