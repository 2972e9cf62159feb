"""The source transaction: instrument a checkout, run something, put everything back."""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Self

from opguard.tools import durable
from opguard.tools.digests import sha256
from opguard.tools.protocol.errors import OpGuardError, OutputExistsError, PathConflictError
from opguard.tools.transaction import layout, records, replace, restore
from opguard.tools.transaction.errors import (
    InstrumentationError,
    RestoreError,
    SourceChangedError,
    SourceMismatchError,
)
from opguard.tools.transaction.lock import CheckoutLock, is_locked_here
from opguard.tools.transaction.planning import PlannedFile, plan_files
from opguard.tools.transaction.signals import SignalGuard

# An instrumented file is dated at least this much later than its original, so that whatever
# compares times in whole seconds (Python's bytecode caches do) sees two different files.
_LATER_NS = 1_000_000_000


class SourceTransaction:
    """Instrumented sources in a checkout from ``__enter__`` to ``__exit__``.

    On entry, in this order: the lock is taken, unless this process holds it already; a checkout
    with a marker is refused; every file is checked against its expected digest; copies of the
    originals and ``originals.json`` are made durable in ``instrument_directory``; the marker is
    made durable; the files are replaced, each atomically. On exit, whatever ended the body, every
    file whose content is exactly the instrumented one gets its original back, and the marker goes.
    A failed entry leaves the sources as they were.

    Signals do not interrupt entry or exit; they are delivered afterwards. In the body, SIGTERM and
    SIGHUP raise ``Interrupted`` unless a handler is set or they are ignored. That holds in the main
    thread, where operations run. In a forked child that leaves the body, exit does nothing.

    Attributes:
        checkout: Real path of the checkout.
        files: The replaced files as recorded in ``originals.json``; empty before entry.

    Source:
        Protocol requirements D1-D6, D8.
    """

    def __init__(
        self,
        checkout: Path,
        instrument_directory: Path,
        files: Mapping[str, bytes],
        expected: Mapping[str, str],
        operation: str = "trace",
    ) -> None:
        """Prepare a transaction; nothing is touched before ``__enter__``.

        Args:
            checkout: The folder that holds the sources.
            instrument_directory: ``OUTPUT-instrument``; must not exist, or be empty.
            files: New content by path relative to the checkout.
            expected: SHA-256 of the present content by the same paths.
            operation: Name for lock and marker.

        Raises:
            CheckoutUnusableError: The checkout is not a directory.
        """
        self.checkout = layout.real_checkout(Path(checkout))
        self.files: tuple[records.OriginalFile, ...] = ()
        self._instrument_directory = Path(instrument_directory).absolute()
        self._planned_content = dict(files)
        self._expected = dict(expected)
        self._operation = operation
        self._contents: dict[str, bytes] = {}
        self._touched: list[records.OriginalFile] = []
        self._marked = False
        self._pid = os.getpid()
        self._guard = SignalGuard(self)
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """Instrument the checkout, or leave it as it was.

        Raises:
            CheckoutLockedError: Another operation holds the checkout.
            CheckoutMarkedError: An earlier operation left its marker.
            CheckoutUnusableError: The checkout, or a folder of a source, is not writable.
            SourceMismatchError: A file is not the expected one.
            UnsafeSourceError: A file cannot be replaced safely.
            OutputExistsError: ``instrument_directory`` holds something.
            PathConflictError: ``instrument_directory`` is inside the checkout.
            InstrumentationError: The system refused a step.
            SourceChangedError: A file was edited while the entry was being undone.
            RestoreError: The system refused a step of undoing.
        """
        self._pid = os.getpid()
        try:
            self._guard.install()
            self._begin()
            self._guard.deliver()
            return self
        except BaseException as error:
            try:
                self._end()
            finally:
                self._guard.release()
            if isinstance(error, OSError):
                raise InstrumentationError(
                    f"sources in {self.checkout} could not be instrumented: {error}. They are as "
                    "they were; remove the cause and start again with a new output directory",
                    checkout=str(self.checkout),
                    path=error.filename,
                ) from error
            raise

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Restore the sources.

        Raises:
            SourceChangedError: Files were edited during the operation. The edits, the copies of the
                originals and the marker are kept, the other files are restored.
            RestoreError: The system refused to restore files. The marker is kept.
        """
        if os.getpid() != self._pid:
            return
        try:
            self._guard.holding = True
            self._end()
        finally:
            self._guard.release()

    def _begin(self) -> None:
        """Everything between a clean checkout and an instrumented one."""
        if not is_locked_here(self.checkout):
            self._stack.enter_context(CheckoutLock(self.checkout, self._operation))
        layout.ensure_state_directory(self.checkout)
        records.refuse_marked(self.checkout)
        planned = plan_files(self.checkout, self._planned_content, self._expected)
        self._contents = {file.path: file.original for file in planned}
        token = secrets.token_hex(8)
        self.files = tuple(
            _record(file, f"{token}-{position}") for position, file in enumerate(planned)
        )
        originals = self._save_originals(planned)
        self._mark(originals)
        for file, source in zip(self.files, planned, strict=True):
            self._instrument(file, source)

    def _save_originals(self, planned: tuple[PlannedFile, ...]) -> bytes:
        """Write the copies and ``originals.json``; returns the latter's content once durable."""
        directory = self._instrument_directory
        if directory.resolve().is_relative_to(self.checkout):
            raise PathConflictError(
                f"{directory} is inside the checkout {self.checkout}: choose an output elsewhere",
                path=str(directory),
            )
        durable.make_directory(directory)
        if os.listdir(directory):
            raise OutputExistsError(
                f"{directory} holds files already: choose a new output directory",
                path=str(directory),
            )
        folders = {directory}
        for file in planned:
            copies = (
                (records.original_copy(directory, file.path), file.original, file.mtime_ns),
                (records.instrumented_copy(directory, file.path), file.instrumented, None),
            )
            for path, content, mtime_ns in copies:
                durable.make_directory(path.parent)
                durable.write_new(path, content, mode=file.mode, mtime_ns=mtime_ns)
                folders.add(path.parent)
        text = records.Originals(
            operation=self._operation, checkout=str(self.checkout), files=self.files
        ).text()
        durable.write_new(directory / layout.ORIGINALS_NAME, text, mode=0o644)
        for folder in sorted(folders):
            durable.sync_directory(folder)
        return text

    def _mark(self, originals: bytes) -> None:
        """Publish the marker: from here on a crash is recoverable, and blocks other operations."""
        marker = records.Marker(
            operation=self._operation,
            pid=os.getpid(),
            host=socket.gethostname(),
            since=datetime.now(UTC).isoformat(timespec="seconds"),
            originals=str(self._instrument_directory / layout.ORIGINALS_NAME),
            originals_sha256=sha256(originals),
        )
        # Set before publishing: if publishing fails half-way, undoing must look for the marker.
        self._marked = True
        try:
            durable.publish(layout.marker_path(self.checkout), marker.text())
        except FileExistsError:
            # The lock does not reach another node here, and one there was a moment quicker.
            self._marked = False
            records.refuse_marked(self.checkout)
            raise

    def _instrument(self, file: records.OriginalFile, source: PlannedFile) -> None:
        """Replace one source by its instrumented content."""
        self._touched.append(file)
        if file.sha256 == file.instrumented_sha256:
            return
        target = self.checkout / file.path
        mtime_ns = max(time.time_ns(), file.mtime_ns + _LATER_NS)
        places = replace.staging_places(self.checkout, file.path, file.staging)
        try:
            replace.stage(places[0], source.instrumented, like=target, mtime_ns=mtime_ns)
            unchanged = replace.replace_verified(places[0].swap, target, file.sha256)
        except OSError as error:
            if not replace.is_other_file_system(error):
                raise
            restore.discard(places[0], {file.instrumented_sha256})
            replace.stage(places[1], source.instrumented, like=target, mtime_ns=mtime_ns)
            unchanged = replace.replace_verified(places[1].swap, target, file.sha256)
        if not unchanged:
            for place in places:
                restore.discard(place, {file.instrumented_sha256})
            if not any(os.path.lexists(place.swap) for place in places):
                self._touched.pop()  # put back: this file was never instrumented
            raise SourceMismatchError(
                f"{target} was changed while the checkout was being instrumented. The change is "
                "kept and the other files are as they were; run discover and prepare again",
                checkout=str(self.checkout),
                files=[file.path],
            )

    def _end(self) -> None:
        """Restore what was touched, then remove the marker if every file is original."""
        with self._stack:
            if not self._marked:
                return
            outcome = restore.restore_files(
                self.checkout, self._touched, lambda file: self._contents[file.path]
            )
            if not outcome.complete:
                raise self._incomplete(outcome)
            records.remove_marker(self.checkout)
            self._marked = False

    def _incomplete(self, outcome: restore.Outcome) -> OpGuardError:
        """The error for files that are not original; edits are reported before failures."""
        marker = layout.marker_path(self.checkout)
        originals = self._instrument_directory / layout.ORIGINALS_NAME
        edited = "; ".join(f"{path} is now {what}" for path, what in outcome.edited.items())
        failed = "; ".join(f"{path}: {why}" for path, why in outcome.failed.items())
        kept = f"marker {marker} stays, and the originals are listed in {originals}"
        facts = {
            "checkout": str(self.checkout),
            "marker": str(marker),
            "originals": str(originals),
            "edited": sorted(outcome.edited),
            "failed": sorted(outcome.failed),
            "files": sorted([*outcome.edited, *outcome.failed]),
        }
        if outcome.edited:
            also = f" Besides, some could not be restored: {failed}." if failed else ""
            return SourceChangedError(
                f"sources in {self.checkout} changed during the operation: {edited}. They were "
                f"left alone, the others were restored;{also} {kept}. Reconcile the listed files "
                "with their originals, then run `opguard-tools recover` on the checkout",
                **facts,
            )
        return RestoreError(
            f"sources in {self.checkout} could not be restored: {failed}; {kept}. Remove the "
            "cause, then run `opguard-tools recover` on the checkout",
            **facts,
        )


def _record(file: PlannedFile, staging: str) -> records.OriginalFile:
    """The entry of a file in ``originals.json``."""
    return records.OriginalFile(
        path=file.path,
        size=len(file.original),
        mode=f"{file.mode:04o}",
        mtime_ns=file.mtime_ns,
        sha256=sha256(file.original),
        instrumented_size=len(file.instrumented),
        instrumented_sha256=sha256(file.instrumented),
        staging=staging,
    )
