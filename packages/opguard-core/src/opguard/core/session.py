"""Recording sessions: one writer, one recorder, one rank's share of a capture."""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import xorsig
from opguard.core import _site, _torch_import, recursion
from opguard.core.device_activity import DeviceActivity
from opguard.core.embedded import EmbeddedPlan
from opguard.core.selection import Selection

if TYPE_CHECKING:
    from opguard.core.recording.recorder import CallRecorder

Depth = Literal["call", "aten"]
Function = TypeVar("Function", bound=Callable[..., Any])

_COUNTS = ("calls", "tensors", "steps", "other_thread_calls", "recorder_failures")

_current: Session | None = None


class Session:
    """Records the calls of instrumented source, and those named by :meth:`observe`.

    One session is active in a process at a time. It records the thread that made it, from the
    moment when the workload has imported torch; forked children inherit an inactive session.

    Args:
        capture: Directory of the whole capture; this rank writes ``rank-<r>`` in it.
        staging: Directory on a local disk for batches that are not published yet.
        capture_id: 32 hexadecimal digits that all ranks share.
        rank: Global rank.
        regions: Regions per fingerprint, 1 to 64.
        plan: Receives callsites that are named at run time; ``None`` when the source was rewritten.
        deep: Callsites of rewritten source whose operators are recorded as well.
        checkout: Folder of the workload's own source.
        selection: What is recorded; everything by default.

    Raises:
        FileExistsError: The rank has written to this capture before.
        RuntimeError: Another session is active.
    """

    def __init__(
        self,
        capture: Path,
        staging: Path,
        *,
        capture_id: str,
        rank: int,
        regions: int = 4,
        plan: EmbeddedPlan | None = None,
        deep: Set[int] = frozenset(),
        checkout: Path | None = None,
        selection: Selection | None = None,
    ) -> None:
        if _current is not None:
            raise RuntimeError(
                "an OpGuard session is active in this process; end it before starting another"
            )
        self.capture = capture
        self.capture_id = capture_id
        self.rank = rank
        self.regions = regions
        self.selection = selection if selection is not None else Selection()
        self.started_unix_ns = time.time_ns()
        self.packages: set[str] = set()
        self._pid = os.getpid()
        self._thread = threading.get_ident()
        self._plan = plan
        self._deep = set(deep)
        self._checkout = checkout
        self._recorder: CallRecorder | None = None
        self.activity: DeviceActivity | None = None
        self.device_used = False
        self._writer = xorsig.CaptureWriter(
            str(capture / f"rank-{rank}"),
            str(staging),
            capture_id=capture_id,
            rank=rank,
            regions=regions,
        )
        self._totals: dict[str, int] | None = None
        self._counts = dict.fromkeys(_COUNTS, 0)

    def start(self) -> None:
        """Record from now on, or from the moment when torch is imported."""
        global _current
        _current = self
        _torch_import.when_torch_is_imported(self._activate)

    def _activate(self) -> None:
        if self._totals is not None or os.getpid() != self._pid:
            return
        from opguard.core.compiled import keep_compiled_graphs
        from opguard.core.recording.recorder import CallRecorder

        keep_compiled_graphs()
        recursion.make_room()
        make: Callable[..., CallRecorder] = CallRecorder
        self.activity = DeviceActivity(self.capture / "activity", self.rank, os.environ)
        if self.activity.wanted:
            from opguard.core.recording.activity import ActivityRecorder

            make = functools.partial(ActivityRecorder, activity=self.activity)
        self._recorder = make(
            self._writer,
            self.regions,
            self._thread,
            deep=self._deep,
            capture=self.capture,
            checkout=self._checkout,
            selection=self.selection,
            on_step=self._at_step,
        )
        self._at_step(0)

    def _at_step(self, step: int) -> None:
        """Leave the recorder out of the way in steps that are not selected."""
        if self._recorder is not None and _current is self:
            self._recorder.paused = not self.selection.takes_step(step)
            if self._recorder.paused and self.activity is not None:
                self.activity.pause()
            _site.install(None if self._recorder.paused else self._recorder)

    def _abandon(self) -> None:
        """In a forked child, where the writer ignores every record: the capture is the parent's."""
        if self._recorder is not None:
            self._recorder.enabled = False
        if self.activity is not None:
            self.activity.leave_to_the_parent()

    # What a workload or framework may call.

    def step(self) -> None:
        """Complete a step of the run, where no optimizer's ``step`` does it."""
        if self._recorder is not None:
            self._recorder.completed_step()

    def mark(self, name: str, value: object = "") -> None:
        """Write a named mark, such as an epoch number, between calls."""
        if self._recorder is not None:
            from opguard.core.recording.frames import Mark

            self._recorder.note(Mark.USER, name, str(value))

    def observe(
        self, function: Function, name: str | None = None, *, depth: Depth = "call"
    ) -> Function:
        """Make ``function`` a callsite: its arguments and results are recorded at every call.

        Args:
            function: Any callable; a module is observed through its ``__call__``.
            name: Name in reports; the function's own by default.
            depth: ``aten`` also records every operator that runs inside a call, with the lines of
                libraries that led to it.

        Returns:
            A callable that behaves as ``function``; outside an active session it is ``function``.

        Raises:
            RuntimeError: The session records rewritten source, whose callsites are in its plan.
        """
        index = self._site(function, name, sys._getframe(1), depth)
        if index is None or self._recorder is None or _current is not self:
            return function
        # Not by `_site`, which hands back the function in steps that are not selected.
        return cast("Function", xorsig.CallSite(index, function, self._recorder))

    def tensor(self, name: str, tensor: Any) -> None:
        """Record one tensor under a name of the caller's choice."""
        index = self._site(_named, name, sys._getframe(1))
        if index is not None:
            _site.site(index, _named)(tensor)

    @contextlib.contextmanager
    def scope(self, name: str, *, depth: Depth = "call") -> Iterator[None]:
        """Group the calls of a ``with`` block under one named call.

        Args:
            name: Name in reports.
            depth: ``aten`` also records every operator that runs in the block, with the lines of
                the program and of libraries that led to it.
        """
        index = self._site(_named, name, _caller(sys._getframe(1)), depth)
        recorder = self._recorder
        if recorder is None or index is None or recorder.full:
            yield
            return
        token = recorder.begin(index, _named, (), None)
        if token is not None:
            # The block runs in the caller's frame, whose own lines count as well.
            token.caller = None
        try:
            yield
        except BaseException as error:
            if token is not None:
                recorder.fail(token, error)
            raise
        if token is not None:
            recorder.finish(token, None)

    def _site(
        self, function: Any, name: str | None, frame: Any, depth: Depth = "call"
    ) -> int | None:
        if self._plan is None:
            raise RuntimeError(
                "this session records rewritten source; callsites cannot be named at run time"
            )
        index = self._plan.site(function, name, frame, depth)
        if index is not None and depth == "aten":
            self._deep.add(index)
        return index

    # The end.

    def flush(self) -> None:
        """Publish what is recorded so far; waits until it is on disk."""
        if self._recorder is not None:
            self._recorder.flush()
        self._writer.flush()

    def close(self) -> dict[str, int]:
        """Stop recording and publish the rest.

        Returns:
            Totals for the receipt: ``batches``, ``records`` and the recorder's counts.

        Raises:
            OSError: A batch could not be published.
        """
        global _current
        if self._totals is None:
            if _current is self:
                _current = None
                _site.install(None)
                recursion.give_back_room()
            recorder = self._recorder
            if self.activity is not None:
                self.activity.close()
            if recorder is not None:
                recorder.close()
                self.device_used = recorder.device_used
                self.packages |= recorder.packages
                numbers = (
                    recorder.calls,
                    recorder.tensors,
                    recorder.step,
                    recorder.elsewhere,
                    recorder.failures,
                )
                self._counts = dict(zip(_COUNTS, numbers, strict=True))
            stats = self._writer.close()
            self._counts["tensors"] -= stats["withdrawn"]
            self._totals = {"batches": stats["batches"], "records": stats["records"]}
        return self._totals | self._counts


def _leave_to_the_parent() -> None:
    global _current
    if _current is not None:
        session, _current = _current, None
        _site.install(None)
        session._abandon()


os.register_at_fork(after_in_child=_leave_to_the_parent)


def _caller(frame: Any) -> Any:
    """The frame outside of ``contextlib`` that a context manager was entered from."""
    while frame.f_code.co_filename == contextlib.__file__:
        frame = frame.f_back
    return frame


def _named(*values: Any) -> Any:
    return values[0] if values else None
