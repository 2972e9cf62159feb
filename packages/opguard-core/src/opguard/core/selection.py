"""What of a run is recorded: steps, phases, callsites and levels that a user chose."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

STEPS_VARIABLE = "OPGUARD_SELECT_STEPS"
PHASES_VARIABLE = "OPGUARD_SELECT_PHASES"
CALLSITES_VARIABLE = "OPGUARD_SELECT_CALLSITES"
LEVELS_VARIABLE = "OPGUARD_SELECT_LEVELS"
PHASES = ("forward", "backward", "optimizer")
"""In the order of ``opguard.core.recording.frames.Phase``."""

_RANGE = re.compile(r"([0-9]{1,12})(-([0-9]{1,12})?)?", re.ASCII)


@dataclass(frozen=True)
class Selection:
    """A budget: what is outside it runs as if it were not instrumented.

    Attributes:
        steps: First and last step of each range, the last one ``None`` for an open end; ``None``
            for all steps. A step's number is the number of steps completed before it.
        phases: Names out of :data:`PHASES`; ``None`` for all.
        callsites: Patterns, see :meth:`takes_callsite`; none for all.
        levels: Recorded calls inside one another, the outermost being level 1; ``None`` for all.
    """

    steps: tuple[tuple[int, int | None], ...] | None = None
    phases: tuple[str, ...] | None = None
    callsites: tuple[str, ...] = ()
    levels: int | None = None

    @classmethod
    def of(
        cls,
        steps: str | Iterable[int] | None = None,
        phases: str | Iterable[str] | None = None,
        callsites: str | Iterable[str] | None = None,
        levels: str | int | None = None,
    ) -> Selection:
        """Read a selection.

        Args:
            steps: ``"0-3,10,20-"``, or numbers.
            phases: ``"forward,optimizer"``, or names.
            callsites: Patterns, in one text separated by commas.
            levels: A whole number of at least 1.

        Raises:
            ValueError: One of them is malformed; the message names it.
        """
        return cls(
            None if steps is None else _ranges(steps),
            None if phases is None else _phases(phases),
            () if callsites is None else _patterns(callsites),
            None if levels is None else _levels(levels),
        )

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Selection:
        """Read the selection that environment variables make; an empty one selects everything.

        Raises:
            ValueError: A variable is malformed; the message names it.
        """
        variables = (STEPS_VARIABLE, PHASES_VARIABLE, CALLSITES_VARIABLE, LEVELS_VARIABLE)
        texts = [environment.get(variable) or None for variable in variables]
        try:
            return cls.of(*texts)
        except ValueError as error:
            raise ValueError(f"OPGUARD_SELECT_*: {error}") from error

    def takes_step(self, step: int) -> bool:
        """Whether calls that begin in a step are recorded."""
        if self.steps is None:
            return True
        return any(first <= step and (last is None or step <= last) for first, last in self.steps)

    def takes_phase(self, phase: int) -> bool:
        """Whether calls of a phase are recorded, given as a number (``recording.frames.Phase``)."""
        return self.phases is None or PHASES[phase] in self.phases

    def takes_callsite(self, file: str, qualname: str, callee: str) -> bool:
        """Whether a callsite is recorded.

        A pattern is ``FILE``, ``FILE:FUNCTION`` or ``FILE:FUNCTION:CALLEE``, each part with ``*``
        and ``?`` as in file names; one that begins with ``!`` takes out what the others take in.
        """
        parts = (file, qualname, callee)
        out = [pattern[1:] for pattern in self.callsites if pattern.startswith("!")]
        into = [pattern for pattern in self.callsites if not pattern.startswith("!")]
        taken = not into or any(_matches(pattern, parts) for pattern in into)
        return taken and not any(_matches(pattern, parts) for pattern in out)

    def document(self) -> dict[str, Any] | None:
        """The selection as a receipt states it; ``None`` where it selects everything."""
        if self == Selection():
            return None
        return {
            "steps": None if self.steps is None else steps_text(self.steps),
            "phases": None if self.phases is None else list(self.phases),
            "callsites": list(self.callsites),
            "levels": self.levels,
        }


def steps_text(ranges: Iterable[tuple[int, int | None]]) -> str:
    """Ranges of steps as users write them."""
    return ",".join(
        str(first) if first == last else f"{first}-{'' if last is None else last}"
        for first, last in ranges
    )


def _ranges(steps: str | Iterable[int]) -> tuple[tuple[int, int | None], ...]:
    if not isinstance(steps, str):
        steps = ",".join(str(step) for step in steps)
    found: list[tuple[int, int | None]] = []
    for part in steps.split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None:
            raise ValueError(f"steps {steps!r}: write numbers and ranges, such as 0-3,10,20-")
        first = int(match[1])
        last = first if match[2] is None else None if match[3] is None else int(match[3])
        if last is not None and last < first:
            raise ValueError(f"steps {steps!r}: the range {part.strip()} ends before it begins")
        found.append((first, last))
    return tuple(found)


def _phases(phases: str | Iterable[str]) -> tuple[str, ...]:
    names = phases.split(",") if isinstance(phases, str) else list(phases)
    chosen = {name.strip() for name in names}
    if not chosen or not chosen <= set(PHASES):
        raise ValueError(f"phases {phases!r}: choose from {', '.join(PHASES)}")
    return tuple(phase for phase in PHASES if phase in chosen)


def _patterns(callsites: str | Iterable[str]) -> tuple[str, ...]:
    patterns = callsites.split(",") if isinstance(callsites, str) else list(callsites)
    found = tuple(pattern.strip() for pattern in patterns)
    if not found or not all(pattern.strip("!:") for pattern in found):
        raise ValueError(f"callsites {callsites!r}: a pattern is empty")
    if any(pattern.count(":") > 2 for pattern in found):
        raise ValueError(f"callsites {callsites!r}: a pattern is FILE[:FUNCTION[:CALLEE]]")
    return found


def _levels(levels: str | int) -> int:
    text = str(levels).strip()
    if not (text.isascii() and text.isdigit()) or int(text) < 1:
        raise ValueError(f"levels {levels!r}: write a whole number of at least 1")
    return int(text)


def _matches(pattern: str, parts: tuple[str, str, str]) -> bool:
    wanted = pattern.split(":")
    return all(
        fnmatch.fnmatchcase(part, want or "*") for part, want in zip(parts, wanted, strict=False)
    )
