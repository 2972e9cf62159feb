"""Tell an exception of the workload's own signal handlers from a failure of the tracer."""

from __future__ import annotations

import signal
from typing import Any


def comes_from_signal_handler(error: BaseException) -> bool:
    """Whether ``error`` was raised by a Python signal handler.

    A handler runs between any two instructions of the main thread, those of the tracer included.
    What it raises there belongs to the workload: a time limit, say.
    """
    handlers = {
        _code(signal.getsignal(number))
        for number in signal.valid_signals()
        if callable(signal.getsignal(number))
    } - {None}
    frames = error.__traceback__
    while frames is not None:
        if frames.tb_frame.f_code in handlers:
            return True
        frames = frames.tb_next
    return False


def _code(handler: Any) -> Any:
    """The code that runs when a handler is called: a function's, a method's, an object's."""
    while hasattr(handler, "func"):  # functools.partial
        handler = handler.func
    code = getattr(handler, "__code__", None)
    return code if code is not None else getattr(type(handler).__call__, "__code__", None)
