"""Operators that run inside a recorded call, each recorded as a call of its own.

A call into an installed library says only that something in the library differs. With depth
``aten`` a dispatch mode is active for the extent of the call and sees every operator, which is
recorded with the line of the library that ran it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Protocol

import torch

from opguard.core.modes import (
    ObservingMode,
    check_traces_without,
    is_tracing,
    push_mode,
    remove_mode,
    run_operator,
)
from opguard.core.recording.flatten import Slots, flatten
from opguard.core.recording.frames import Flag, Frame, Role
from opguard.core.recording.memory import StorageResizes, UnwrittenMemory
from opguard.core.recording.places import NO_PLACE, Places
from opguard.core.recording.random_state import RandomState
from opguard.core.recording.records import Records
from opguard.core.recording.schemas import KnownOperators, OperatorFacts
from opguard.core.recording.tensors import TensorReader

MAX_LINKS = 1 << 18
"""Autograd nodes whose operator is remembered, so that their backward can be linked to it. The
oldest are forgotten first."""

_NODES_OF_AN_OPERATOR = 4
"""More nodes since the operator before were made by operators that were not recorded."""

PENDING = "pending collective"
UNWRITTEN = "uninitialised memory"
UNSPECIFIED = "workspace of the operator"


class Parent(Protocol):
    """What operator records need of the recorder: the calls that are open, and its guard."""

    def current(self) -> Frame | None:
        """The innermost open call, where operators are to be recorded in it."""

    def open_child(self, child: Frame, parent: Frame) -> None:
        """A call inside ``parent`` begins."""

    def close_child(self, child: Frame, error: BaseException | None) -> None:
        """It ended."""

    def guarded(
        self, where: str, action: Callable[[], None], *, engine_threads: bool = False
    ) -> bool:
        """Run the tracer's own code unseen by modes, without raising."""


