"""``discover`` on captures of a fake launcher: what passes, and which error names what is wrong."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

import xorsig
from opguard.tools.actions import discover
from opguard.tools.launch.errors import (
    BatchCorruptError,
    BatchCountError,
    LauncherFailedError,
    RankEmptyError,
    RankEndedError,
    RankMissingError,
    RankUnexpectedError,
    ReceiptDuplicateError,
    ReceiptInvalidError,
    RecorderFailedError,
    ScriptRaisedError,
    WorkerFailedError,
)
from opguard.tools.protocol.errors import (
    InvalidSettingError,
    OpGuardError,
    OutputExistsError,
    PathConflictError,
    WorkloadNotFoundError,
)
from opguard.tools.protocol.models import DiscoverRequest, DiscoverResult, stable_view
from opguard.tools.transaction import CheckoutLock, CheckoutLockedError, CheckoutMarkedError


@pytest.mark.requirement("B6")
def test_result_states_what_was_captured(scratch: Any) -> None:
    result = scratch.discover({"batches": 3})

    output = scratch.folder / "out-1"
    fields = json.loads(result.model_dump_json())
    captured = fields.pop("captured")
    for name in ("capture_id", "started_at", "elapsed_seconds"):
        fields.pop(name)
    assert fields == {
        "action": "discover",
        "output": str(output),
        "capture": str(output / "capture"),
        "checkout": str(scratch.checkout),
        "log": str(output / "workload.log"),
        "ranks": [0],
        "fingerprint": {"schemes": [xorsig.XOR_SCHEME, xorsig.MIX_SCHEME], "regions": 4},
        "determinism": {"requested": False, "settings": {}},
        "observer_effects": ["a fake one"],
        "versions": {"python": "3.11"},
        "coverage": "observed_callsites_only",
        "ending": None,
    }
    assert [(entry["rank"], entry["batches"]) for entry in captured] == [(0, 3)]
    assert (output / "workload.log").read_text() == "fake workload says hello\n"


@pytest.mark.requirement("A11")
def test_same_inputs_give_the_same_result_but_for_documented_fields(scratch: Any) -> None:
    first, second = scratch.discover(), scratch.discover()

    def view(result: DiscoverResult, output: str) -> str:
        return json.dumps(stable_view(result)).replace(output, "OUTPUT")

    assert view(first, first.output) == view(second, second.output)


@pytest.mark.requirement("B2")
def test_worker_request_is_written_by_the_tool(scratch: Any) -> None:
    result = scratch.discover(env={"OPGUARD_XOR_REGIONAL": "8"})

    document = json.loads(Path(result.output, "worker-request.json").read_text())
    assert document["request"].pop("timeout_seconds") == 60
    assert document == {
        "protocol_version": 1,
        "action": "discover",
        "capture_id": result.capture_id,
        "request": {
            "protocol_version": 1,
            "output": result.output,
            "local_root": str(scratch.folder / "local"),
            "workload": {
                **scratch.workload(),
                "args": ["{}"],
                "env": {"OPGUARD_XOR_REGIONAL": "8"},
            },
        },
        "checkout": str(scratch.checkout),
        "capture": result.capture,
        "local_root": str(scratch.folder / "local"),
        "plan": None,
        "regions": 8,
        "deterministic": False,
        "selection": dict.fromkeys(("steps", "phases", "callsites", "levels")),
    }


@pytest.mark.requirement("B10")
def test_determinism_is_asked_for_in_the_request_only(
    scratch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPGUARD_DETERMINISTIC", "1")

    inherited = scratch.discover()
    asked = scratch.discover(env={"OPGUARD_DETERMINISTIC": "1"})

    assert inherited.determinism.requested is False
    assert asked.determinism.requested is True


@pytest.mark.requirement("B6")
@pytest.mark.parametrize(
    ("behaviour", "expected"),
    [
        ({"exit": 3}, LauncherFailedError),
        ({"ranks": []}, RankMissingError),
        ({"receipt": False}, RankMissingError),
        ({"receipt": False, "kill": True}, RankEndedError),
        ({"receipt": False, "exit": 3}, RankEndedError),
        ({"ranks": [], "exit": 1}, LauncherFailedError),
        ({"ranks": [0, 1]}, RankUnexpectedError),
        ({"duplicate": True}, ReceiptDuplicateError),
        ({"damage_receipt": True}, ReceiptInvalidError),
        ({"receipt_fields": {"capture_id": "f" * 32}}, ReceiptInvalidError),
        ({"receipt_fields": {"rank": 1}}, ReceiptInvalidError),
        ({"receipt_fields": {"format_version": 999}}, ReceiptInvalidError),
        ({"receipt_fields": {"batches": "many"}}, ReceiptInvalidError),
        ({"receipt_fields": {"batches": 7}}, BatchCountError),
        ({"receipt_fields": {"records": 7777}}, BatchCorruptError),
        ({"remove": True}, BatchCountError),
        ({"flip": True}, BatchCorruptError),
        ({"swap": True}, BatchCorruptError),
        ({"batches": 0}, RankEmptyError),
        (
            {"receipt_fields": {"counts": {"calls": 100, "recorder_failures": 6}}},
            RecorderFailedError,
        ),
        ({"worker_error": '{"type": "rank_failed", "message": "no disk"}'}, WorkerFailedError),
        ({"worker_error": "{"}, WorkerFailedError),
        (
            {
                "exit": 1,
                "receipt_fields": {
                    "exit_status": 1,
                    "exit_kind": "exception",
                    "exception": {"type": "ValueError", "message": "m", "file": "f", "line": 1},
                },
            },
            ScriptRaisedError,
        ),
    ],
    ids=lambda value: json.dumps(value) if isinstance(value, dict) else value.__name__,
)
def test_incomplete_capture_fails_with_its_own_error_and_is_kept(
    scratch: Any, behaviour: dict[str, Any], expected: type[OpGuardError]
) -> None:
    with pytest.raises(expected):
        scratch.discover(behaviour)

    output = scratch.folder / "out-1"
    assert (output / "worker-request.json").is_file()
    assert (output / "workload.log").read_text() == "fake workload says hello\n"


@pytest.mark.requirement("B4")
def test_all_expected_ranks_are_needed(scratch: Any) -> None:
    assert scratch.discover({"ranks": [0, 1]}, ranks=[1, 0]).ranks == [0, 1]

    with pytest.raises(RankMissingError) as caught:
        scratch.discover({"ranks": [0]}, ranks=[0, 1])

    assert caught.value.details == {"ranks": [1]}


@pytest.mark.requirement("B1")
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"cwd": "/nonexistent/checkout"}, WorkloadNotFoundError),
        ({"script": "missing.py"}, WorkloadNotFoundError),
        ({"script": "."}, WorkloadNotFoundError),
        ({"launcher": ["no-such-program"]}, WorkloadNotFoundError),
        ({"launcher": ["./no-such-program"]}, WorkloadNotFoundError),
        ({"launcher": ["train.py"], "env": {"PATH": "/nonexistent"}}, WorkloadNotFoundError),
        ({"env": {"OPGUARD_XOR_REGIONAL": "65"}}, InvalidSettingError),
        ({"env": {"OPGUARD_DETERMINISTIC": "yes"}}, InvalidSettingError),
    ],
    ids=str,
)
def test_what_can_be_checked_is_checked_before_anything_is_made(
    scratch: Any, changes: dict[str, Any], expected: type[OpGuardError]
) -> None:
    with pytest.raises(expected):
        scratch.discover(**changes)

    assert [path.name for path in scratch.folder.iterdir()] == ["checkout"]
    assert [path.name for path in scratch.checkout.iterdir()] == ["train.py"]


@pytest.mark.requirement("F5")
def test_inherited_setting_out_of_range_is_refused(
    scratch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPGUARD_XOR_REGIONAL", "all")

    with pytest.raises(InvalidSettingError):
        scratch.discover()


@pytest.mark.requirement("B7")
def test_output_of_an_earlier_operation_is_not_reused(scratch: Any) -> None:
    request = DiscoverRequest.model_validate(scratch.launch())
    discover.run(request)

    with pytest.raises(OutputExistsError):
        discover.run(request)


@pytest.mark.requirement("B12")
def test_local_root_inside_the_output_is_refused(scratch: Any) -> None:
    document = scratch.launch()
    document["local_root"] = document["output"] + "/local"

    with pytest.raises(PathConflictError):
        discover.run(DiscoverRequest.model_validate(document))


@pytest.mark.requirement("D2")
def test_locked_checkout_is_refused_at_once(scratch: Any) -> None:
    with CheckoutLock(scratch.checkout, "trace"), pytest.raises(CheckoutLockedError) as caught:
        scratch.discover()

    assert caught.value.details["pid"] == os.getpid()
    assert not (scratch.folder / "out-1").exists()


@pytest.mark.requirement("D2")
def test_marked_checkout_is_refused(scratch: Any) -> None:
    (scratch.checkout / ".opguard").mkdir()
    (scratch.checkout / ".opguard" / "harness-active.json").write_text("{}")

    with pytest.raises(CheckoutMarkedError):
        scratch.discover()


def test_script_given_as_an_absolute_path_and_launcher_relative_to_the_checkout(
    scratch: Any,
) -> None:
    (scratch.checkout / "launch.sh").write_text(
        f'#!/bin/sh\nexec {sys.executable} {scratch.workload()["launcher"][1]} "$@"\n'
    )
    (scratch.checkout / "launch.sh").chmod(0o755)

    result = scratch.discover(launcher=["./launch.sh"], script=str(scratch.checkout / "train.py"))

    assert result.ranks == [0]
