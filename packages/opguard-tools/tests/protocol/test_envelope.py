from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from opguard.tools.protocol.envelope import (
    as_opguard_error,
    failure_document,
    run_enveloped,
    success_document,
)
from opguard.tools.protocol.errors import (
    InternalError,
    InterruptedOperationError,
    MissingDependencyError,
    OpGuardError,
    OutputExistsError,
    PathConflictError,
)
from opguard.tools.protocol.models import Availability

RESULT = Availability(available=True, reason=None)


@pytest.mark.requirement("A3")
def test_success_holds_version_and_result() -> None:
    assert success_document(RESULT) == {
        "protocol_version": 1,
        "ok": True,
        "result": {"available": True, "reason": None},
    }


@pytest.mark.requirement("A4")
def test_failure_holds_type_and_message() -> None:
    assert failure_document(OutputExistsError("output: /x exists already")) == {
        "protocol_version": 1,
        "ok": False,
        "error": {"type": "output_exists", "message": "output: /x exists already"},
    }


def raise_while_cleaning_up() -> None:
    try:
        raise OutputExistsError("the first")
    finally:
        raise PathConflictError("the second")


def raise_in_its_place() -> None:
    try:
        raise OutputExistsError("the first")
    except OpGuardError as error:
        raise PathConflictError("the second") from error


def test_error_while_cleaning_up_carries_the_earlier_message_too() -> None:
    with pytest.raises(PathConflictError) as caught:
        raise_while_cleaning_up()

    assert failure_document(caught.value)["error"] == {
        "type": "path_conflict",
        "message": "the second\nBefore that, output_exists: the first",
    }


def test_cause_that_an_error_replaces_on_purpose_is_not_repeated() -> None:
    with pytest.raises(PathConflictError) as caught:
        raise_in_its_place()

    assert failure_document(caught.value)["error"]["message"] == "the second"


@pytest.mark.requirement("A3")
def test_result_is_one_document_on_stdout(capfd: pytest.CaptureFixture[str]) -> None:
    status = run_enveloped(lambda: RESULT)

    assert status == 0
    assert json.loads(capfd.readouterr().out) == success_document(RESULT)


@pytest.mark.requirement("A4")
def test_error_is_one_document_on_stdout(capfd: pytest.CaptureFixture[str]) -> None:
    def fail() -> Availability:
        raise OutputExistsError("output: /x exists already")

    status = run_enveloped(fail)

    assert status == 1
    assert json.loads(capfd.readouterr().out)["error"]["type"] == "output_exists"


@pytest.mark.requirement("A5")
def test_stray_prints_of_any_kind_go_to_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    def noisy() -> Availability:
        print("python print")
        os.write(1, b"raw write\n")
        subprocess.run([sys.executable, "-c", "print('child print')"], check=True)
        return RESULT

    run_enveloped(noisy)
    print("afterwards")
    sys.stdout.flush()

    out, err = capfd.readouterr()
    assert out == json.dumps(success_document(RESULT)) + "\nafterwards\n"
    assert err == "python print\nraw write\nchild print\n"


def test_unexpected_exception_is_an_internal_error_with_a_traceback_on_stderr(
    capfd: pytest.CaptureFixture[str],
) -> None:
    def fail() -> Availability:
        raise ZeroDivisionError("oops")

    assert run_enveloped(fail) == 1

    out, err = capfd.readouterr()
    assert json.loads(out)["error"]["type"] == InternalError.error_type
    assert "ZeroDivisionError: oops" in err


def test_keyboard_interrupt_is_an_interruption() -> None:
    error = as_opguard_error(KeyboardInterrupt())

    assert isinstance(error, InterruptedOperationError)


def test_missing_package_is_named() -> None:
    error = as_opguard_error(ModuleNotFoundError("No module named 'polars'", name="polars"))

    assert isinstance(error, MissingDependencyError)
    assert error.details == {"module": "polars"}


def test_text_that_is_not_unicode_is_still_ascii_json(capfd: pytest.CaptureFixture[str]) -> None:
    def fail() -> Availability:
        raise OutputExistsError("output: /\udcff\u20ac exists")

    run_enveloped(fail)

    out = capfd.readouterr().out
    assert out.isascii()
    assert json.loads(out)["error"]["message"] == "output: /\udcff\u20ac exists"
