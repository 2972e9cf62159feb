"""Captures that a program or framework makes of itself, without rewritten source."""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

from opguard.core.embedded import EmbeddedPlan
from opguard.core.environment import identify_rank, regions_from_environment
from opguard.core.receipt import publish_receipt
from opguard.core.selection import Selection
from opguard.core.session import Session


class EmbeddedSession(Session):
    """A session that a program starts and stops itself; see :func:`start`."""

    def __init__(
        self,
        output: Path,
        plan: EmbeddedPlan,
        selection: Selection,
        *,
        regions: int,
        local_root: str | os.PathLike[str] | None,
        capture_id: str | None,
    ) -> None:
        self._identity = identify_rank(os.environ)
        if capture_id is None:
            if self._identity.world_size > 1:
                raise ValueError(
                    "capture_id is needed with several ranks: pass the same 32 hexadecimal digits "
                    "on every rank (one rank can draw and broadcast them)"
                )
            capture_id = secrets.token_hex(16)
        self._output = output
        self._staging = Path(tempfile.mkdtemp(prefix="opguard-", dir=local_root))
        self._stopped = False
        try:
            super().__init__(
                output / "capture",
                self._staging,
                capture_id=capture_id,
                rank=self._identity.rank,
                regions=regions,
                plan=plan,
                checkout=plan.root,
                selection=selection,
            )
        except BaseException:
            shutil.rmtree(self._staging, ignore_errors=True)
            raise
        atexit.register(self._at_exit)

    def _at_exit(self) -> None:
        self.stop(getattr(sys, "last_value", None))

    def stop(self, failure: BaseException | None = None) -> None:
        """End the recording and complete the capture; a second call does nothing.

        Args:
            failure: The exception that ended what was recorded.

        Raises:
            OSError: The capture could not be published.
        """
        # A forked child may come here as well: the capture is its parent's.
        if self._stopped or os.getpid() != self._pid:
            return
        self._stopped = True
        atexit.unregister(self._at_exit)
        try:
            self.close()
            if self._plan is not None:
                self._plan.write(self._output, self.capture_id, self._identity)
            publish_receipt(
                self, action="trace", rank=self._identity, deterministic=False, failure=failure
            )
        finally:
            shutil.rmtree(self._staging, ignore_errors=True)


def start(
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
) -> EmbeddedSession:
    """Start recording a part of a training; :meth:`EmbeddedSession.stop` ends it.

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

    The last four are read from ``OPGUARD_SELECT_STEPS``, ``_PHASES``, ``_CALLSITES`` and
    ``_LEVELS`` where none of them is given. What is outside runs unrecorded, and the capture says
    so.

    Returns:
        The active session. The end of the process stops it as well, unless that comes by a signal
        or by ``os._exit``, which leave the capture incomplete.

    Raises:
        FileExistsError: The output holds this rank's capture already.
        ValueError: ``regions``, ``capture_id`` or what is to be recorded is malformed, or several
            ranks share no id.
        RuntimeError: Another session is active.
    """
    if steps is None and phases is None and callsites is None and levels is None:
        selection = Selection.from_environment(os.environ)
    else:
        selection = Selection.of(steps, phases, callsites, levels)
    session = EmbeddedSession(
        Path(output).absolute(),
        EmbeddedPlan(Path(root) if root is not None else Path.cwd(), selection),
        selection,
        regions=regions_from_environment(os.environ) if regions is None else regions,
        local_root=local_root,
        capture_id=capture_id,
    )
    session.start()
    return session


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
) -> Iterator[EmbeddedSession]:
    """Record a part of a training while a block runs.

    The arguments and what is raised are those of :func:`start`.

    Yields:
        The active :class:`EmbeddedSession`.
    """
    session = start(
        output,
        root=root,
        regions=regions,
        local_root=local_root,
        capture_id=capture_id,
        steps=steps,
        phases=phases,
        callsites=callsites,
        levels=levels,
    )
    try:
        yield session
    except BaseException as error:
        session.stop(error)
        raise
    session.stop()
