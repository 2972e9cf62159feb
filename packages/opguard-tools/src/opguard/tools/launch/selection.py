"""What of a run is recorded, as the ``OPGUARD_SELECT_*`` variables choose it."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from opguard.tools.protocol.errors import InvalidSettingError

Part = Literal["steps", "phases", "callsites", "levels"]

VARIABLES: dict[Part, str] = {
    "steps": "OPGUARD_SELECT_STEPS",
    "phases": "OPGUARD_SELECT_PHASES",
    "callsites": "OPGUARD_SELECT_CALLSITES",
    "levels": "OPGUARD_SELECT_LEVELS",
}

_RANGE = "[0-9]{1,12}(?:-(?:[0-9]{1,12})?)?"
_PHASE = "(?:forward|backward|optimizer)"
_PATTERN = "!?[^,:!]+(?::[^,:]*){0,2}"
_FORMS: dict[Part, tuple[str, str]] = {
    "steps": (_RANGE, "numbers and ranges of steps, such as 0-3,10,20-"),
    "phases": (_PHASE, "phases out of forward, backward and optimizer, separated by commas"),
    "callsites": (_PATTERN, "patterns FILE[:FUNCTION[:CALLEE]], separated by commas"),
    "levels": ("0*[1-9][0-9]{0,3}", "a whole number of at least 1"),
}


@dataclass(frozen=True)
class CaptureSelection:
    """Texts of the variables that are set, checked.

    Attributes:
        steps: Ranges of steps; the number of a step is that of the steps completed before it.
        phases: Names of phases.
        callsites: Patterns of callsites.
        levels: Number of recorded calls inside one another.
    """

    steps: str | None = None
    phases: str | None = None
    callsites: str | None = None
    levels: str | None = None

    def document(self) -> dict[str, Any]:
        """The selection as JSON data for the workers."""
        return {part: getattr(self, part) for part in VARIABLES}

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns of callsites, one by one."""
        found = () if self.callsites is None else self.callsites.split(",")
        return tuple(pattern.strip() for pattern in found)


def read_selection(environment: Mapping[str, str]) -> CaptureSelection:
    """Read and check the variables.

    Args:
        environment: The workload's, with what it inherits.

    Raises:
        InvalidSettingError: A variable is malformed; names it.
    """
    found = {part: environment.get(variable) or None for part, variable in VARIABLES.items()}
    for part, text in found.items():
        if text is not None:
            check_part(part, text, VARIABLES[part])
    return CaptureSelection(**found)


def check_part(part: Part, text: str, name: str) -> None:
    """Check the text of one part of a selection.

    Raises:
        InvalidSettingError: It is malformed; ``name`` is where it comes from.
    """
    form, words = _FORMS[part]
    items = [text] if part == "levels" else text.split(",")
    if not all(re.fullmatch(form, item.strip(), re.ASCII | re.DOTALL) for item in items):
        raise InvalidSettingError(
            f"{name} is {text!r}; set it to {words}", variable=name, value=text
        )
    for item in items if part == "steps" else ():
        first, _, last = item.strip().partition("-")
        if last and int(last) < int(first):
            raise InvalidSettingError(
                f"{name} is {text!r}; the range {item.strip()} ends before it begins",
                variable=name,
                value=text,
            )


def takes_callsite(patterns: tuple[str, ...], file: str, qualname: str, callee: str) -> bool:
    """Whether patterns take in a callsite.

    Each is ``FILE``, ``FILE:FUNCTION`` or ``FILE:FUNCTION:CALLEE`` with ``*`` and ``?`` as in file
    names. One that begins with ``!`` takes out what the others take in.
    """

    def matches(pattern: str) -> bool:
        pairs = zip((file, qualname, callee), pattern.split(":"), strict=False)
        return all(fnmatch.fnmatchcase(part, wanted or "*") for part, wanted in pairs)

    into = [pattern for pattern in patterns if not pattern.startswith("!")]
    out = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    return (not into or any(map(matches, into))) and not any(map(matches, out))
