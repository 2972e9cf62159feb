"""Records the calls of instrumented source: inputs before, outputs and effects after."""

from __future__ import annotations

import threading
from collections.abc import Callable, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

import xorsig
from opguard.core.compiled import hidden_from_compiler
from opguard.core.cuda.results import Device
from opguard.core.interruption import comes_from_signal_handler
from opguard.core.recording.called import is_step
from opguard.core.recording.callees import callee_name
from opguard.core.recording.frames import Frame, Mark, Phase, Role
from opguard.core.recording.names import Names
from opguard.core.recording.native import connect
from opguard.core.recording.operators import OperatorCapture
from opguard.core.recording.optimizers import OptimizerStates
from opguard.core.recording.places import Places, calling_frame
from opguard.core.recording.random_state import RandomState
from opguard.core.recording.records import Records
from opguard.core.recording.steps import OptimizerSteps
from opguard.core.recording.tensors import TensorReader, in_functorch
from opguard.core.recursion import MAX_NESTED_CALLS
from opguard.core.selection import Selection

if TYPE_CHECKING:
    from xorsig import CaptureWriter

EVERYTHING = Selection()
_MAX_FAILURE_NOTES = 20
# What a failure of the recorder's own raises; a panic of the native code is no ``Exception``.
FAILURES = (Exception, xorsig.PanicException)


class _NotFollowed(Exception):  # noqa: N818, never raised: it names how a call's record ended
    """Stands for the end of a call whose inputs could not be recorded."""


