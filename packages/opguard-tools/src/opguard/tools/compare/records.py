"""Call records of one rank, compact enough to hold hundreds of thousands in memory."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, IntFlag, StrEnum

import polars as pl

from opguard.tools.compare.capture import RankTables
from opguard.tools.compare.fingerprints import FingerprintTable
from opguard.tools.compare.places import Place, place_of

NEVER_ENDED = 1 << 62
"""End tick of a call without an end record: after every tick of the capture."""

STATE_PREFIXES = ("param.", "buffer.", "grad.", "state.")
"""Slots of parameters, buffers, gradients and optimizer state: these always count."""

OLD_VALUE_UNREAD = frozenset({"zero_grad", "load_state_dict", "backward"})
"""Callees whose effects do not depend on the old value, or that record it themselves.

``zero_grad`` and ``load_state_dict`` only overwrite; ``backward`` lists the old gradients among
its inputs because it adds to them.
"""


class Side(StrEnum):
    """Which of the two runs."""

    BASELINE = "baseline"
    CANDIDATE = "candidate"


class Role(IntEnum):
    """What a recorded value was to its call."""

    INPUT = 0
    OUTPUT = 1
    EFFECT_BEFORE = 2
    EFFECT_AFTER = 3
    GRADIENT = 4
    RNG_BEFORE = 5
    RNG_AFTER = 6


class Phase(IntEnum):
    """Part of the training step a call ran in."""

    FORWARD = 0
    BACKWARD = 1
    OPTIMIZER = 2


class CallFlag(IntFlag):
    """Facts the recorder notes about a call."""

    COMPILED = 1
    RECOMPUTED = 2
    MODULE = 4
    UNINITIALISED = 8
    OPERATOR = 16


@dataclass(frozen=True, slots=True)
class GradientRecord:
    """A gradient that reached an output of a forward call.

    Attributes:
        arrival: How many gradients of this slot and call came before it.
        tick: When it arrived.
    """

    slot: str
    arrival: int
    fingerprint: int
    tick: int


@dataclass(slots=True, eq=False)
class Call:
    """One recorded call.

    Slots map to interned fingerprints (see ``FingerprintTable``). ``inputs`` holds tensors and
    absent parameter gradients, ``arguments`` non-tensor arguments, ``outputs`` results and
    everything that the call changed. ``place`` is where a library ran an operator.
    """

    id: int
    parent: int
    site: int
    step: int
    phase: int
    thread: int
    flags: int
    callee: str
    begin: int
    end: int
    error: str | None
    index: int = 0
    inputs: dict[str, int] = field(default_factory=dict)
    arguments: dict[str, int] = field(default_factory=dict)
    outputs: dict[str, int] = field(default_factory=dict)
    gradients: list[GradientRecord] = field(default_factory=list)
    place: Place | None = None
    rng_before: dict[str, int] = field(default_factory=dict)
    rng_after: dict[str, int] = field(default_factory=dict)
    children: list[Call] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        """Whether the end of the call was recorded."""
        return self.end < NEVER_ENDED

    @property
    def name(self) -> str:
        """Last dotted part of the callee as recorded; a Module's class name."""
        return self.callee.partition("@")[0].rpartition(".")[2]

    @property
    def operator(self) -> str:
        """Name of an operator without overload, or of what else a library ran."""
        name = self.callee.partition("@")[0]
        namespace, colons, rest = name.partition("::")
        return namespace + colons + rest.partition(".")[0] if colons else name

    @property
    def action(self) -> str:
        """What both versions of a library have in common: the class of an optimizer may differ."""
        name = self.operator
        return name if "::" in name else name.rpartition(".")[2]

    @property
    def callsite(self) -> Hashable:
        """What equal runs have in common: the plan's callsite, and the line of an operator."""
        return self.site if self.place is None else (self.site, self.operator, self.place.spot)

    @property
    def compiled(self) -> bool:
        """Whether the callee was compiled by ``torch.compile``."""
        return bool(self.flags & CallFlag.COMPILED)

    def subtree(self) -> Iterator[Call]:
        """This call and all calls in its dynamic extent, in execution order."""
        stack = [self]
        while stack:
            call = stack.pop()
            yield call
            stack.extend(reversed(call.children))


