"""Signals that end an operation, noted instead of acted upon.

An operation that has changed source files must not be torn out of its clean-up by an exception
from a signal handler. While an ``Interruption`` is active, SIGINT, SIGTERM and SIGHUP are only
noted; the operation looks at its own safe points and then puts everything back in order.
"""

from __future__ import annotations

import contextlib
import os
import signal
from types import FrameType, TracebackType
from typing import Any

from opguard.tools.protocol.errors import InterruptedOperationError

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interruption:
    """Context manager that notes ending signals; for the main thread.

    A signal that was ignored before (SIGHUP under ``nohup``) stays ignored.

    Attributes:
        received: Signals noted so far, in order.

    Source:
        Protocol requirements B8, D5.
    """

    def __init__(self) -> None:
        """Note nothing yet."""
        self.received: list[signal.Signals] = []
        self._previous: dict[signal.Signals, Any] = {}
        self._reader = -1
        self._writer = -1

    def __enter__(self) -> Interruption:
        """Install the handlers."""
        self._reader, self._writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Put the previous handlers back."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        os.close(self._reader)
        os.close(self._writer)

    def fileno(self) -> int:
        """Descriptor that becomes readable with a signal, for ``select``."""
        return self._reader

    def drain(self) -> None:
        """Make the descriptor unreadable until the next signal."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._reader, 64):
                pass

    def check(self) -> None:
        """Raise if a signal was noted.

        Raises:
            InterruptedOperationError: Names the signal.
        """
        if self.received:
            raise InterruptedOperationError(
                f"the operation was ended by {self.received[0].name}; what was captured until "
                "then stays in the output directory, a retry takes a new one",
                signal=self.received[0].name,
            )

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.received.append(signal.Signals(number))
        # A full pipe holds earlier notes, so the reader wakes up anyway.
        with contextlib.suppress(BlockingIOError):
            os.write(self._writer, b"!")
