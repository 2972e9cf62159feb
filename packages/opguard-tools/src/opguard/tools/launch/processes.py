"""The processes below this one, found and signalled through ``/proc``.

A launcher of several ranks starts each in a session of its own, so neither a process group nor a
session holds them all. What holds is parentage: as a *child subreaper* this process becomes the
parent of every orphan below it, so that a walk over parent ids from here misses none.

Linux only. Elsewhere there is no such walk and only the launcher's process group is known.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_PROC = Path("/proc")
_KILL_SECONDS = 60.0

POLL_SECONDS = 0.05
"""Time between two looks at processes that cannot be waited for."""


@dataclass(frozen=True)
class Process:
    """One process, identified across reuse of its number by its start time.

    Attributes:
        pid: Process id.
        parent: Process id of the parent.
        group: Process group.
        start_ticks: Start time in clock ticks since boot.
        zombie: It has ended and waits to be reaped.
    """

    pid: int
    parent: int
    group: int
    start_ticks: int
    zombie: bool


def become_subreaper() -> bool:
    """Make this process the parent of every orphan among its descendants.

    Returns:
        False where the system has no such notion.
    """
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        return bool(libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def read_process(pid: int) -> Process | None:
    """One process as it is now, or None when it is gone."""
    try:
        text = (_PROC / str(pid) / "stat").read_text("utf-8", "replace")
    except OSError:
        return None
    # The command name stands in parentheses and may hold any character, so count from the last.
    fields = text[text.rindex(")") + 2 :].split()
    # Fields 3 (state), 4 (parent), 5 (group) and 22 (start time) of proc_pid_stat(5).
    return Process(
        pid=pid,
        parent=int(fields[1]),
        group=int(fields[2]),
        start_ticks=int(fields[19]),
        zombie=fields[0] in "ZX",
    )


def descendants(root: int) -> list[Process]:
    """All processes below one, nearest first; zombies included."""
    try:
        numbers = [int(name) for name in os.listdir(_PROC) if name.isdigit()]
    except OSError:
        return []
    children: dict[int, list[Process]] = {}
    for pid in numbers:
        process = read_process(pid)
        if process is not None:
            children.setdefault(process.parent, []).append(process)
    found: list[Process] = []
    frontier = [root]
    while frontier:
        level = [child for pid in frontier for child in children.get(pid, ())]
        found.extend(level)
        frontier = [child.pid for child in level]
    return found


def send(process: Process, number: signal.Signals) -> None:
    """Signal a process, unless it is gone or its id belongs to another one by now."""
    try:
        handle = os.pidfd_open(process.pid)
    except OSError:
        return
    try:
        current = read_process(process.pid)
        if current is not None and current.start_ticks == process.start_ticks:
            signal.pidfd_send_signal(handle, number)
    except OSError:
        pass  # it ended in between, which is what was wanted
    finally:
        os.close(handle)


def living_descendants(spare: Collection[int] = (), waited_for: int | None = None) -> list[Process]:
    """Descendants of this process that have not ended; those that have are reaped.

    Args:
        spare: Process ids that are somebody else's to reap or to end.
        waited_for: A child that its ``Popen`` object reaps: its exit status must not get lost.
    """
    alive: list[Process] = []
    for process in descendants(os.getpid()):
        if process.pid in spare:
            continue
        if not process.zombie:
            alive.append(process)
        elif process.pid != waited_for:
            reap(process)
    return alive


def kill_all(living: Callable[[], list[Process]]) -> list[Process]:
    """SIGKILL processes, and those that they leave behind, until none is left.

    Args:
        living: Says which processes there are now.

    Returns:
        Processes that are still there after 60 seconds: stuck in the kernel, for example on a
        network mount that hangs.
    """
    deadline = time.monotonic() + _KILL_SECONDS
    while alive := living():
        if time.monotonic() >= deadline:
            return alive
        for process in alive:
            send(process, signal.SIGKILL)
        time.sleep(POLL_SECONDS)
    return []


def reap(process: Process) -> None:
    """Collect an ended child of this process, if it is one; never waits."""
    # Another process's child is reaped by that one, or comes to us later.
    with contextlib.suppress(ChildProcessError):
        os.waitpid(process.pid, os.WNOHANG)
