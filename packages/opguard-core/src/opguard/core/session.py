"""Recording sessions: one writer, one recorder, one rank's share of a capture."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import xorsig
from opguard.core import _site, _torch_import, recursion
from opguard.core.embedded import EmbeddedPlan
from opguard.core.environment import identify_rank, regions_from_environment
from opguard.core.receipt import publish_receipt
from opguard.core.selection import Selection

if TYPE_CHECKING:
    from opguard.core.recording.recorder import CallRecorder

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
        self._deep = deep
        self._checkout = checkout
        self._recorder: CallRecorder | None = None
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
        self._recorder = CallRecorder(
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
            _site.install(None if self._recorder.paused else self._recorder)

    def _abandon(self) -> None:
        """In a forked child, where the writer ignores every record: the capture is the parent's."""
        if self._recorder is not None:
            self._recorder.enabled = False

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

    def observe(self, function: Function, name: str | None = None) -> Function:
        """Make ``function`` a callsite: its arguments and results are recorded at every call.

        Args:
            function: Any callable; a module is observed through its ``__call__``.
            name: Name in reports; the function's own by default.

        Returns:
            A callable that behaves as ``function``; outside an active session it is ``function``.

        Raises:
            RuntimeError: The session records rewritten source, whose callsites are in its plan.
        """
        index = self._site(function, name, sys._getframe(1))
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
    def scope(self, name: str) -> Iterator[None]:
        """Group the calls of a ``with`` block under one named call."""
        index = self._site(_named, name, sys._getframe(2))
        recorder = self._recorder
        if recorder is None or index is None or recorder.full:
            yield
            return
        token = recorder.begin(index, _named, (), None)
        try:
            yield
        except BaseException as error:
            if token is not None:
                recorder.fail(token, error)
            raise
        if token is not None:
            recorder.finish(token, None)

    def _site(self, function: Any, name: str | None, frame: Any) -> int | None:
        if self._plan is None:
            raise RuntimeError(
                "this session records rewritten source; callsites cannot be named at run time"
            )
        return self._plan.site(function, name, frame)

    # The end.

    def flush(self) -> None:
        """Publish what is recorded so far; waits until it is on disk."""
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
            if recorder is not None:
                recorder.close()
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
            self._totals = {"batches": stats["batches"], "records": stats["records"]}
        return self._totals | self._counts


def _leave_to_the_parent() -> None:
    global _current
    if _current is not None:
        session, _current = _current, None
        _site.install(None)
        session._abandon()


os.register_at_fork(after_in_child=_leave_to_the_parent)


def _named(*values: Any) -> Any:
    return values[0] if values else None


@contextlib.contextmanager
def capture(
    output: str | os.PathLike[str],
    *,
    root: str | os.PathLike[str] | None = None,
    regions: int | None = None,
    local_root: str | os.PathLike[str] | None = None,
    capture_id: str | None = None,
    steps: str | Iterable[int] | None = None,
    phases: str | Iterable[str] | None = None,
    callsites: str | Iterable[str] | None = None,
    levels: str | int | None = None,
) -> Iterator[Session]:
    """Record a part of a training from inside the process.

    The directory can be compared like one written by the command line:
    ``opguard-tools diff --captures A B``.

    Args:
        output: Fresh directory for the capture; with several ranks, the same one for all.
        root: Folder of the source that callsites are reported relative to; the current one by
            default.
        regions: Regions per fingerprint; ``OPGUARD_XOR_REGIONAL`` or 4 by default.
        local_root: Folder on a local disk for unpublished batches; a temporary one by default.
        capture_id: 32 hexadecimal digits that all ranks share; needed with several ranks.
        steps: Steps to record, such as ``"0-3,10,20-"`` or ``range(4)``.
        phases: Phases to record: ``forward``, ``backward``, ``optimizer``.
        callsites: Patterns of callsites to record, each ``FILE[:FUNCTION[:CALLEE]]``.
        levels: How deep recorded calls may be nested; 1 records only the outermost.

    The four of them are read from ``OPGUARD_SELECT_STEPS``, ``_PHASES``, ``_CALLSITES`` and
    ``_LEVELS`` where none is given. What is outside runs unrecorded, and the capture says so.

    Yields:
        The active :class:`Session`.

    Raises:
        FileExistsError: The output holds this rank's capture already.
        ValueError: ``regions``, ``capture_id`` or what is to be recorded is malformed, or several
            ranks share no id.
        RuntimeError: Another session is active.
    """
    rank = identify_rank(os.environ)
    if regions is None:
        regions = regions_from_environment(os.environ)
    if capture_id is None:
        if rank.world_size > 1:
            raise ValueError(
                "capture_id is needed with several ranks: pass the same 32 hexadecimal digits on "
                "every rank (one rank can draw and broadcast them)"
            )
        capture_id = secrets.token_hex(16)
    destination = Path(output).absolute()
    directory = destination / "capture"
    staging = Path(tempfile.mkdtemp(prefix="opguard-", dir=local_root))
    owner = os.getpid()
    if steps is None and phases is None and callsites is None and levels is None:
        selection = Selection.from_environment(os.environ)
    else:
        selection = Selection.of(steps, phases, callsites, levels)
    plan = EmbeddedPlan(Path(root) if root is not None else Path.cwd(), selection)
    try:
        session = Session(
            directory,
            staging,
            capture_id=capture_id,
            rank=rank.rank,
            regions=regions,
            plan=plan,
            checkout=plan.root,
            selection=selection,
        )
        session.start()
        failure: BaseException | None = None
        try:
            yield session
        except BaseException as error:
            failure = error
            raise
        finally:
            # A forked child may leave the block as well: the capture is its parent's.
            if os.getpid() == owner:
                session.close()
                plan.write(destination, capture_id, rank)
                publish_receipt(
                    session, action="trace", rank=rank, deterministic=False, failure=failure
                )
    finally:
        if os.getpid() == owner:
            shutil.rmtree(staging, ignore_errors=True)
