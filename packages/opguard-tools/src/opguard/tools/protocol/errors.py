"""Base class and registry of every error that the protocol can report.

Each failure that a caller may want to tell apart is one class with one ``error_type``: the
identifier that appears as ``error.type`` in the envelope. Identifiers are part of the interface
and never change; message wording may.

A message says what is wrong, where (field, file, rank or batch), and what to do next.
"""

from __future__ import annotations

from typing import Any, ClassVar

_registry: dict[str, type[OpGuardError]] = {}


class OpGuardError(Exception):
    """Base of all errors of ``opguard.tools``.

    Subclasses set ``error_type``. A subclass without one of its own is a grouping class: it is not
    registered and must not be raised.

    Attributes:
        error_type: Stable identifier, lower-case words joined by underscores.
        details: The keyword arguments given to the constructor, for programs.

    Source:
        Protocol requirement A4.
    """

    error_type: ClassVar[str] = "internal_error"
    details: dict[str, Any]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Register the class under its identifier; two classes cannot share one."""
        super().__init_subclass__(**kwargs)
        identifier = cls.__dict__.get("error_type")
        if identifier is None:
            return
        holder = _registry.setdefault(identifier, cls)
        if holder is not cls:
            raise TypeError(
                f"error_type {identifier!r} is already used by {holder.__module__}."
                f"{holder.__qualname__}; give {cls.__qualname__} an identifier of its own"
            )

    def __init__(self, message: str, **attributes: Any) -> None:
        """Keep the message and the attributes.

        Args:
            message: What is wrong, where, and what to do next.
            **attributes: Facts a program may want: paths, ranks, counts.
        """
        super().__init__(message)
        self.message = message
        self.details = attributes


def registered_errors() -> dict[str, type[OpGuardError]]:
    """Every identifier with its class, for the classes imported so far.

    ``opguard.tools.protocol.catalogue`` imports all modules that define errors.
    """
    return dict(_registry)


class InternalError(OpGuardError):
    """A defect of OpGuard itself: an exception that no part of it expected."""

    error_type = "internal_error"


class RequestUnreadableError(OpGuardError):
    """The request file is missing, cannot be read, or is not a JSON object."""

    error_type = "request_unreadable"


class UnsupportedProtocolVersionError(OpGuardError):
    """The request carries no protocol version, or one that this program does not speak."""

    error_type = "unsupported_protocol_version"


class InvalidRequestError(OpGuardError):
    """The request does not follow its model; the message lists each field's path."""

    error_type = "invalid_request"


class OutputExistsError(OpGuardError):
    """``output`` or ``OUTPUT-instrument`` exists already."""

    error_type = "output_exists"


class PathConflictError(OpGuardError):
    """``output``, ``local_root`` and the checkout are not apart from each other."""

    error_type = "path_conflict"


class WorkloadNotFoundError(OpGuardError):
    """The workload's folder, script or launcher is not there."""

    error_type = "workload_not_found"


class InvalidSettingError(OpGuardError):
    """An ``OPGUARD_*`` variable has a value outside its range."""

    error_type = "invalid_setting"


class MissingDependencyError(OpGuardError):
    """A package that the action needs is not installed in this environment."""

    error_type = "missing_dependency"


class ArtifactMismatchError(OpGuardError):
    """A result handed on from another action does not match what is on disk."""

    error_type = "artifact_mismatch"


class InterruptedOperationError(OpGuardError):
    """The operation was stopped by Ctrl-C, SIGTERM or SIGHUP; everything was put back."""

    error_type = "interrupted"