class CallRecorder(xorsig.Recorder):
    """Receives calls from :mod:`opguard.core._site` and writes their records.

    It records one thread; calls of other threads run unrecorded and are counted. Gradients may
    arrive on threads of the autograd engine. It never raises into the workload: a failure of its
    own is written into the capture as a note and counted. What a signal handler of the workload
    raises meanwhile does reach the workload.

    Its native base class records: inputs, outputs, effects, modules, known parameters and both
    sides of optimizer steps. It looks at a call by itself where that holds plain tensors and values
    and nothing of the workload would see it. For every other call the methods below sort arguments
    and results of any kind, out of sight of the workload's modes, and hand them to the same native
    code. Both put their calls on :attr:`stack`.

    Args:
        writer: Receives the records.
        regions: Regions per fingerprint.
        thread: Identity of the thread to record.
        deep: Callsites whose operators are recorded as well.
        capture: Directory of the whole capture, which keeps the source of libraries.
        checkout: Folder of the workload's own source.
        selection: Phases and levels to record; which steps, ``paused`` says.
        on_step: Receives the number of completed steps after each.
        native: Whether the base class looks at calls by itself where it can.
        device: Where fingerprints are launched and not waited for; CUDA by default.

    Attributes:
        enabled: Whether calls are recorded; never in a forked child.
        paused: Whether calls that begin are left out; those begun before are followed to their end.
        busy: Whether the recorder works, so that calls made meanwhile are its own.
        full: Whether so many calls are being recorded inside one another that no more may be.
        stack: The open calls, outermost first.
        step: Completed steps of the run; every call carries the number at its beginning.
        calls: Calls recorded so far.
        tensors: Tensor records so far.
        elsewhere: Calls and gradients of other threads, which were not recorded.
        failures: Records that could not be made.
    """

    def __new__(
        cls,
        writer: CaptureWriter,
        regions: int,
        thread: int,
        *,
        selection: Selection = EVERYTHING,
        **_options: Any,
    ) -> CallRecorder:
        """Set up the native half."""
        levels = min(selection.levels or MAX_NESTED_CALLS, MAX_NESTED_CALLS)
        return super().__new__(cls, writer, regions, thread, levels)

    def __init__(
        self,
        writer: CaptureWriter,
        regions: int,
        thread: int,
        *,
        deep: Set[int] = frozenset(),
        capture: Path | None = None,
        checkout: Path | None = None,
        selection: Selection = EVERYTHING,
        on_step: Callable[[int], None] | None = None,
        native: bool = True,
        device: Device | None = None,
    ) -> None:
        names = Names(writer)
        self._records = Records(writer, names, self)
        self._reader = TensorReader(writer, names, regions, device)
        known = xorsig.KnownParameters(self)
        self._states = OptimizerStates(self._records, self._reader, known)
        random = RandomState()
        places = Places(self._records, capture, checkout)
        self.packages = places.packages
        self._operators = OperatorCapture(
            self,
            self._records,
            self._reader,
            random,
            places,
            thread,
        )
        self._steps = OptimizerSteps(self, known, self._operators, thread)
        # The session adds to its own set.
        self._deep = deep if isinstance(deep, set) else set(deep)
        self._selection = selection
        self._on_step = on_step
        self._thread = thread
        self._lock = threading.RLock()
        self.failures = 0
        taken = [phase for phase in Phase if selection.takes_phase(phase)]
        connect(self, self._reader, names, random, deep=self._deep, phases=taken, native=native)

    def close(self) -> None:
        """Stop recording, unregister torch's hooks, and wait for fingerprints of devices."""
        self.enabled = False
        self._operators.close()
        self._steps.remove()
        if self.disconnect():
            self._failed("gradient", RuntimeError("it came after its output had been forgotten"))
        self.stack.clear()
        for text in self._reader.close():
            self.note(Mark.NOTE, "device fingerprints", text)

    @property
    def device_used(self) -> bool:
        """Whether fingerprints were computed on a device."""
        return self._reader.results.used

    def flush(self) -> None:
        """Start to fetch the fingerprints that are still on a device."""
        self._reader.results.flush()

    def completed_step(self) -> None:
        """Count a completed step of the run."""
        self.step += 1
        try:
            self._records.mark(Mark.STEP, self.step)
        except FAILURES as error:
            self._failed("step", error)
        if self._on_step is not None:
            self._on_step(self.step)

    def note(self, kind: Mark, name: str, text: str) -> None:
        """Write a mark."""
        self._records.mark(kind, self.step, name, text)

    # What xorsig.CallSite calls.

    @hidden_from_compiler
    def begin(
        self, index: int, callee: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None
    ) -> Frame | None:
        """Record a call's inputs; ``None`` when it is not to be recorded."""
        if self.paused or self.full:
            return None
        if self._selection.phases and not self.takes(self._phase(is_step(callee))):
            return None
        frame = Frame(callee, self.optimizer_depth)
        if index in self._deep:
            frame.deep, frame.caller = True, calling_frame()
        began = False
        try:
            began = self.guarded(
                f"callsite {index}", lambda: self._begin(frame, index, args, kwargs or {})
            )
        finally:
            if not began and frame.call:
                # Begun in the capture but not followed: end it, or it would adopt later calls.
                self._end(frame, None, _NotFollowed())
        if began and frame.deep:
            self._operators.activate(True)
        return frame if began else None

    @hidden_from_compiler
    def finish(self, token: object, result: Any) -> None:
        """Record a call's outputs and effects."""
        self._end(token, result, None)

    @hidden_from_compiler
    def fail(self, token: object, error: BaseException) -> None:
        """Record that a call raised, and what it had changed until then."""
        self._end(token, None, error)

    def guarded(
        self, where: str, action: Callable[[], None], *, engine_threads: bool = False
    ) -> bool:
        """Run the recorder's own code unseen by the workload's modes, and without raising.

        Args:
            where: Names the action in a note, should it fail.
            action: What to do.
            engine_threads: Also on threads that Python did not start.

        Returns:
            Whether the action was done.
        """
        if not self.enabled:
            return False
        if threading.get_ident() != self._thread and not (engine_threads and _is_foreign_thread()):
            self.elsewhere += 1
            return False
        with self._lock:
            if self.busy:
                return False
            self.busy = True
            try:
                with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
                    action()
            except FAILURES as error:
                self._failed(where, error)
                return False
            finally:
                self.busy = False
            return True

    @hidden_from_compiler
    def _failed(self, where: str, error: BaseException) -> None:
        """Note a failure of the recorder; what a signal handler raised belongs to the workload."""
        if comes_from_signal_handler(error):
            raise error
        self.failures += 1
        if self.failures <= _MAX_FAILURE_NOTES:
            text = f"{where}: {type(error).__name__}: {error}"[:300]
            try:
                self.note(Mark.NOTE, "recorder failure", text)
            except FAILURES as unwritten:
                # That nothing can be written any more is raised where the capture is closed.
                if comes_from_signal_handler(unwritten):
                    raise

    def _begin(
        self, frame: Frame, index: int, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        optimizers = self.open_call(frame, index, frame.callee, args, kwargs)
        self._states.remember(frame, optimizers)

    def _phase(self, steps: bool) -> Phase:
        if steps or self.optimizer_depth:
            return Phase.OPTIMIZER
        in_backward = torch._C._current_graph_task_id() != -1
        return Phase.BACKWARD if in_backward else Phase.FORWARD

    def takes(self, phase: Phase) -> bool:
        """Whether calls of a phase are recorded now."""
        return not self.paused and self._selection.takes_phase(phase)

    def _end(self, token: object, result: Any, error: BaseException | None) -> None:
        if not isinstance(token, Frame) or token not in self.stack:
            return
        # A generator that was abandoned, or an exception past inner calls, leaves frames behind;
        # an optimizer step that raised has run no post hook.
        del self.stack[self.stack.index(token) :]
        self._left_deep_calls()
        token.caller = None
        self.optimizer_depth = token.optimizer_depth
        states = self._states.changed if token.optimizers else None
        self.guarded(
            callee_name(token.callee), lambda: self.close_call(token, result, error, states)
        )

    # What the native half calls.

    def _left_deep_calls(self) -> None:
        """Some calls were taken from the stack."""
        if self._operators.active and not any(frame.deep for frame in self.stack):
            self._operators.activate(False)

    @hidden_from_compiler
    def _finish_unusual(
        self, frame: xorsig.CallFrame, result: Any, error: BaseException | None
    ) -> None:
        """The end of a call that left more than plain tensors and values, or a mode."""
        self.guarded("native call", lambda: self.close_call(frame, result, error, None))

    # What OperatorCapture calls.

    def current(self) -> Frame | None:
        """The innermost open call, where operators are to be recorded in it."""
        call = self.stack[-1] if self.stack else None
        if not isinstance(call, Frame) or not call.deep or self.full or not self.enabled:
            return None
        return call if self.takes(self._phase(False)) else None

    def open_child(self, child: Frame, parent: xorsig.CallFrame) -> None:
        """A call inside ``parent`` begins that no callsite stands for."""
        child.site = parent.site
        self._records.begin(child, parent, child.site, self.step, self._phase(child.stepping != 0))
        self.calls += 1
        self.stack.append(child)

    def close_child(self, child: Frame, error: BaseException | None) -> None:
        """It ended."""
        if child in self.stack:
            del self.stack[self.stack.index(child) :]
        if self.stack:
            self.stack[-1].merge_effects(child.effects)
        kind = "" if error is None else type(error).__name__
        self._records.end(child, 0 if error is None else 1, 0, kind)

    @hidden_from_compiler
    def _on_gradient(self, gradient: torch.Tensor, places: list[tuple[int, str]]) -> None:
        self.guarded(
            "gradient", lambda: self._record_gradient(gradient, places), engine_threads=True
        )

    def _record_gradient(self, gradient: torch.Tensor, places: list[tuple[int, str]]) -> None:
        if not in_functorch(gradient):
            parts = self._reader.read("", gradient)
            for call, slot in places:
                self._records.under(call, Role.GRADIENT, slot, parts)


def _is_foreign_thread() -> bool:
    """Whether Python did not start this thread, as those of the autograd engine for a device."""
    return threading.current_thread().name.startswith("Dummy-")
