"""Signals during a transaction: turned into exceptions, and held back while files move.

Python runs signal handlers in the main thread, between two instructions. That is enough to break a
``finally``: a second Ctrl-C can arrive while the first one is being cleaned up after.
``SignalGuard`` closes that gap.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

GUARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_Handler = Callable[[int, FrameType | None], Any] | int | signal.Handlers


class Interrupted(BaseException):
    """SIGTERM or SIGHUP arrived. Not an ``Exception``, so that only cleanup code sees it.

    Attributes:
        signum: The signal.
    """

    def __init__(self, signum: int) -> None:
        """Name the signal."""
        super().__init__(f"interrupted by {signal.Signals(signum).name}")
        self.signum = signal.Signals(signum)


def _raise_for(signum: int, _frame: FrameType | None) -> None:
    """The default meaning of a guarded signal: an exception in the main thread."""
    if signum == signal.SIGINT:
        raise KeyboardInterrupt
    raise Interrupted(signum)


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise ``Interrupted`` in the main thread, as Ctrl-C raises.

    An ignored signal (``nohup``, a background job) stays ignored. The previous handlers are put
    back at the end. Outside the main thread, where handlers cannot be set, this does nothing.

    Source:
        Protocol requirements B8, D5.
    """
    previous: dict[int, _Handler] = {}
    try:
        if threading.current_thread() is threading.main_thread():
            for signum in (signal.SIGTERM, signal.SIGHUP):
                handler = signal.getsignal(signum)
                if handler not in (signal.SIG_IGN, None):
                    previous[signum] = handler
                    signal.signal(signum, _raise_for)
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class SignalGuard:
    """Handlers that pass signals on in a transaction's body and keep them back around it.

    While ``holding``, and whenever the interrupted code is inside the owner's ``__exit__``, a
    signal is only noted; ``release`` delivers what was noted. Looking at the frames covers the
    instant at which ``__exit__`` has been entered but none of its statements has run.

    In the body a signal goes to the handler that was set before; where that is the system's
    default, which would end the process at once, it raises instead. Ignored signals stay ignored.
    Outside the main thread the guard does nothing: exceptions from signals never arise there.
    """

    def __init__(self, owner: object) -> None:
        """Prepare a guard for the context manager ``owner``; nothing is installed yet."""
        self._owner = owner
        self._previous: dict[int, _Handler] = {}
        self._pending: list[int] = []
        self._released = False
        self.holding = False

    def __enter__(self) -> SignalGuard:
        """Install, holding every signal."""
        self.install()
        return self

    def __exit__(self, *_: object) -> None:
        """Release."""
        self.release()

    def install(self) -> None:
        """Start to hold signals back."""
        self.holding = True
        if threading.current_thread() is not threading.main_thread():
            return
        for signum in GUARDED:
            handler = signal.getsignal(signum)
            if handler in (signal.SIG_IGN, None):
                continue
            self._previous[signum] = handler
            signal.signal(signum, self._handle)

    def deliver(self) -> None:
        """Pass on what was held, then let signals through as they arrive.

        Called last in the owner's ``__enter__``: the first signal that raises from within
        ``__enter__`` makes the guard hold again, so the undoing that follows is not interrupted.
        """
        self.holding = False
        while self._pending:
            self._pass_on_once(self._pending.pop(0), None)

    def release(self) -> None:
        """Put the previous handlers back, then deliver what was held."""
        # From here on a handler that is still ours passes signals on: if one of them ends this
        # method early, no signal is lost later.
        self._released = True
        try:
            for signum, handler in self._previous.items():
                signal.signal(signum, handler)
        finally:
            self._raise_pending()

    def _raise_pending(self) -> None:
        """Send the noted signals to this process again; one that raises does not hide the next."""
        if self._pending:
            try:
                signal.raise_signal(self._pending.pop(0))
            finally:
                self._raise_pending()

    def _handle(self, signum: int, frame: FrameType | None) -> None:
        """Note a signal or pass it on, by what the interrupted code is doing."""
        method = None if self._released else self._owner_method(frame)
        if not self._released and (self.holding or method == "__exit__"):
            if signum not in self._pending:
                self._pending.append(signum)
        elif method == "__enter__":
            self._pass_on_once(signum, frame)
        else:
            self._pass_on(signum, frame)

    def _pass_on_once(self, signum: int, frame: FrameType | None) -> None:
        """Pass a signal on and, if that raises, hold the ones that follow."""
        self.holding = True
        self._pass_on(signum, frame)
        self.holding = False

    def _pass_on(self, signum: int, frame: FrameType | None) -> None:
        """Do what the handler would have done that was set before."""
        handler = self._previous.get(signum)
        if callable(handler):
            handler(signum, frame)
        else:
            _raise_for(signum, frame)

    def _owner_method(self, frame: FrameType | None) -> str | None:
        """``__enter__`` or ``__exit__`` when the stack is inside that method of the owner."""
        while frame is not None:
            name = frame.f_code.co_name
            if name in ("__enter__", "__exit__") and frame.f_locals.get("self") is self._owner:
                return name
            frame = frame.f_back
        return None
