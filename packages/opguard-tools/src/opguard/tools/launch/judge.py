"""Whether a run succeeded and its capture is complete; if not, which error says so best.

The order of the checks is the order of causes: the run was ended from here, the tracer refused,
the script failed, a process vanished, the launcher failed, and only then whether the files add up.
A later check would often fail too, but would name a symptom.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

from opguard.tools.launch.errors import (
    BatchCorruptError,
    BatchCountError,
    CaptureUnavailableError,
    LauncherFailedError,
    RankEmptyError,
    RankEndedError,
    RankMissingError,
    RankUnexpectedError,
    ReceiptDuplicateError,
    RecorderFailedError,
    ScriptExitError,
    ScriptOsExitError,
    ScriptRaisedError,
    WorkerFailedError,
    WorkloadTimeoutError,
)
from opguard.tools.launch.progress import list_batches, quote_log
from opguard.tools.launch.receipts import Evidence, Receipt
from opguard.tools.launch.supervise import Outcome
from opguard.tools.protocol.errors import OpGuardError

_TOLERATED_FAILURES = 0.05
"""Share of a rank's calls that may fail to be recorded."""

_KEPT = "what was captured stays in the output directory"
_GONE_ON_WITH = f"{_KEPT}, and `diff` goes on with it"

_WORKER_ERRORS: dict[str, type[OpGuardError]] = {
    "capture_unavailable": CaptureUnavailableError,
    "unexpected_rank": RankUnexpectedError,
    "duplicate_rank": ReceiptDuplicateError,
}
"""Error class for each identifier that a worker may give; any other is a worker failure."""


def check_run(
    outcome: Outcome,
    evidence: Evidence,
    *,
    ranks: Sequence[int],
    timeout_seconds: float,
    log: Path,
) -> None:
    """Check how the run ended.

    Args:
        outcome: How the launcher ended.
        evidence: What the ranks left.
        ranks: The ranks that the request expects.
        timeout_seconds: The request's time limit, for the message.
        log: The workload's log, whose last lines end each message.

    Raises:
        WorkloadTimeoutError: The time limit was reached.
        CaptureUnavailableError: The launcher's interpreter has no opguard-core.
        WorkerFailedError: The tracer failed in a rank.
        ScriptRaisedError: The script raised.
        ScriptExitError: The script exited with a non-zero status.
        ScriptOsExitError: The script left through ``os._exit`` with a non-zero status.
        RankEndedError: A rank vanished without a receipt, and the launcher failed.
        LauncherFailedError: The launcher failed and no rank says why.
        ReceiptDuplicateError: A rank was started twice.
        RankMissingError: An expected rank left no receipt.
        RankUnexpectedError: A rank ran that is not in the request.

    Source:
        Protocol requirements B4, B6, B7, B8.
    """
    tail = quote_log(log)
    if outcome.ended_by == "timeout":
        raise WorkloadTimeoutError(
            f"the workload ran longer than timeout_seconds ({timeout_seconds:g} s) and was ended; "
            f"{_KEPT}. Raise timeout_seconds or shorten the workload" + tail,
            timeout_seconds=timeout_seconds,
        )
    _check_worker_errors(evidence, tail)
    if outcome.exit_status == 0:
        _check_duplicates(evidence)
    _check_scripts(evidence, outcome, tail)
    if outcome.exit_status != 0:
        _raise_launcher_failure(outcome, evidence, ranks, tail)
    _check_rank_set(evidence, ranks, tail)


def _check_worker_errors(evidence: Evidence, tail: str) -> None:
    if not evidence.worker_errors:
        return
    first = evidence.worker_errors[0]
    others = len(evidence.worker_errors) - 1
    also = f" ({others} more such files next to it)" if others else ""
    error = _WORKER_ERRORS.get(first.kind, WorkerFailedError)
    raise error(
        f"the tracer could not run in a rank: {first.message} (stated in errors/{first.name})"
        f"{also}" + tail,
        kind=first.kind,
    )


def _check_duplicates(evidence: Evidence) -> None:
    for rank, names in evidence.duplicates.items():
        raise ReceiptDuplicateError(
            f"rank {rank} left {len(names) + 1} receipts: the launcher started it more than once "
            f"into one capture ({', '.join(names)}). Switch restarts off, and retry with a new "
            "output directory",
            rank=rank,
        )


def _check_scripts(evidence: Evidence, outcome: Outcome, tail: str) -> None:
    failed = sorted(
        (receipt for receipt in evidence.receipts.values() if receipt.exit_status != 0),
        key=_likely_cause,
    )
    if not failed:
        return
    first = failed[0]
    others = ", ".join(f"rank {receipt.rank}" for receipt in failed[1:])
    also = f" ({others} failed as well)" if others else ""
    if first.exit_kind == "exception" and first.exception is not None:
        raise ScriptRaisedError(
            f"the script raised in rank {first.rank}{also}: {first.exception.describe()}; "
            f"{_GONE_ON_WITH}" + tail,
            rank=first.rank,
            exception=first.exception.model_dump(),
        )
    if first.exit_kind == "os_exit":
        raise ScriptOsExitError(
            f"rank {first.rank} left through os._exit with status {first.exit_status}{also}; "
            f"{_GONE_ON_WITH}" + tail,
            rank=first.rank,
            exit_status=first.exit_status,
        )
    raise ScriptExitError(
        f"the script exited with status {first.exit_status} in rank {first.rank}{also}; "
        f"{_GONE_ON_WITH}" + tail,
        rank=first.rank,
        exit_status=first.exit_status,
    )


