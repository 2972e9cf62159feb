"""Instrumented calls while nothing is recorded."""

from __future__ import annotations

from collections.abc import Iterator

from harness import Area, Claim, Figure, Group, Settings, Subject

from opguard.core._site import site

CALLS = 1000


def area(settings: Settings) -> Area:
    """One callsite."""
    return Area("an instrumented callsite without a session", _groups())


def _groups() -> Iterator[Group]:
    def callee(value: int) -> int:
        return value

    def plain() -> None:
        for number in range(CALLS):
            callee(number)

    def instrumented() -> None:
        for number in range(CALLS):
            site(17, callee)(number)

    yield Group(
        name="a call of a Python function",
        subjects={"instrumented": Subject(instrumented, CALLS), "plain": Subject(plain, CALLS)},
        claims=[Claim("instrumented", "plain", ratio="time")],
        unit="calls",
        figures=lambda samples: [
            Figure(
                "added by a callsite",
                (min(samples["instrumented"]) - min(samples["plain"])) / CALLS * 1e9,
                "ns",
                at_most=300.0,
            )
        ],
    )
