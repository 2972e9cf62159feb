"""Circumstances: what differs around the program, apart from what its operations compute.

Seeds, arguments, versions, threads, flags, the random stream and the data can make two equal
programs differ. Where they do, a report names them before it names an operation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from opguard.tools.compare.records import Call


class CircumstanceKind(StrEnum):
    """What sort of thing differs; in the order in which a report lists them."""

    ARGUMENTS = "arguments"
    ENVIRONMENT = "environment"
    VERSIONS = "versions"
    THREADS = "threads"
    DETERMINISM = "determinism"
    RANDOM_STREAM = "random_stream"
    DATA_ORDER = "data_order"
    DATA_CONTENT = "data_content"

    @property
    def of_the_launch(self) -> bool:
        """Whether it says that the two runs were not started in the same way."""
        return self in (CircumstanceKind.ARGUMENTS, CircumstanceKind.ENVIRONMENT)


@dataclass(frozen=True, slots=True)
class Circumstance:
    """Something around the program that differs.

    Attributes:
        subject: The option, variable, package, setting, generator or loader.
        text: What differs, as a sentence without a full stop.
        baseline: The baseline's value in short, or None where there is none.
        candidate: The candidate's value in short, or None where there is none.
        ranks: Ranks at which it was seen, in ascending order.
        before_first: Whether no origin comes before it.
        step: Step in which it was first seen; None for what holds from the start.
        calls: The baseline's and the candidate's call that show it, where one does.
        also_between_equal_runs: Whether repeats of the baseline differ in it as well; None when
            there are none.
    """

    kind: CircumstanceKind
    subject: str
    text: str
    baseline: str | None = None
    candidate: str | None = None
    ranks: tuple[int, ...] = ()
    before_first: bool = True
    step: int | None = None
    calls: tuple[Call | None, Call | None] = (None, None)
    also_between_equal_runs: bool | None = None


def contrast(
    kind: CircumstanceKind, subject: str, baseline: str | None, candidate: str | None
) -> Circumstance:
    """A circumstance that holds from the start: one value against another, None for no value."""
    left, right = ("not set" if value is None else value for value in (baseline, candidate))
    text = f"{subject} is {left} in the baseline and {right} in the candidate"
    return Circumstance(kind, subject, text, baseline, candidate)


def merge_ranks(found: Iterable[tuple[int, Circumstance]]) -> list[Circumstance]:
    """Merge what several ranks show alike; sorted by kind, otherwise in the order given."""
    merged: dict[tuple[CircumstanceKind, str, str], Circumstance] = {}
    for rank, item in found:
        key = (item.kind, item.subject, item.text)
        known = merged.get(key)
        if known is None:
            merged[key] = replace(item, ranks=(rank,))
        else:
            merged[key] = replace(
                known,
                ranks=tuple(sorted({*known.ranks, rank})),
                before_first=known.before_first or item.before_first,
            )
    order = list(CircumstanceKind)
    return sorted(merged.values(), key=lambda item: order.index(item.kind))