@dataclass(frozen=True, slots=True)
class RankRecords:
    """All calls of one rank in execution order, linked as a tree.

    Attributes:
        roots: Calls without a recorded parent.
        tensors: Number of tensor records.
        incomplete: Why the capture ends early, or None.
    """

    calls: list[Call]
    roots: list[Call]
    tensors: int
    incomplete: str | None

    @classmethod
    def build(cls, tables: RankTables, fingerprints: FingerprintTable) -> RankRecords:
        """Build call records from materialised tables.

        Args:
            tables: Tables of one rank of one side.
            fingerprints: Table shared by both sides, so that equal ids mean equal identity.
        """
        calls = list(_read_calls(tables.calls))
        places = tables.places
        for call in calls:
            if places and call.flags & CallFlag.OPERATOR:
                call.place = place_of(call.callee, places)
        by_id = {call.id: call for call in calls}
        effects: dict[int, dict[int, dict[str, int]]] = {}
        tensors = tables.tensors.sort("tick")
        identities = fingerprints.intern_tensors(tensors)
        _attach(by_id, tensors, identities, effects, tensor=True)
        values = tables.values.sort("tick")
        texts = [fingerprints.intern_value(text) for text in values["value"].to_list()]
        _attach(by_id, values, texts, effects, tensor=False)
        roots = _link(calls, by_id)
        for identity, by_role in effects.items():
            _merge_effects(by_id[identity], by_role)
        return cls(calls, roots, tensors.height, tables.incomplete)

    def forget_last_exception(self) -> None:
        """Take the calls that the last exception passed through for calls that never ended.

        For a rank that another one ended: which call that hit, and with which exception, is a
        matter of timing.
        """
        level = self.roots
        while level and level[-1].error is not None:
            level[-1].end, level[-1].error = NEVER_ENDED, None
            level = level[-1].children


def _read_calls(table: pl.DataFrame) -> Iterator[Call]:
    """Read calls in order of their begin ticks; threads are numbered by first appearance.

    Native thread numbers vary between runs, their order of appearance rarely does.
    """
    threads: dict[int, int] = {}
    columns = [
        "call", "parent", "site", "step", "phase", "thread", "flags", "callee", "tick_begin",
        "tick_end", "status", "error",
    ]  # fmt: skip
    rows = table.sort("tick_begin").select(columns)
    for index, row in enumerate(rows.iter_rows()):
        call, parent, site, step, phase, thread, flags, callee, begin, end, status, error = row
        yield Call(
            call, parent, site, step, phase, threads.setdefault(thread, len(threads)), flags,
            callee or "", begin, NEVER_ENDED if end is None else end,
            (error or "error") if status else None, index,
        )  # fmt: skip


def _attach(
    by_id: dict[int, Call],
    table: pl.DataFrame,
    identities: Sequence[int],
    effects: dict[int, dict[int, dict[str, int]]],
    *,
    tensor: bool,
) -> None:
    """Distribute records over their calls by role."""
    names: dict[str, str] = {}
    columns = (table[name].to_list() for name in ("call", "role", "slot", "tick"))
    for call_id, role, text, tick, identity in zip(*columns, identities, strict=True):
        call = by_id.get(call_id)
        if call is None:
            continue
        slot = names.setdefault(text, text)
        if role == Role.INPUT:
            target = call.inputs if tensor or slot.startswith(STATE_PREFIXES) else call.arguments
            target[slot] = identity
        elif role == Role.OUTPUT:
            call.outputs[slot] = identity
        elif role == Role.GRADIENT:
            arrival = sum(record.slot == slot for record in call.gradients)
            call.gradients.append(GradientRecord(slot, arrival, identity, tick))
        elif role == Role.RNG_BEFORE:
            call.rng_before[slot] = identity
        elif role == Role.RNG_AFTER:
            call.rng_after[slot] = identity
        else:
            effects.setdefault(call_id, {}).setdefault(role, {})[slot] = identity


def _link(calls: Sequence[Call], by_id: dict[int, Call]) -> list[Call]:
    """Link children to parents; a call whose parent was not recorded becomes a root."""
    roots: list[Call] = []
    for call in calls:
        parent = by_id.get(call.parent)
        (roots if parent is None else parent.children).append(call)
    return roots


def _merge_effects(call: Call, by_role: dict[int, dict[str, int]]) -> None:
    """Known parameters and gradients that change during a call are its outputs.

    Their old values are inputs of a leaf call only: an enclosing call would otherwise repeat as
    its own input what a call inside produced. Callees that only overwrite do not read the old
    value at all.
    """
    for slot, identity in by_role.get(Role.EFFECT_AFTER, {}).items():
        call.outputs.setdefault(slot, identity)
    if call.children or call.name in OLD_VALUE_UNREAD:
        return
    for slot, identity in by_role.get(Role.EFFECT_BEFORE, {}).items():
        call.inputs.setdefault(slot, identity)
