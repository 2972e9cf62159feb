"""Sums of device activity, as results and reports state them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from opguard.tools.activity.attribution import Activity, Attribution, Direction


@dataclass(frozen=True, slots=True)
class Figures:
    """What the device did, and what it was asked for.

    Attributes:
        kernels: Number of kernels.
        copies: Number of copies and fills.
        device_ns: Sum of the durations of both, in nanoseconds; overlaps count twice.
        runtime_calls: Number of calls of the CUDA runtime.
        runtime_ns: Sum of their durations, in nanoseconds.
    """

    kernels: int = 0
    copies: int = 0
    device_ns: int = 0
    runtime_calls: int = 0
    runtime_ns: int = 0

    @classmethod
    def of(cls, kinds: Mapping[str, Activity]) -> Figures:
        """The figures of activity by kind."""
        none = Activity()
        kernel, runtime = kinds.get("kernel", none), kinds.get("runtime", none)
        copies = [kinds.get(kind, none) for kind in ("memcpy", "memset")]
        return cls(
            kernel.count,
            sum(copy.count for copy in copies),
            kernel.total_ns + sum(copy.total_ns for copy in copies),
            runtime.count,
            runtime.total_ns,
        )

    def __add__(self, other: Figures) -> Figures:
        return Figures(
            self.kernels + other.kernels,
            self.copies + other.copies,
            self.device_ns + other.device_ns,
            self.runtime_calls + other.runtime_calls,
            self.runtime_ns + other.runtime_ns,
        )


def total(figures: Iterable[Figures]) -> Figures:
    """The sum of figures."""
    return sum(figures, Figures())


@dataclass(frozen=True, slots=True)
class CallsiteFigures:
    """The figures of one callsite in one rank.

    Attributes:
        calls: Recorded calls that caused something.
        direct: What ran in them, but in no recorded call inside them.
        backward: What ran in their backward.
    """

    calls: int
    direct: Figures
    backward: Figures


def callsite_figures(attribution: Attribution) -> dict[int, CallsiteFigures]:
    """The figures of every callsite that caused something, by its number in the plan."""
    calls: dict[int, int] = {}
    for call in attribution.calls:
        calls[call.site] = calls.get(call.site, 0) + 1

    def of(directions: Mapping[Direction, Mapping[str, Activity]], direction: Direction) -> Figures:
        return Figures.of(directions.get(direction, {}))

    return {
        site: CallsiteFigures(calls[site], of(found, "direct"), of(found, "backward"))
        for site, found in sorted(attribution.callsites().items())
    }
