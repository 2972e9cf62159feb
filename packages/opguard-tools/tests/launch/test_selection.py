"""The variables that limit a recording: checked before anything starts."""

from __future__ import annotations

import pytest

from opguard.tools.launch.selection import CaptureSelection, read_selection, takes_callsite
from opguard.tools.protocol.errors import InvalidSettingError


def test_variables_are_read_and_handed_on_as_they_are() -> None:
    environment = {
        "OPGUARD_SELECT_STEPS": "0-3,10,20-",
        "OPGUARD_SELECT_PHASES": "forward, optimizer",
        "OPGUARD_SELECT_CALLSITES": "model.py:*, !*:*:print",
        "OPGUARD_SELECT_LEVELS": "2",
    }
    found = read_selection(environment)
    assert found.document() == dict(
        zip(("steps", "phases", "callsites", "levels"), environment.values(), strict=True)
    )
    assert found.patterns == ("model.py:*", "!*:*:print")
    assert read_selection({"OPGUARD_SELECT_STEPS": ""}) == CaptureSelection()


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ("STEPS", "a"),
        ("STEPS", "3-1"),
        ("STEPS", "1,,2"),
        ("STEPS", "-1"),
        ("PHASES", "forward,sideways"),
        ("CALLSITES", "a.py,,b.py"),
        ("CALLSITES", "a:b:c:d"),
        ("LEVELS", "0"),
        ("LEVELS", "1,2"),
    ],
)
def test_malformed_variable_is_named(part: str, text: str) -> None:
    with pytest.raises(InvalidSettingError) as caught:
        read_selection({f"OPGUARD_SELECT_{part}": text})
    assert caught.value.details["variable"] == f"OPGUARD_SELECT_{part}"


@pytest.mark.parametrize(
    ("patterns", "taken"),
    [
        ((), True),
        (("lib/*",), True),
        (("lib/*:Net.*:self.?c",), True),
        (("*::torch.*",), False),
        (("train.py",), False),
        (("lib/*", "!*:Net.*"), False),
        (("!train.py",), True),
    ],
)
def test_patterns_take_in_and_out(patterns: tuple[str, ...], taken: bool) -> None:
    assert takes_callsite(patterns, "lib/net.py", "Net.forward", "self.fc") is taken
