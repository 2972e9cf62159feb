"""How the ranks of both runs ended, where that was not with success.

A training that ends with an exception on one side, or on both, is compared over what was recorded
until then. What ended how is a finding of its own, apart from the differences in that part.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

_MAX_MESSAGE = 160
"""Characters of an exception's message that are repeated; all of it is in the document."""


class EndKind(StrEnum):
    """How the process of a rank ended, as far as is known."""

    RETURNED = "returned"
    SYSTEM_EXIT = "system_exit"
    EXCEPTION = "exception"
    OS_EXIT = "os_exit"
    NO_RECEIPT = "no_receipt"
    NOT_STARTED = "not_started"


@dataclass(frozen=True, slots=True)
class RankEnding:
    """The end of one rank.

    Attributes:
        status: Exit status; minus the signal's number where a signal is known to have ended the
            process, None where nothing is known.
        exception: Type, message, file and line of the exception that ended the script.
        steps: Optimizer steps completed, where the rank could say so.
        truncated: Why the last records of the rank are missing; None if all were published.
        ended_unix_ns: When the rank wrote its receipt; None without one.
    """

    rank: int
    kind: EndKind
    status: int | None = None
    exception: Mapping[str, Any] | None = None
    steps: int | None = None
    truncated: str | None = None
    ended_unix_ns: int | None = None

    @property
    def succeeded(self) -> bool:
        """Whether the script ended with status 0."""
        return self.status == 0 and self.kind is not EndKind.EXCEPTION

    def describe(self) -> str:
        """``raised ValueError: text (train.py:12)`` and the like."""
        match self.kind:
            case EndKind.RETURNED:
                return "returned"
            case EndKind.EXCEPTION if self.exception is not None:
                file, line = self.exception.get("file"), self.exception.get("line")
                place = f" ({file}:{line})" if file else ""
                message = " ".join(str(self.exception["message"]).split())
                if len(message) > _MAX_MESSAGE:
                    message = message[:_MAX_MESSAGE].rstrip() + "…"
                return f"raised {self.exception['type']}: {message}{place}"
            case EndKind.OS_EXIT:
                return f"left through os._exit with status {self.status}"
            case EndKind.NO_RECEIPT if self.status is not None and self.status < 0:
                return f"was ended by {_signal_name(-self.status)}"
            case EndKind.NO_RECEIPT:
                return "left no receipt: it was killed, or crashed in native code"
            case EndKind.NOT_STARTED:
                return "recorded nothing"
            case _:
                return f"exited with status {self.status}"

    def reason(self) -> str | None:
        """Why the capture of this rank is no whole run; None if it is one."""
        parts = [] if self.succeeded else [f"the rank {self.describe()}"]
        if self.truncated is not None:
            parts.append(self.truncated)
        return "; ".join(parts) or None


def alike(baseline: Iterable[RankEnding], candidate: Iterable[RankEnding]) -> bool:
    """Whether both runs ended for the same reason.

    With several ranks only the one that failed first by itself counts. The others end because of
    it: with an error of a collective or by their launcher's signal, whichever comes first.
    """
    left, right = (_cause(endings) for endings in (baseline, candidate))
    return _signature(left) == _signature(right)


def interrupted_ranks(endings: Iterable[RankEnding]) -> set[int]:
    """Ranks that ended because of another one; where in their program is a matter of timing."""
    known = list(endings)
    cause = _cause(known)
    return {e.rank for e in known if cause is not None and e is not cause and not e.succeeded}


def _cause(endings: Iterable[RankEnding]) -> RankEnding | None:
    failed = [ending for ending in endings if not ending.succeeded]
    return min(failed, key=_likely_cause, default=None)


def _likely_cause(ending: RankEnding) -> tuple[bool, bool, int, int]:
    return (
        ending.ended_unix_ns is None,
        ending.status in (-signal.SIGTERM, 128 + signal.SIGTERM),
        ending.ended_unix_ns or 0,
        ending.rank,
    )


def _signature(ending: RankEnding | None) -> tuple[object, ...] | None:
    if ending is None:
        return None
    raised = None if ending.exception is None else ending.exception["type"]
    return ending.rank, ending.kind, ending.status, raised


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
