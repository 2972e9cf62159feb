"""Attributes device activity and CUDA runtime calls to the recorded calls that caused them.

A kernel names the runtime call that launched it by a correlation id. That call ran on a thread of
the host at a time, and the innermost range of a recorded call open there then is the cause. What
the autograd engine launches on threads of its own is followed back, by the trace's arrows from
forward to backward operators, to the call whose backward it is.
"""

from __future__ import annotations

import bisect
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from opguard.tools.activity.kineto import Row

Thread = tuple[str, str]
Direction = Literal["direct", "backward"]
Reason = Literal["tracer", "no_launch", "outside_calls"]

DEVICE_KINDS: Final = {
    "kernel": "kernel",
    "gpu_memcpy": "memcpy",
    "memcpy": "memcpy",
    "gpu_memset": "memset",
    "memset": "memset",
}
"""Kind of activity by category; the short ones are those of traces before 2022."""

_RUNTIME = frozenset({"cuda_runtime", "cuda_driver", "runtime", "driver"})
_HOST = frozenset({"cpu_op", "user_annotation", "operator"})
_LAUNCH = re.compile(r"launch", re.I)
_RANGE = re.compile(r"opguard:call:(\d{1,10}):(\d{1,20})")
_OWN_RANGE: Final = "opguard:own"
_UNKNOWN: Final = "kernels were launched but none is in the trace: device time unknown"


class CallRange(NamedTuple):
    """The range of one recorded call.

    Attributes:
        site: Callsite, its number in the plan.
        call: Number of the call in its rank's capture.
    """

    site: int
    call: int


Label = CallRange | Literal["tracer"] | None
"""What a host range stands for: a recorded call, the tracer's own work, or neither."""


@dataclass
class Activity:
    """Sum of equal kinds of activity.

    Attributes:
        count: How many there were.
        total_ns: Sum of their durations, in nanoseconds; overlaps count twice.
        names: Count and nanoseconds by the name of the kernel or function.
    """

    count: int = 0
    total_ns: int = 0
    names: dict[str, tuple[int, int]] = field(default_factory=dict)

    def add(self, name: str, duration: int, count: int = 1) -> None:
        """Count ``count`` more, of ``duration`` nanoseconds together."""
        self.count += count
        self.total_ns += duration
        counted, total = self.names.get(name, (0, 0))
        self.names[name] = counted + count, total + duration


Kinds = defaultdict[str, Activity]


def _kinds() -> Kinds:
    return defaultdict(Activity)


@dataclass
class Attribution:
    """Activity by what caused it; the kinds are ``kernel``, ``memcpy``, ``memset``, ``runtime``.

    Attributes:
        calls: By recorded call: what ran in it but in no recorded call inside it, and what ran in
            its backward.
        others: What no call caused: the tracer's own work, activity whose launch is not in the
            trace, and launches outside of every recorded call.
        warnings: What makes the numbers doubtful, and how often.
    """

    calls: dict[CallRange, dict[Direction, Kinds]] = field(default_factory=dict)
    others: dict[Reason, Kinds] = field(default_factory=lambda: defaultdict(_kinds))
    warnings: Counter[str] = field(default_factory=Counter)

    def callsites(self) -> dict[int, dict[Direction, Kinds]]:
        """The sum over the calls of each callsite."""
        sites: dict[int, dict[Direction, Kinds]] = {}
        for call, directions in self.calls.items():
            into = sites.setdefault(call.site, {})
            for direction, kinds in directions.items():
                for kind, activity in kinds.items():
                    total = into.setdefault(direction, _kinds())[kind]
                    for name, (count, duration) in activity.names.items():
                        total.add(name, duration, count)
        return sites


def call_of_range(name: str) -> Label:
    """What a host range of this name stands for."""
    if name == _OWN_RANGE:
        return "tracer"
    found = _RANGE.fullmatch(name)
    return None if found is None else CallRange(int(found[1]), int(found[2]))


def attribute(
    rows: Iterable[Row],
    into: Attribution | None = None,
    *,
    label: Callable[[str], Label] = call_of_range,
) -> Attribution:
    """Attribute the activity of one trace.

    Args:
        rows: All rows of the trace, in any order.
        into: Receives it in addition to what it has of other traces of the rank.
        label: The call that a host range of this name stands for.

    Returns:
        ``into``, or a new attribution.
    """
    result = Attribution() if into is None else into
    trace = _Trace()
    for row in rows:
        trace.take(row, label)
    trace.finish(result)
    return result


class _Pending(NamedTuple):
    kind: str
    name: str
    start: int
    duration: int
    correlation: object
    external: object


@dataclass
class _Interval:
    start: int
    end: int
    label: Label


class _Nesting:
    """The innermost interval of a thread at a time."""

    def __init__(self, intervals: list[_Interval]) -> None:
        self._times: list[int] = []
        self._labels: list[Label] = []
        opened: list[_Interval] = []
        for interval in sorted(intervals, key=lambda item: (item.start, -item.end)):
            self._close(opened, interval.start)
            if opened:
                # Rounding may let an inner interval outlive the outer one.
                interval.end = min(interval.end, opened[-1].end)
            self._mark(interval.start, interval.label)
            opened.append(interval)
        self._close(opened, None)

    def _close(self, opened: list[_Interval], until: int | None) -> None:
        while opened and (until is None or opened[-1].end <= until):
            ended = opened.pop()
            self._mark(ended.end, opened[-1].label if opened else None)

    def _mark(self, time: int, label: Label) -> None:
        self._times.append(time)
        self._labels.append(label)

    def at(self, time: int) -> Label:
        """Label of the innermost interval; None outside of all."""
        index = bisect.bisect_right(self._times, time) - 1
        return self._labels[index] if index >= 0 else None