def _likely_cause(receipt: Receipt) -> tuple[bool, int]:
    """Ranks that failed by themselves before those that were ended by a signal, then by time."""
    return (receipt.exit_status in (-signal.SIGTERM, 128 + signal.SIGTERM), receipt.ended_unix_ns)


def describe_status(status: int) -> str:
    """``exit status 3``, or ``SIGKILL`` for a process that a signal ended."""
    if status < 0:
        try:
            return signal.Signals(-status).name
        except ValueError:
            return f"signal {-status}"
    return f"exit status {status}"


def _raise_launcher_failure(
    outcome: Outcome, evidence: Evidence, ranks: Sequence[int], tail: str
) -> None:
    status = describe_status(outcome.exit_status)
    silent = [rank for rank in ranks if rank not in evidence.receipts]
    if silent and set(silent) & set(evidence.started):
        numbers = ", ".join(str(rank) for rank in silent)
        raise RankEndedError(
            f"rank {numbers} ended without a receipt and the launcher ended with {status}: the "
            "process was killed (memory?), crashed in native code, or left by force; "
            f"{_GONE_ON_WITH}" + tail,
            ranks=silent,
            exit_status=outcome.exit_status,
        )
    raise LauncherFailedError(
        f"workload.launcher ended with {status}"
        + (" before any rank was traced" if silent else " although every rank succeeded")
        + ". It must run `-m opguard.tools.worker` in an environment that has opguard-core, wait "
        "for all ranks and end with status 0" + tail,
        exit_status=outcome.exit_status,
    )


def _check_rank_set(evidence: Evidence, ranks: Sequence[int], tail: str) -> None:
    missing = [rank for rank in ranks if rank not in evidence.receipts]
    if missing:
        numbers = ", ".join(str(rank) for rank in missing)
        raise RankMissingError(
            f"rank {numbers} left no receipt although the launcher succeeded: it was not started, "
            "was not waited for, or replaced its own process. Check workload.ranks against the "
            f"launcher's arguments; {_KEPT}" + tail,
            ranks=missing,
        )
    unexpected = [rank for rank in evidence.receipts if rank not in ranks]
    if unexpected:
        numbers = ", ".join(str(rank) for rank in unexpected)
        raise RankUnexpectedError(
            f"rank {numbers} ran, which workload.ranks does not list; list exactly the ranks that "
            "the launcher starts" + tail,
            ranks=unexpected,
        )


def _check_recorder(receipt: Receipt) -> None:
    """A few objects that cannot be recorded are a warning of the report; many are a failure.

    They mean that the tracer does not fit this torch, or this program, and a comparison of what is
    left would look clean for want of records.
    """
    failures = receipt.counts.get("recorder_failures", 0)
    calls = receipt.counts.get("calls", 0)
    if failures > _TOLERATED_FAILURES * calls:
        raise RecorderFailedError(
            f"rank {receipt.rank}: {failures} records could not be made beside {calls} recorded "
            "calls; the capture's notes (kind 2 of its marks) say why. Compare it with --partial "
            "to see them, and report them with the versions in the receipt",
            rank=receipt.rank,
            failures=failures,
            calls=calls,
        )


def check_files(evidence: Evidence, capture: Path, capture_id: str) -> None:
    """Check that every rank's batches are complete and intact, by decoding all of them.

    Raises:
        BatchCountError: The number of batch files differs from the receipt's.
        BatchCorruptError: A batch is damaged, or the records are not as many as the receipt says.
        RankEmptyError: A rank recorded nothing.
        RecorderFailedError: Many of a rank's calls could not be recorded.

    Source:
        Protocol requirement B6.
    """
    import xorsig

    for rank, receipt in evidence.receipts.items():
        folder = capture / f"rank-{rank}"
        found = len(list_batches(capture, rank))
        if found != receipt.batches:
            raise BatchCountError(
                f"rank {rank} states {receipt.batches} batches and {found} are in {folder}; the "
                "capture is incomplete, run the workload again with a new output directory",
                rank=rank,
                stated=receipt.batches,
                found=found,
            )
        if receipt.records == 0 or found == 0:
            raise RankEmptyError(
                f"rank {rank} recorded nothing: no expression of the checkout touched a tensor in "
                "it. Check that workload.cwd is the checkout whose code the script runs",
                rank=rank,
            )
        _check_recorder(receipt)
        try:
            xorsig.verify_capture(
                folder,
                capture_id=capture_id,
                rank=rank,
                expected_batches=receipt.batches,
                expected_records=receipt.records,
            )
        except xorsig.CorruptBatchError as error:
            raise BatchCorruptError(
                f"rank {rank}: batch {error.sequence} ({error.path}) is not usable: "
                f"{error.reason}; run the workload again with a new output directory",
                rank=rank,
                path=str(error.path),
            ) from error
