"""Errors of starting a workload and of judging what it left behind."""

from __future__ import annotations

from opguard.tools.protocol.errors import OpGuardError


class WorkloadTimeoutError(OpGuardError):
    """The workload ran longer than ``timeout_seconds`` and was ended."""

    error_type = "workload_timeout"


class ProcessesLeftError(OpGuardError):
    """Processes of the workload are still there after SIGKILL."""

    error_type = "processes_left"


class LauncherFailedError(OpGuardError):
    """The launcher could not be started, or failed although no rank says why."""

    error_type = "launcher_failed"


class WorkerFailedError(OpGuardError):
    """The tracer refused to run in a rank, or failed there, before the script was done."""

    error_type = "worker_failed"


class CaptureUnavailableError(OpGuardError):
    """The interpreter that the launcher starts cannot import opguard-core."""

    error_type = "capture_unavailable"


class WorkloadEndedError(OpGuardError):
    """Groups the errors of a workload that ended by itself, but not with status 0."""


class ScriptRaisedError(WorkloadEndedError):
    """The workload's script ended with an exception."""

    error_type = "script_raised"


class ScriptExitError(WorkloadEndedError):
    """The workload's script asked for a non-zero exit status."""

    error_type = "script_exit"


class ScriptOsExitError(WorkloadEndedError):
    """A rank left through ``os._exit`` with a non-zero status."""

    error_type = "script_os_exit"


class RankEndedError(WorkloadEndedError):
    """A rank's process ended without a receipt: killed, crashed, or left by force."""

    error_type = "rank_ended"


class RankMissingError(OpGuardError):
    """The launcher succeeded, but an expected rank left no receipt."""

    error_type = "rank_missing"


class RankUnexpectedError(OpGuardError):
    """A rank ran that the request does not list."""

    error_type = "rank_unexpected"


class ReceiptDuplicateError(OpGuardError):
    """A rank left more than one receipt: it was started more than once."""

    error_type = "receipt_duplicate"


class ReceiptInvalidError(OpGuardError):
    """A receipt is damaged or does not belong to this capture."""

    error_type = "receipt_invalid"


class BatchCountError(OpGuardError):
    """The batches on disk are not as many as the receipt states."""

    error_type = "batch_count_mismatch"


class BatchCorruptError(OpGuardError):
    """A batch file is damaged or the sequence of batches is broken."""

    error_type = "batch_corrupt"


class RecorderFailedError(OpGuardError):
    """The tracer could not record so many calls of a rank that the capture says little."""

    error_type = "recorder_failed"


class RankEmptyError(OpGuardError):
    """A rank recorded nothing."""

    error_type = "rank_empty"
