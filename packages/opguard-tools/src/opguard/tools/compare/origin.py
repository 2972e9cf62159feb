"""What an origin is; how origins are found is in ``origins``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from opguard.tools.compare.pairing import CallPair
from opguard.tools.compare.records import Call, Side
from opguard.tools.compare.relations import RelationSource
from opguard.tools.compare.slots import SlotDifference


class OriginKind(StrEnum):
    """What makes a place an origin."""

    OUTPUTS_DIFFER = "outputs_differ"
    UNEXPLAINED_INPUT = "unexplained_input"
    UNPAIRED = "unpaired"
    INCOMPATIBLE = "incompatible"


@dataclass(frozen=True, slots=True)
class SilentStatement:
    """A changed statement without a recorded call, in a function that ran inside an origin's call.

    Attributes:
        file: Path relative to the checkout.
        line: First line, from 1.
        end_line: Last line; of a compound statement, that of its header.
        qualname: The function.
        position: Line and column in UTF-8 bytes.
    """

    file: str
    line: int
    end_line: int
    qualname: str
    position: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Origin:
    """A place where both runs stopped agreeing.

    Attributes:
        position: On the baseline's clock (ticks).
        baseline: The baseline's call, or None when only the candidate has one.
        candidate: The candidate's call, or None when only the baseline has one.
        slots: The slots that show it.
        why: What was found, in words.
        source: How the two calls were paired, or None where one is missing.
        inherited_from: Another rank from which a collective took the difference.
        slots_of: The calls that the slots belong to, where these are not the origin's own: what
            an origin produced shows in an input of the call that takes it.
        silent: Per side, what may have made the difference inside the call where nothing recorded
            there did.
    """

    kind: OriginKind
    position: float
    baseline: Call | None
    candidate: Call | None
    slots: tuple[SlotDifference, ...]
    why: str
    source: RelationSource | None = None
    inherited_from: int | None = None
    slots_of: CallPair | None = None
    silent: Mapping[Side, SilentStatement] = field(default_factory=dict)

    @property
    def step(self) -> int:
        """Step of the call."""
        call = self.baseline or self.candidate
        return call.step if call else 0

    @property
    def phase(self) -> int:
        """Phase of the call."""
        call = self.baseline or self.candidate
        return call.phase if call else 0