class OperatorCapture:
    """Records operators while at least one open call has depth ``aten``.

    Operators run unrecorded in compiled code, in functorch transforms, while torch traces a
    program, on other threads, and inside recorded calls of depth ``call``.
    """

    def __init__(
        self,
        parent: Parent,
        records: Records,
        reader: TensorReader,
        random: RandomState,
        places: Places,
        thread: int,
    ) -> None:
        self._parent = parent
        self._thread = thread
        self._records = records
        self._reader = reader
        self._random = random
        self._places = places
        self._operators = KnownOperators()
        self._memory = UnwrittenMemory()
        self._resizes: StorageResizes | None = None
        self._mode: ObservingMode | None = None
        self._links: dict[int, int] = {}
        self._sequence = 0
        self.active = False

    def activate(self, needed: bool) -> None:
        """Push the dispatch mode, or take it away.

        The modes of the workload keep their order, whichever of them were entered or left
        meanwhile.
        """
        if needed == self.active:
            return
        if self._mode is None:
            self._mode = ObservingMode(self._run)
            check_traces_without(self._mode)
            self._resizes = StorageResizes(self._resized)
        if needed:
            push_mode(self._mode)
            self._sequence = torch._C._autograd._get_sequence_nr()
        else:
            remove_mode(self._mode)
        self.active = needed

    def close(self) -> None:
        """Stop recording, and undo what was set up for it."""
        self.activate(False)
        if self._resizes is not None:
            self._resizes.close()

    def _resized(self, storage: torch.UntypedStorage, before: int) -> None:
        self._parent.guarded(
            "storage", lambda: self._memory.resized(storage, before), engine_threads=True
        )

    def step_place(self, frame: FrameType, caller: FrameType | None) -> int:
        """The place that runs an optimizer step, ``frame`` being that of torch's hook.

        ``caller`` is the workload's frame that makes the recorded call around it, where known.
        """
        found = self._places.find(frame, caller, NO_PLACE)
        return NO_PLACE if found is None else found

    def _run(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run an operator that the mode was given, and record it."""
        frame = None if is_tracing() else self._open(operator, args, kwargs)
        if frame is None:
            return run_operator(operator, args, kwargs)
        try:
            result = run_operator(operator, args, kwargs)
        except BaseException as error:
            self._end(frame, None, error)
            raise
        self._end(frame, result, None)
        return result

    def _open(self, operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Frame | None:
        """An operator is about to run; ``None`` leaves it unrecorded."""
        claimed = range(0)
        if threading.get_ident() == self._thread:
            sequence = torch._C._autograd._get_sequence_nr()
            claimed, self._sequence = range(self._sequence, sequence), sequence
        call = self._parent.current()
        if call is None or torch._C._functorch.maybe_current_level() is not None:
            return None
        if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():  # type: ignore[no-untyped-call]
            return None
        frame = Frame(operator, call.optimizer_depth)
        running = sys._getframe(1)
        self._parent.guarded(
            "operator",
            lambda: self._begin(frame, call, running, claimed, args, kwargs),
            engine_threads=True,
        )
        return frame if frame.call else None

    def _begin(
        self,
        frame: Frame,
        call: Frame,
        running: FrameType,
        claimed: range,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        facts = self._operators.facts(frame.callee)
        if facts.ignored:
            return
        node = torch._C._current_autograd_node()
        outer = NO_PLACE if node is None else self._links.get(node._sequence_nr(), NO_PLACE)
        place = self._places.find(running, call.caller, outer)
        if place is None:
            return
        for number in claimed[-_NODES_OF_AN_OPERATOR:]:
            if len(self._links) >= MAX_LINKS:
                del self._links[next(iter(self._links))]
            self._links[number] = place
        frame.name = f"{facts.name}@{place}"
        self._record_inputs(frame, call, facts, args, kwargs)

    def _end(self, frame: Frame, result: Any, error: BaseException | None) -> None:
        facts = self._operators.facts(frame.callee)
        self._parent.guarded(
            facts.name,
            lambda: self._record_outputs(frame, facts, result, error),
            engine_threads=True,
        )

    def _record_inputs(
        self,
        frame: Frame,
        call: Frame,
        facts: OperatorFacts,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        frame.flags = Flag.OPERATOR | (Flag.UNINITIALISED if facts.fresh else 0)
        self._parent.open_child(frame, call)
        values: list[tuple[str, str]] = []
        for name, slot, item in facts.slots(args, kwargs):
            if item is None:
                continue
            slots = Slots()
            flatten(item, slot, f"value.{slot}", slots)
            values += slots.values
            if name in facts.written:
                frame.inputs += slots.tensors
            if name not in facts.unread:
                for part, tensor in slots.tensors:
                    self._record(frame.call, Role.INPUT, part, tensor)
        self._records.values(frame.call, Role.INPUT, values)
        if facts.random:
            frame.random = self._random.digests(False)

    def _record_outputs(
        self, frame: Frame, facts: OperatorFacts, result: Any, error: BaseException | None
    ) -> None:
        slots = Slots()
        if error is None:
            flatten(result, "out", "out", slots)
        if not facts.returns_written:
            slots.tensors += frame.inputs
        for slot, tensor in slots.tensors:
            if facts.fresh:
                self._memory.allocated(tensor)
                reason = UNWRITTEN
            elif facts.pending:
                self._memory.written(tensor)
                reason = PENDING
            else:
                index = _result_index(slot)
                if (facts.written and not facts.views) or index in facts.filled:
                    self._memory.written(tensor)
                reason = UNSPECIFIED if index in facts.unspecified else ""
            if reason:
                parts = [(slot, self._reader.describe(tensor, reason))]
                self._records.tensors(frame.call, Role.OUTPUT, parts)
            else:
                self._record(frame.call, Role.OUTPUT, slot, tensor)
        self._records.values(frame.call, Role.OUTPUT, slots.values)
        after = self._random.digests(False) if frame.random else {}
        for slot, text in frame.random.items():
            if after.get(slot) != text:
                self._records.value(frame.call, Role.RANDOM_BEFORE, slot, text)
                self._records.value(frame.call, Role.RANDOM_AFTER, slot, after.get(slot, "None"))
        self._parent.close_child(frame, error)

    def _record(self, call: int, role: Role, slot: str, tensor: Any) -> None:
        if self._memory.touches(tensor):
            parts = [(slot, self._reader.describe(tensor, UNWRITTEN))]
        else:
            parts = self._reader.read(slot, tensor)
        self._records.tensors(call, role, parts)


def _result_index(slot: str) -> int:
    """Position of a result among those of its operator."""
    digits = slot.removeprefix("out[").partition("]")[0]
    return int(digits) if digits.isdigit() else 0