class _Trace:
    """What has to be kept of a trace until all of its rows are known."""

    def __init__(self) -> None:
        self._ranges: dict[Thread, list[_Interval]] = defaultdict(list)
        self._launches: dict[object, tuple[Thread, int]] = {}
        self._externals: dict[object, tuple[Thread, int]] = {}
        self._pending: list[_Pending] = []
        self._runtime: list[tuple[str, Thread, int, int]] = []
        self._forward: dict[object, tuple[Thread, int]] = {}
        self._backward: list[tuple[object, Thread, int]] = []
        self._operators: dict[tuple[Thread, int], int] = {}
        self._device_rows = 0
        self._launch_rows = 0

    def take(self, row: Row, label: Callable[[str], Label]) -> None:
        if row.phase == "X":
            kind = DEVICE_KINDS.get(row.category)
            if kind is not None:
                self._device(row, kind)
            elif row.category in _RUNTIME:
                self._runtime_call(row)
            elif row.category in _HOST:
                self._host(row, label(row.name))
        elif row.category == "fwdbwd" and row.phase == "s":
            self._forward[row.id] = row.thread, row.start
        elif row.category == "fwdbwd" and row.phase == "f":
            self._backward.append((row.id, row.thread, row.start))

    def _device(self, row: Row, kind: str) -> None:
        self._device_rows += 1
        self._pending.append(
            _Pending(
                kind, row.name, row.start, row.duration, row.args.get("correlation"), _external(row)
            )
        )

    def _runtime_call(self, row: Row) -> None:
        self._launch_rows += _LAUNCH.search(row.name) is not None
        self._runtime.append((row.name, row.thread, row.start, row.duration))
        correlation = row.args.get("correlation")
        if correlation:
            self._launches.setdefault(correlation, (row.thread, row.start))

    def _host(self, row: Row, label: Label) -> None:
        end = row.start + row.duration
        if label is not None:
            self._ranges[row.thread].append(_Interval(row.start, end, label))
        external = _external(row)
        if external:
            self._externals.setdefault(external, (row.thread, row.start))
        if "Sequence number" in row.args:
            key = row.thread, row.start
            self._operators[key] = max(end, self._operators.get(key, 0))

    def finish(self, result: Attribution) -> None:
        direct = {thread: _Nesting(ranges) for thread, ranges in self._ranges.items()}
        lanes: tuple[tuple[dict[Thread, _Nesting], Direction], ...] = (
            (direct, "direct"),
            (self._backward_ranges(direct), "backward"),
        )

        def cause(thread: Thread, time: int) -> tuple[CallRange, Direction] | Reason:
            for nestings, direction in lanes:
                nesting = nestings.get(thread)
                found = None if nesting is None else nesting.at(time)
                if found == "tracer":
                    return "tracer"
                if found is not None:
                    return found, direction
            return "outside_calls"

        for item in self._pending:
            place = self._place(item)
            _count(
                result,
                "no_launch" if place is None else cause(*place),
                item.kind,
                item.name,
                item.duration,
            )
        for name, thread, start, duration in self._runtime:
            _count(result, cause(thread, start), "runtime", name, duration)
        if self._launch_rows and not self._device_rows:
            result.warnings[_UNKNOWN] += 1

    def _place(self, item: _Pending) -> tuple[Thread, int] | None:
        """Thread and time of the host at which an activity was asked for."""
        # Some libraries report all of their kernels under correlation 0.
        place = self._launches.get(item.correlation) if item.correlation else None
        if place is None and item.external and item.external != item.correlation:
            place = self._externals.get(item.external)
            if place is not None and place[1] > item.start:
                return None
        return place

    def _backward_ranges(self, direct: dict[Thread, _Nesting]) -> dict[Thread, _Nesting]:
        ranges: dict[Thread, list[_Interval]] = defaultdict(list)
        for arrow, thread, start in self._backward:
            origin = self._forward.get(arrow)
            end = self._operators.get((thread, start))
            if origin is None or end is None or origin[0] not in direct:
                continue
            call = direct[origin[0]].at(origin[1])
            if isinstance(call, CallRange):
                ranges[thread].append(_Interval(start, end, call))
        return {thread: _Nesting(found) for thread, found in ranges.items()}


def _external(row: Row) -> object:
    return row.args.get("External id", row.args.get("external id"))


def _count(
    result: Attribution,
    cause: tuple[CallRange, Direction] | Reason,
    kind: str,
    name: str,
    duration: int,
) -> None:
    if isinstance(cause, str):
        kinds = result.others[cause]
    else:
        call, direction = cause
        kinds = result.calls.setdefault(call, {}).setdefault(direction, _kinds())
    kinds[kind].add(name, duration)
