"""Errors of the source transaction: locking, instrumenting, restoring, recovering."""

from __future__ import annotations

from opguard.tools.protocol.errors import OpGuardError


class CheckoutUnusableError(OpGuardError):
    """The checkout cannot be locked or changed: read-only, not a directory, no file locks."""

    error_type = "checkout_unusable"


class CheckoutLockedError(OpGuardError):
    """Another operation holds the checkout; ``details`` has its pid, host, operation and start."""

    error_type = "checkout_locked"


class CheckoutMarkedError(OpGuardError):
    """An earlier operation left its marker: instrumented or edited files may be in the checkout."""

    error_type = "checkout_marked"


class SourceMismatchError(OpGuardError):
    """Source files are not the ones that the plan describes; ``details["files"]`` lists them."""

    error_type = "source_mismatch"


class UnsafeSourceError(OpGuardError):
    """A planned file cannot be replaced safely: hard links, outside the checkout, not a file."""

    error_type = "unsafe_source"


class InstrumentationError(OpGuardError):
    """The operating system refused a step of the instrumentation; the sources are unchanged."""

    error_type = "instrumentation_failed"


class SourceChangedError(OpGuardError):
    """Source files were edited during the operation; the edits and the originals are kept."""

    error_type = "source_changed"


class RestoreError(OpGuardError):
    """The operating system refused to restore files; the marker and the originals are kept."""

    error_type = "restore_failed"


class RecoveryError(OpGuardError):
    """The marker, or the record of the originals, is missing or damaged; nothing was changed."""

    error_type = "recovery_failed"
