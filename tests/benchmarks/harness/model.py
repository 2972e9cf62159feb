"""What an area declares, and what a run of it yields."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Literal

Statistic = Callable[[Sequence[float]], float]


@dataclass(frozen=True)
class Settings:
    """How long to measure.

    Attributes:
        rounds: Rounds of each group; every subject is timed once a round.
        sample_seconds: A sample repeats its subject until it lasts at least this long.
        smoke: Only show that the area runs: inputs may be small, figures mean nothing.
    """

    rounds: int = 15
    sample_seconds: float = 0.01
    smoke: bool = False


@dataclass(frozen=True)
class Subject:
    """One thing that is timed.

    Attributes:
        run: Called again and again. If it returns a ``float``, that is the time in seconds that
            it measured itself (a subprocess, a part of a step); it is then called once a sample.
        unit_count: How many bytes, events or records one call handles, for the rate.
        wall: Time by the wall clock instead of the thread's processor time. Needed where threads
            or processes share the work; processor time is otherwise steadier on a busy machine.
    """

    run: Callable[[], Any]
    unit_count: float = 0.0
    wall: bool = False


@dataclass(frozen=True)
class Claim:
    """A target for the ratio of two subjects of one group.

    Attributes:
        subject: Key of our subject.
        peer: Key of the subject that it is compared with.
        target: The bound of the ratio, or ``None`` to report without one.
        ratio: ``"speed"``: peer's time over ours, at least ``target``. ``"time"``: our time over
            the peer's, at most ``target``.
        ours_by: Reduces our samples of all rounds to one number where the ratio of medians of
            rounds is not what is asked, e.g. ``max`` for a worst case.
        peer_by: The same for the peer.
    """

    subject: str
    peer: str
    target: float | None = None
    ratio: Literal["speed", "time"] = "speed"
    ours_by: Statistic | None = None
    peer_by: Statistic | None = None


@dataclass(frozen=True)
class Figure:
    """A measured number that is no ratio, such as bytes on disk for each record.

    Attributes:
        name: What it is.
        value: The number.
        unit: Its unit.
        at_most: Upper target, if there is one.
        at_least: Lower target, if there is one.
    """

    name: str
    value: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None

    @property
    def passed(self) -> bool | None:
        """Whether the targets hold; ``None`` without a target."""
        if self.at_most is None and self.at_least is None:
            return None
        low = self.at_least is None or self.value >= self.at_least
        return low and (self.at_most is None or self.value <= self.at_most)


@dataclass(frozen=True)
class Group:
    """Subjects that are timed in turn, so that a ratio of two of them means something.

    Attributes:
        name: What they all do, e.g. ``"64 MiB"``.
        subjects: By the names under which they are reported.
        claims: What is expected of them.
        unit: What ``Subject.unit_count`` counts, e.g. ``"B"``.
        collect: In place of timing: returns the samples in seconds of each subject, for programs
            that time themselves; ``Subject.run`` is then not called.
        figures: Further numbers, asked for after the rounds.
    """

    name: str
    subjects: Mapping[str, Subject]
    claims: Sequence[Claim] = ()
    unit: str = ""
    collect: Callable[[], Mapping[str, Sequence[float]]] | None = None
    figures: Callable[[Mapping[str, Sequence[float]]], Iterable[Figure]] | None = None


@dataclass
class Area:
    """One module of ``areas``: its groups, and free text.

    Attributes:
        title: One line.
        groups: Made one by one, so that one group's data is gone before the next is measured.
        notes: What a reader of the figures must know, e.g. a peer that is not installed.
    """

    title: str
    groups: Iterable[Group]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Outcome:
    """A claim after its measurement.

    Attributes:
        claim: The claim.
        group: Name of its group.
        ratios: One ratio for each round, or a single one with ``ours_by`` or ``peer_by``.
    """

    claim: Claim
    group: str
    ratios: Sequence[float]

    @property
    def ratio(self) -> float:
        """Median of the rounds' ratios."""
        return median(self.ratios)

    @property
    def passed(self) -> bool | None:
        """Whether the target holds; ``None`` without a target."""
        if self.claim.target is None:
            return None
        if self.claim.ratio == "speed":
            return self.ratio >= self.claim.target
        return self.ratio <= self.claim.target


def clock(wall: bool) -> Callable[[], float]:
    """The clock of a subject, seconds."""
    return time.perf_counter if wall else time.thread_time
