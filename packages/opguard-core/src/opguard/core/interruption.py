"""Tell an exception of the workload's own signal handlers from a failure of the tracer."""

from __future__ import annotations

import signal
from typing import Any


def comes_from_signal_handler(error: BaseException) -> bool:
    """Whether ``error`` was raised by a Python signal handler.

    A handler runs between any two instructions of the main thread, those of the tracer included.
    What it raises there belongs to the workload: a time limit, say.
    """
    traceback = error.__traceback__
    frames = []
    while traceback is not None:
        frames.append(traceback.tb_frame)
        traceback = traceback.tb_next
    # Most errors pass no other code than the tracer's, such as that of an attribute that is not
    # there; asking the system for all its handlers takes a tenth of a millisecond.
    foreign = {frame.f_code for frame in frames if not _is_tracers(frame.f_globals)}
    return bool(foreign) and not foreign.isdisjoint(_handlers())


def _is_tracers(variables: dict[str, Any]) -> bool:
    return str(variables.get("__name__")).startswith(f"{__package__}.")


def _handlers() -> set[Any]:
    """The code of every signal handler."""
    handlers = map(signal.getsignal, signal.valid_signals())
    return {_code(handler) for handler in handlers if callable(handler)}


def _code(handler: Any) -> Any:
    """The code that runs when a handler is called: a function's, a method's, an object's."""
    while hasattr(handler, "func"):  # functools.partial
        handler = handler.func
    code = getattr(handler, "__code__", None)
    return code if code is not None else getattr(type(handler).__call__, "__code__", None)
