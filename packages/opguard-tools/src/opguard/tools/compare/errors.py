"""Errors of reading and comparing captures."""

from __future__ import annotations

from opguard.tools.protocol.errors import OpGuardError


class CaptureReadError(OpGuardError):
    """A trace output or its materialised tables cannot be read, or lack a requested rank."""

    error_type = "capture_unreadable"


class ReportExportError(OpGuardError):
    """A report of the comparison could not be written."""

    error_type = "report_export_failed"


class UnequalRepeatError(OpGuardError):
    """A capture given as a repeat of the baseline is not an equal run of it."""

    error_type = "repeat_unequal"
