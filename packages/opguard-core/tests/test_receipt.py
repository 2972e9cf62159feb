"""What a receipt says about the exception that ended a workload."""

from __future__ import annotations

import json
from pathlib import Path

from opguard.core.receipt import describe_exception


def test_position_of_an_exception_is_the_innermost_one_outside_libraries() -> None:
    try:
        json.loads("{")
    except ValueError as error:
        found = describe_exception(error)

    source = Path(__file__).read_text().splitlines()
    assert (found["type"], found["file"]) == ("JSONDecodeError", __file__)
    assert source[found["line"] - 1].strip() == 'json.loads("{")'


def test_exception_without_a_traceback_has_no_position() -> None:
    assert describe_exception(ValueError("bad")) == {
        "type": "ValueError", "message": "bad", "file": None, "line": None,
    }  # fmt: skip
