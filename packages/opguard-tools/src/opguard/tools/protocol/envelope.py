"""The one JSON document that an action prints, and the file descriptor that it goes to.

A caller reads stdout as JSON whatever happens below, so stdout is set aside before anything else
runs: file descriptor 1 becomes a copy of stderr, and only the envelope goes to the descriptor that
the caller reads. A stray ``print``, or one from a C library, cannot reach it.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from opguard.tools.protocol.errors import (
    InternalError,
    InterruptedOperationError,
    MissingDependencyError,
    OpGuardError,
)
from opguard.tools.protocol.models.base import PROTOCOL_VERSION, ClosedModel

EXIT_SUCCESS = 0
EXIT_FAILURE = 1


def success_document(result: ClosedModel) -> dict[str, Any]:
    """The envelope of a result.

    Source:
        Protocol requirement A3.
    """
    return {
        "protocol_version": PROTOCOL_VERSION,
        "ok": True,
        "result": result.model_dump(mode="json"),
    }


def failure_document(error: OpGuardError) -> dict[str, Any]:
    """The envelope of an error.

    An error raised while an earlier one was being handled (a source file that could not be put
    back after a failed run) carries the earlier message too: both need attention.

    Source:
        Protocol requirement A4.
    """
    message = error.message
    earlier = error.__context__
    if isinstance(earlier, OpGuardError) and error.__cause__ is not earlier:
        message += f"\nBefore that, {earlier.error_type}: {earlier.message}"
    return {
        "protocol_version": PROTOCOL_VERSION,
        "ok": False,
        "error": {"type": error.error_type, "message": message},
    }


def encode(document: dict[str, Any]) -> bytes:
    """One line of ASCII JSON, with a final newline."""
    return json.dumps(document, allow_nan=False).encode("ascii") + b"\n"


@contextmanager
def reserved_stdout() -> Iterator[Callable[[bytes], None]]:
    """Set stdout aside, so that only what is given to the yielded function reaches it.

    Inside, file descriptor 1 and ``sys.stdout`` lead to stderr. Both are put back at the end.

    Yields:
        A function that writes bytes to the caller's stdout, complete or with an ``OSError``.

    Source:
        Protocol requirement A5.
    """
    sys.stdout.flush()
    reserved = os.dup(1)
    outer = sys.stdout
    try:
        os.dup2(2, 1)
        sys.stdout = sys.stderr

        def write(data: bytes) -> None:
            view = memoryview(data)
            while view:
                view = view[os.write(reserved, view) :]

        yield write
    finally:
        sys.stdout = outer
        os.dup2(reserved, 1)
        os.close(reserved)


def as_opguard_error(error: BaseException) -> OpGuardError:
    """The protocol's error for any exception that ended an action.

    An unexpected exception becomes an ``internal_error``; its traceback goes to stderr.
    """
    if isinstance(error, OpGuardError):
        return error
    if not isinstance(error, Exception):
        # KeyboardInterrupt, and its like for SIGTERM and SIGHUP: the operation did not fail.
        return InterruptedOperationError(
            "the operation was interrupted before it finished; start it again with a new output "
            "directory"
        )
    if isinstance(error, ModuleNotFoundError):
        return MissingDependencyError(
            f"the module {error.name} cannot be imported in {sys.executable}; install what "
            "`capabilities` lists as missing",
            module=error.name,
        )
    traceback.print_exception(error, file=sys.stderr)
    return InternalError(
        f"{type(error).__name__}: {error} - an unexpected failure inside OpGuard; the traceback "
        "is on stderr, please report it",
    )


def run_enveloped(operation: Callable[[], ClosedModel]) -> int:
    """Run an operation and print its envelope.

    Args:
        operation: Returns the result model or raises.

    Returns:
        The exit status: 0 with a result, 1 with an error.

    Source:
        Protocol requirements A3, A4, A5.
    """
    with reserved_stdout() as write:
        try:
            document = success_document(operation())
            status = EXIT_SUCCESS
        except (Exception, KeyboardInterrupt) as error:
            document = failure_document(as_opguard_error(error))
            status = EXIT_FAILURE
        write(encode(document))
    return status
