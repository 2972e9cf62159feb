"""The lock that lets one operation at a time work on a checkout."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
import weakref
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from opguard.tools.transaction import layout
from opguard.tools.transaction.errors import CheckoutLockedError, CheckoutUnusableError

# A holder writes its name right after it has taken the lock; a second operation that looks in
# between waits this long for the name, never for the lock.
_HOLDER_TRIES = 20
_HOLDER_WAIT_SECONDS = 0.01

_held: weakref.WeakSet[CheckoutLock] = weakref.WeakSet()


class CheckoutLock:
    """Exclusive lock on a checkout, held from ``__enter__`` to ``__exit__``.

    The lock is ``flock(2)`` on ``CHECKOUT/.opguard/lock``. The kernel drops it when the process
    ends, however it ends. Linux maps it to byte-range locks on NFS, so it also works between nodes
    there (not on mounts with ``local_lock`` or ``nolock``). Unlike ``lockf``, it is not lost when
    an unrelated part of the process opens and closes the same file, and it excludes a second
    holder in the same process.

    An ``flock`` belongs to the open file, which forked children share. So the descriptor is closed
    on exec (as Python does by default), closed in every child made by ``os.fork``, and the lock
    is dropped explicitly at the end: nothing that the operation started can keep it.

    Args:
        checkout: The folder that holds the workload's sources.
        operation: What the lock is for, as others see it: ``trace``, ``recover``.

    Raises:
        CheckoutLockedError: On entry, at once, when another operation holds the lock.
        CheckoutUnusableError: On entry, when the checkout is not a writable directory or its file
            system has no locks.

    Source:
        Protocol requirement D2.
    """

    def __init__(self, checkout: Path, operation: str = "operation") -> None:
        """Prepare a lock; nothing is touched before ``__enter__``."""
        self.checkout = layout.real_checkout(Path(checkout))
        self.operation = operation
        self._descriptor: int | None = None

    @property
    def path(self) -> Path:
        """The lock file."""
        return layout.state_directory(self.checkout) / layout.LOCK_NAME

    def __enter__(self) -> Self:
        """Take the lock or fail at once."""
        if self._descriptor is not None:
            raise RuntimeError("this CheckoutLock is held already; make another one")
        layout.ensure_state_directory(self.checkout)
        descriptor = self._open_and_lock()
        self._descriptor = descriptor
        _held.add(self)
        holder = {
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "operation": self.operation,
            "since": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        try:
            text = json.dumps(holder).encode() + b"\n"
            # Written before the rest is cut off: a reader sees the old or the new first line.
            os.pwrite(descriptor, text, 0)
            os.ftruncate(descriptor, len(text))
        except OSError as error:
            self._release()
            raise self._unusable(error) from error
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Drop the lock. The empty lock file stays (see ``layout.ensure_state_directory``)."""
        self._release()

    def _open_and_lock(self) -> int:
        """Open the lock file and lock it; the name still leads to it afterwards."""
        while True:
            try:
                # Open for writing: NFS grants an exclusive lock only then.
                flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
                descriptor = os.open(self.path, flags, 0o644)
            except OSError as error:
                raise self._unusable(error) from error
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                # Somebody may have cleaned ``.opguard`` away between the two calls.
                current = os.stat(self.path, follow_symlinks=False)
                if os.path.samestat(current, os.fstat(descriptor)):
                    return descriptor
                os.close(descriptor)
            except FileNotFoundError:
                os.close(descriptor)
                layout.ensure_state_directory(self.checkout)
            except BlockingIOError as error:
                os.close(descriptor)
                raise self._locked() from error
            except OSError as error:
                os.close(descriptor)
                raise self._unusable(error) from error

    def _locked(self) -> CheckoutLockedError:
        """The error that names the process in the way."""
        holder = _read_holder(self.path)
        return CheckoutLockedError(
            f"checkout {self.checkout} is in use by process {holder.get('pid', 'unknown')} on host "
            f"{holder.get('host', 'unknown')} (operation {holder.get('operation', 'unknown')}, "
            f"since {holder.get('since', 'unknown')}): wait until it has ended, or end it, "
            "then try again",
            checkout=str(self.checkout),
            pid=holder.get("pid"),
            host=holder.get("host"),
            operation=holder.get("operation"),
            since=holder.get("since"),
        )

    def _unusable(self, error: OSError) -> CheckoutUnusableError:
        """The error for a lock that the system refuses."""
        return CheckoutUnusableError(
            f"checkout {self.checkout} cannot be locked: {self.path}: {error.strerror}; make "
            "the checkout writable and put it on a file system with file locks (a Lustre mount "
            "needs the option flock, an NFS mount must not have nolock)",
            checkout=str(self.checkout),
        )

    def _release(self) -> None:
        """Empty the file, unlock and close; safe to call again."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        _held.discard(self)
        # A stale mount may refuse any of these; the operation itself is over by now.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
        with contextlib.suppress(OSError):
            # Closing alone would leave the lock with a child that shares the open file.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
        with contextlib.suppress(OSError):
            os.close(descriptor)

    def _forget_in_child(self) -> None:
        """Close the copy that a forked child got. Unlocking here would unlock the parent."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def is_locked_here(checkout: Path) -> bool:
    """Whether this process holds the lock of a checkout (a real path)."""
    return any(lock.checkout == checkout for lock in _held)


def _read_holder(path: Path) -> dict[str, Any]:
    """What the lock file says about its holder; empty when it does not say."""
    for _ in range(_HOLDER_TRIES):
        try:
            holder = json.loads(path.read_bytes().partition(b"\n")[0])
        except (OSError, ValueError):
            holder = None
        if isinstance(holder, dict):
            return holder
        time.sleep(_HOLDER_WAIT_SECONDS)
    return {}


def _forget_locks_in_child() -> None:
    """Let go of every lock in a forked child."""
    for lock in list(_held):
        lock._forget_in_child()
    _held.clear()


os.register_at_fork(after_in_child=_forget_locks_in_child)
