from __future__ import annotations

import ast
from pathlib import Path

import pytest

from opguard.tools.protocol.catalogue import describe, error_catalogue
from opguard.tools.protocol.errors import OpGuardError

TESTS = Path(__file__).parents[1]
TYPES = {
    *("artifact_mismatch", "batch_corrupt", "batch_count_mismatch", "capture_unavailable"),
    *("internal_error", "interrupted", "invalid_request", "invalid_setting", "launcher_failed"),
    *("missing_dependency", "output_exists", "path_conflict", "processes_left", "rank_empty"),
    *("rank_ended", "rank_missing", "rank_unexpected", "receipt_duplicate", "receipt_invalid"),
    *("request_unreadable", "script_exit", "script_os_exit", "script_raised", "step_ended"),
    *("unsupported_protocol_version", "worker_failed", "workload_not_found", "workload_timeout"),
}


@pytest.mark.requirement("A4")
def test_identifiers_of_this_area_never_change() -> None:
    assert set(error_catalogue()) >= TYPES


def test_every_error_has_a_meaning_and_a_well_formed_identifier() -> None:
    for name, error in error_catalogue().items():
        assert name == name.lower()
        assert name.replace("_", "").isalpha()
        assert describe(error).endswith("."), name


@pytest.mark.requirement("A4")
def test_every_error_class_has_a_test_that_expects_it() -> None:
    """A class counts as tested where a test names it in ``pytest.raises`` or by its type."""
    named: set[str] = set()
    for path in TESTS.rglob("test_*.py"):
        if path == Path(__file__):
            continue
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Name):
                named.add(node.id)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                named.add(node.value)
    untested = [
        name
        for name, error in error_catalogue().items()
        if name not in named and error.__name__ not in named
    ]
    assert untested == []


def test_two_classes_cannot_share_an_identifier() -> None:
    with pytest.raises(TypeError, match="output_exists"):
        type("Copy", (OpGuardError,), {"error_type": "output_exists"})


def test_error_keeps_message_and_attributes() -> None:
    error = OpGuardError("what, where, what next", rank=3)

    assert (str(error), error.message, error.details) == (
        "what, where, what next",
        "what, where, what next",
        {"rank": 3},
    )
