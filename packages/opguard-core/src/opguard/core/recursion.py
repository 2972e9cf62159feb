"""Room on the stack for the recorder, besides what the workload may use."""

from __future__ import annotations

import sys

MAX_NESTED_CALLS = 128
"""Recorded calls inside one another; calls further inside run as if they were not instrumented.

Each one stands on the interpreter's stack: a workload that recurses through a callsite would
otherwise reach the recursion limit, or the end of the stack, earlier than without a recorder.
"""

ALLOWANCE = 6 * MAX_NESTED_CALLS + 200
"""Frames that recorded calls put between those of the workload, and those of the recorder."""

_get, _set = sys.getrecursionlimit, sys.setrecursionlimit


def getrecursionlimit() -> int:
    """The limit for the workload's own frames."""
    return _get() - ALLOWANCE


def setrecursionlimit(limit: int, /) -> None:
    """Set the limit for the workload's own frames."""
    _set(limit + ALLOWANCE if limit > 0 else limit)


def make_room() -> None:
    """Raise the recursion limit by the recorder's share, which the workload does not see."""
    if sys.getrecursionlimit is not getrecursionlimit:
        _set(_get() + ALLOWANCE)
        sys.getrecursionlimit, sys.setrecursionlimit = getrecursionlimit, setrecursionlimit


def give_back_room() -> None:
    """Undo :func:`make_room`."""
    if sys.getrecursionlimit is getrecursionlimit:
        sys.getrecursionlimit, sys.setrecursionlimit = _get, _set
        _set(_get() - ALLOWANCE)
