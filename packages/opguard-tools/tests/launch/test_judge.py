from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from opguard.tools.launch.errors import (
    CaptureUnavailableError,
    LauncherFailedError,
    RankEndedError,
    RankMissingError,
    RankUnexpectedError,
    ReceiptDuplicateError,
    ScriptExitError,
    ScriptOsExitError,
    ScriptRaisedError,
    WorkerFailedError,
    WorkloadTimeoutError,
)
from opguard.tools.launch.judge import check_run, describe_status
from opguard.tools.launch.receipts import Evidence, Receipt, WorkerError
from opguard.tools.launch.supervise import Outcome
from opguard.tools.protocol.errors import OpGuardError

CAPTURE_ID = "0f8fad5bd9cb469fa16570867728950e"


def receipt(rank: int = 0, **fields: Any) -> Receipt:
    document = {
        "protocol_version": 1,
        "format_version": 1,
        "capture_id": CAPTURE_ID,
        "rank": rank,
        "rank_source": "RANK",
        "world_size": 2,
        "host": "node",
        "pid": 100 + rank,
        "batches": 1,
        "records": 10,
        "exit_status": 0,
        "exit_kind": "returned",
        "exception": None,
        "versions": {"python": "3.11"},
        "fingerprint": {"schemes": ["flat-u32-le-v1"], "regions": 4},
        "determinism": {"requested": False, "settings": {}},
        "observer_effects": [],
        "ended_unix_ns": 1_000 + rank,
        **fields,
    }
    return Receipt.model_validate(document)


def evidence(*receipts: Receipt, **fields: Any) -> Evidence:
    ranks = [item.rank for item in receipts]
    return Evidence(receipts=dict(zip(ranks, receipts, strict=True)), started=ranks, **fields)


def judge(
    found: Evidence, *, status: int = 0, ranks: tuple[int, ...] = (0,), **fields: Any
) -> None:
    outcome = Outcome(exit_status=status, elapsed_seconds=1.0, ended_by=fields.get("ended_by"))
    check_run(
        outcome,
        found,
        ranks=ranks,
        timeout_seconds=60.0,
        log=fields.get("log", Path("/nonexistent/workload.log")),
    )


RAISED = {
    "exit_status": 1,
    "exit_kind": "exception",
    "exception": {
        "type": "ValueError",
        "message": "bad value",
        "file": "/checkout/train.py",
        "line": 12,
    },
}


@pytest.mark.requirement("B6")
def test_successful_launcher_with_one_receipt_per_rank_passes() -> None:
    judge(evidence(receipt(0), receipt(1)), ranks=(0, 1))


def test_script_that_leaves_through_os_exit_with_status_zero_passes() -> None:
    judge(evidence(receipt(0, exit_kind="os_exit")))


@pytest.mark.requirement("B8")
def test_time_limit_is_reported_before_anything_else() -> None:
    with pytest.raises(WorkloadTimeoutError) as caught:
        judge(evidence(receipt(0, **RAISED)), status=-15, ended_by="timeout")

    assert caught.value.details == {"timeout_seconds": 60.0}


@pytest.mark.requirement("B6")
def test_exception_of_the_script_is_reported_with_type_message_and_place() -> None:
    with pytest.raises(ScriptRaisedError) as caught:
        judge(evidence(receipt(0, **RAISED)), status=1)

    assert caught.value.details == {"rank": 0, "exception": RAISED["exception"]}
    assert "ValueError: bad value (/checkout/train.py:12)" in caught.value.message


def test_first_rank_that_failed_by_itself_is_named_as_the_cause() -> None:
    """torchrun ends the other ranks with SIGTERM, whose receipts may carry earlier times."""
    ended = receipt(0, exit_status=143, exit_kind="system_exit", ended_unix_ns=5)

    with pytest.raises(ScriptRaisedError) as caught:
        judge(evidence(ended, receipt(1, **RAISED)), status=1, ranks=(0, 1))

    assert caught.value.details["rank"] == 1


