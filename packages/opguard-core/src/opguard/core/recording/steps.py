"""Steps of optimizers: their records, calls of their own where a library makes them, the clock."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable
from types import FrameType
from typing import Any, Protocol

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

import xorsig
from opguard.core.compiled import hidden_from_compiler
from opguard.core.recording.frames import Flag, Frame, Phase, Role
from opguard.core.recording.operators import OperatorCapture


class Recording(Protocol):
    """What records of steps need of the recorder."""

    @property
    def full(self) -> bool:
        """Whether so many calls are recorded inside one another that no more may be."""

    @property
    def enabled(self) -> bool:
        """Whether calls are recorded."""

    @property
    def stack(self) -> list[Any]:
        """The open calls, outermost first."""

    optimizer_depth: int
    """Optimizer steps that are running."""

    def takes(self, phase: Phase) -> bool:
        """Whether calls of a phase are recorded now."""

    def guarded(self, where: str, action: Callable[[], None]) -> bool:
        """Run the tracer's own code unseen by modes, without raising."""

    def open_child(self, child: Frame, parent: xorsig.CallFrame) -> None:
        """A call inside ``parent`` begins."""

    def close_child(self, child: Frame, error: BaseException | None) -> None:
        """It ended."""

    def completed_step(self) -> None:
        """Count a completed step of the run."""


class OptimizerSteps:
    """Records both sides of every optimizer's step, by torch's own hooks.

    Args:
        recording: The recorder.
        known: The known parameters.
        operators: Says where a library makes a step.
        thread: Identity of the recorded thread.
    """

    def __init__(
        self,
        recording: Recording,
        known: xorsig.KnownParameters,
        operators: OperatorCapture,
        thread: int,
    ) -> None:
        self._recording = recording
        self._known = known
        self._operators = operators
        self._thread = thread
        # The first optimizer that is seen to step counts the steps, and the next when it is gone.
        self._clock: weakref.ref[torch.optim.Optimizer] | None = None
        self._handles = [
            register_optimizer_step_pre_hook(hidden_from_compiler(self._before)),
            register_optimizer_step_post_hook(hidden_from_compiler(self._after)),
        ]

    def remove(self) -> None:
        """Unregister torch's hooks."""
        for handle in self._handles:
            handle.remove()

    def _before(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if threading.get_ident() != self._thread:
            return
        recording = self._recording
        if not recording.full and recording.takes(Phase.OPTIMIZER):
            call = self._innermost()
            if call is not None and not call.is_step:
                running = sys._getframe(1)
                recording.guarded("optimizer step", lambda: self._open(call, optimizer, running))
        recording.optimizer_depth += 1
        self._around(optimizer, Role.INPUT)

    def _after(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if self._clock is None or self._clock() is None:
            self._clock = weakref.ref(optimizer)
        if threading.get_ident() != self._thread:
            return
        recording = self._recording
        recording.optimizer_depth = max(0, recording.optimizer_depth - 1)
        self._around(optimizer, Role.OUTPUT)
        frame = self._innermost()
        if isinstance(frame, Frame) and frame.stepping == id(optimizer):
            recording.guarded("optimizer step", lambda: recording.close_child(frame, None))
        if self._clock() is optimizer and recording.enabled:
            recording.completed_step()

    def _open(
        self, call: xorsig.CallFrame, optimizer: torch.optim.Optimizer, running: FrameType
    ) -> None:
        """A step that a library makes inside a recorded call is a call of its own."""
        caller = call.caller if isinstance(call, Frame) else None
        place = self._operators.step_place(running, caller)
        frame = Frame(optimizer.step, self._recording.optimizer_depth)
        frame.name = f"{type(optimizer).__name__}.step@{place}"
        frame.flags = Flag.OPERATOR
        frame.deep, frame.caller, frame.stepping = call.deep, caller, id(optimizer)
        frame.is_step = True
        call.merge_effects(self._known.changes())
        self._recording.open_child(frame, call)

    def _around(self, optimizer: torch.optim.Optimizer, role: Role) -> None:
        frame = self._innermost()
        if frame is not None and self._recording.takes(Phase.OPTIMIZER):
            self._recording.guarded(
                "optimizer step", lambda: self._known.around_step(frame, optimizer, role)
            )

    def _innermost(self) -> xorsig.CallFrame | None:
        """The innermost open call."""
        stack = self._recording.stack
        return stack[-1] if stack else None