def test_exception_counts_even_if_the_launcher_succeeds() -> None:
    with pytest.raises(ScriptRaisedError):
        judge(evidence(receipt(0, **RAISED)), status=0)


def test_exit_status_of_the_script_is_reported() -> None:
    with pytest.raises(ScriptExitError) as caught:
        judge(evidence(receipt(0, exit_status=3, exit_kind="system_exit")), status=3)

    assert caught.value.details == {"rank": 0, "exit_status": 3}


def test_os_exit_with_a_status_has_its_own_error() -> None:
    with pytest.raises(ScriptOsExitError) as caught:
        judge(evidence(receipt(0, exit_status=3, exit_kind="os_exit")), status=3)

    assert caught.value.details == {"rank": 0, "exit_status": 3}


def test_rank_that_was_killed_is_reported_with_the_signal() -> None:
    with pytest.raises(RankEndedError) as caught:
        judge(Evidence(started=[0]), status=-9)

    assert caught.value.details == {"ranks": [0], "exit_status": -9}
    assert "SIGKILL" in caught.value.message


def test_launcher_that_fails_before_any_rank_starts_is_to_blame() -> None:
    with pytest.raises(LauncherFailedError) as caught:
        judge(Evidence(), status=2)

    assert caught.value.details == {"exit_status": 2}


@pytest.mark.requirement("B6")
def test_launcher_that_fails_after_every_rank_succeeded_is_to_blame() -> None:
    with pytest.raises(LauncherFailedError) as caught:
        judge(evidence(receipt(0)), status=1)

    assert "although every rank succeeded" in caught.value.message


@pytest.mark.requirement("B6")
def test_missing_rank_is_an_error() -> None:
    with pytest.raises(RankMissingError) as caught:
        judge(evidence(receipt(0)), ranks=(0, 1, 2))

    assert caught.value.details == {"ranks": [1, 2]}


@pytest.mark.requirement("B4")
@pytest.mark.requirement("B6")
def test_rank_that_was_not_asked_for_is_an_error() -> None:
    with pytest.raises(RankUnexpectedError) as caught:
        judge(evidence(receipt(0), receipt(1)), ranks=(0,))

    assert caught.value.details == {"ranks": [1]}


@pytest.mark.requirement("B7")
def test_second_receipt_of_a_rank_is_an_error() -> None:
    found = evidence(receipt(0), duplicates={0: ["rank-0.duplicate-node-7.receipt"]})

    with pytest.raises(ReceiptDuplicateError) as caught:
        judge(found)

    assert caught.value.details == {"rank": 0}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("capture_unavailable", CaptureUnavailableError),
        ("unexpected_rank", RankUnexpectedError),
        ("duplicate_rank", ReceiptDuplicateError),
        ("rank_failed", WorkerFailedError),
    ],
)
def test_refusal_of_a_worker_becomes_its_error(kind: str, expected: type[OpGuardError]) -> None:
    found = Evidence(worker_errors=[WorkerError("rank-0-7.json", kind, "no torch here")])

    with pytest.raises(expected) as caught:
        judge(found, status=78)

    assert caught.value.details == {"kind": kind}
    assert "no torch here" in caught.value.message


def test_errors_end_with_the_last_lines_of_the_log(tmp_path: Path) -> None:
    log = tmp_path / "workload.log"
    log.write_text("Traceback\nValueError: bad value\n")

    with pytest.raises(ScriptRaisedError) as caught:
        judge(evidence(receipt(0, **RAISED)), status=1, log=log)

    assert caught.value.message.endswith(
        f"\nLast lines of {log}:\n  | Traceback\n  | ValueError: bad value"
    )


@pytest.mark.parametrize(
    ("status", "text"),
    [(3, "exit status 3"), (-9, "SIGKILL"), (-15, "SIGTERM"), (-200, "signal 200")],
)
def test_status_is_described_in_words(status: int, text: str) -> None:
    assert describe_status(status) == text
