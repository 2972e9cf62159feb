"""Records the calls of instrumented source: inputs before, outputs and effects after."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Container, Set
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch

import xorsig
from opguard.core.compiled import hidden_from_compiler
from opguard.core.cuda.results import Device
from opguard.core.interruption import comes_from_signal_handler
from opguard.core.recording.callees import (
    FRESH_MEMORY,
    KEEPS_OPTIMIZER_STATE,
    callee_name,
    is_compiled,
    may_use_python_random,
    overwritten_prefixes,
    reads_gradients,
    runs_workload_code,
)
from opguard.core.recording.flatten import Slots, flatten
from opguard.core.recording.frames import Flag, Frame, Mark, Phase, Role
from opguard.core.recording.modules import ModuleRecords, module_of
from opguard.core.recording.names import Names
from opguard.core.recording.native import connect
from opguard.core.recording.operators import OperatorCapture
from opguard.core.recording.optimizers import OptimizerHooks, OptimizerRecords
from opguard.core.recording.places import Places, calling_frame
from opguard.core.recording.purity import module_facts
from opguard.core.recording.random_state import RandomState
from opguard.core.recording.records import Records
from opguard.core.recording.tensors import TensorReader
from opguard.core.recursion import MAX_NESTED_CALLS
from opguard.core.selection import Selection

if TYPE_CHECKING:
    from xorsig import CaptureWriter

EVERYTHING = Selection()
_STOP_RECOMPUTATION = "_StopRecomputationError"
_MAX_FAILURE_NOTES = 20


class _NotFollowed(Exception):  # noqa: N818, never raised: it names how a call's record ended
    """Stands for the end of a call whose inputs could not be recorded."""


class CallRecorder(xorsig.Recorder):
    """Receives calls from :mod:`opguard.core._site` and writes their records.

    It records one thread; calls of other threads run unrecorded and are counted. Gradients may
    arrive on threads of the autograd engine. It never raises into the workload: a failure of its
    own is written into the capture as a note and counted. What a signal handler of the workload
    raises meanwhile does reach the workload.

    Its native base class records by itself what :mod:`opguard.core.recording.purity` knows as
    functions that can only read their arguments, called with plain tensors and values: the bulk of
    a training's calls. The methods below record every other call, and would record those in the
    same way. Both put their calls on :attr:`stack`.

    Args:
        writer: Receives the records.
        regions: Regions per fingerprint.
        thread: Identity of the thread to record.
        deep: Callsites whose operators are recorded as well.
        capture: Directory of the whole capture, which keeps the source of libraries.
        checkout: Folder of the workload's own source.
        selection: Phases and levels to record; which steps, ``paused`` says.
        on_step: Receives the number of completed steps after each.
        native: Whether the base class records what it can.
        device: Where fingerprints are launched and not waited for; CUDA by default.

    Attributes:
        enabled: Whether calls are recorded.
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
        self._known = xorsig.KnownParameters(self)
        self._modules = ModuleRecords(self._records, self._reader, self._known)
        self._states = OptimizerRecords(self._records, self._reader, self._known)
        self._hooks = OptimizerHooks(self._before_step, self._after_step)
        self._random = RandomState()
        places = Places(self._records, capture, checkout)
        self.packages = places.packages
        self._operators = OperatorCapture(
            self,
            self._records,
            self._reader,
            self._random,
            places,
            thread,
        )
        # The session adds to its own set.
        self._deep = deep if isinstance(deep, set) else set(deep)
        self._selection = selection
        self._on_step = on_step
        self._thread = thread
        self._lock = threading.RLock()
        self.failures = 0
        taken = [phase for phase in Phase if selection.takes_phase(phase)]
        connect(
            self, self._reader, names, self._random, deep=self._deep, phases=taken, native=native
        )

    def close(self) -> None:
        """Stop recording, unregister torch's hooks, and wait for fingerprints of devices."""
        self.enabled = False
        self._operators.close()
        self._hooks.remove()
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
        self._records.mark(Mark.STEP, self.step)
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
        if self._selection.phases and not self._takes(self._phase(_is_step(callee))):
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
            except Exception as error:
                self._failed(where, error)
                return False
            finally:
                self.busy = False
            return True

    @hidden_from_compiler
    def _failed(self, where: str, error: Exception) -> None:
        """Note a failure of the recorder; what a signal handler raised belongs to the workload."""
        if comes_from_signal_handler(error):
            raise error
        self.failures += 1
        if self.failures <= _MAX_FAILURE_NOTES:
            text = f"{where}: {type(error).__name__}: {error}"[:300]
            self.note(Mark.NOTE, "recorder failure", text)

    def _begin(
        self, frame: Frame, index: int, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> None:
        callee = frame.callee
        frame.name = callee_name(callee)
        parent = self.stack[-1] if self.stack else None
        slots = Slots()
        for position, item in enumerate(args):
            flatten(item, f"arg[{position}]", f"value.arg[{position}]", slots)
        for key, item in kwargs.items():
            flatten(item, f"kwarg.{key}", f"value.{key}", slots)
        facts = None
        if isinstance(callee, torch.nn.Module):
            facts = module_facts(callee, (tensor for _, tensor in slots.tensors))
        frame.reads_only = facts is not None
        if not frame.reads_only:
            changed = self._known.changes()
            if parent is not None and changed:
                parent.merge_effects(changed)
        owner = getattr(callee, "__self__", None)
        if isinstance(owner, torch.Tensor):
            slots.tensors.append(("self", owner))
        frame.site = index
        frame.flags = _flags(callee, frame.name)
        frame.optimizers = slots.optimizers
        keeps_state = frame.name == "step" or frame.name in KEEPS_OPTIMIZER_STATE
        if isinstance(owner, torch.optim.Optimizer) and not keeps_state:
            frame.optimizers.append(owner)
        # Also that of something that is given the optimizer, such as a gradient scaler.
        frame.is_step = _is_step(callee) or (frame.name == "step" and bool(slots.optimizers))
        self._records.begin(frame, parent, index, self.step, self._phase(_is_step(callee)))
        self.calls += 1
        self.stack.append(frame)
        self._record_inputs(frame, slots, parent)
        if reads_gradients(frame.name, args, frame.optimizers):
            self._known.record_gradients(frame.call, Role.INPUT)
        for optimizer in frame.optimizers:
            frame.optimizer_states.update(self._states.states(optimizer))
        if facts is None or facts.random:
            frame.python_random = may_use_python_random(callee)
            frame.random = self._random.digests(frame.python_random)

    def _phase(self, is_step: bool) -> Phase:
        if is_step or self.optimizer_depth:
            return Phase.OPTIMIZER
        in_backward = torch._C._current_graph_task_id() != -1
        return Phase.BACKWARD if in_backward else Phase.FORWARD

    def _takes(self, phase: Phase) -> bool:
        return not self.paused and self._selection.takes_phase(phase)

    def _record_inputs(self, frame: Frame, slots: Slots, parent: Frame | None) -> None:
        overwritten = overwritten_prefixes(frame.callee, frame.name)
        frame.inputs.extend(slots.tensors)
        read = [pair for pair in slots.tensors if not pair[0].startswith(overwritten)]
        if read:
            frame.before.update(self.record_tensors(frame.call, Role.INPUT, read))
        module = module_of(frame.callee)
        if module is not None:
            self._modules.inputs(frame, module, "", parent)
        for slot, item in slots.modules:
            self._modules.inputs(frame, item, slot + ".", parent)
        self._records.values(frame.call, Role.INPUT, slots.values)

    def _end(self, token: object, result: Any, error: BaseException | None) -> None:
        if not isinstance(token, Frame) or token not in self.stack:
            return
        # A generator that was abandoned, or an exception past inner calls, leaves frames behind;
        # an optimizer step that raised has run no post hook.
        del self.stack[self.stack.index(token) :]
        if self._operators.active and not any(frame.deep for frame in self.stack):
            self._operators.activate(False)
        token.caller = None
        self.optimizer_depth = token.optimizer_depth
        self.guarded(token.name, lambda: self._finish(token, result, error))

    def _finish(self, frame: Frame, result: Any, error: BaseException | None) -> None:
        call, records = frame.call, self._records
        if not frame.reads_only:
            self._record_changed_inputs(frame)
        slots = Slots()
        if error is None:
            flatten(result, "out", "out", slots)
        self._record_outputs(call, slots, fresh_memory=bool(frame.flags & Flag.UNINITIALISED))
        if not runs_workload_code(frame.callee):
            records.values(call, Role.OUTPUT, slots.values)
        if not frame.reads_only:
            self._record_what_changed(frame, slots)
        self._record_effects(call, frame.effects, frame.recorded)
        after = self._random.digests(frame.python_random) if frame.random else {}
        for slot, text in frame.random.items():
            if after.get(slot) != text:
                records.value(call, Role.RANDOM_BEFORE, slot, text)
                records.value(call, Role.RANDOM_AFTER, slot, after.get(slot, "None"))
        kind = "" if error is None else type(error).__name__
        if kind == _STOP_RECOMPUTATION:
            # Checkpointing ends a recomputation early by an exception: no failure.
            records.end(frame, 0, Flag.RECOMPUTED, "")
        else:
            records.end(frame, 0 if error is None else 1, 0, kind)

    def _record_what_changed(self, frame: Frame, slots: Slots) -> None:
        """Modules that the call gave or filled, known parameters, the state of optimizers."""
        call = frame.call
        changed = self._known.changes()
        if not frame.flags & Flag.UNINITIALISED:
            for slot, item in slots.modules:
                self._modules.outputs(call, item, slot + ".", frozenset())
            module = module_of(frame.callee)
            if module is not None:
                # What the module got during the call: resized or lazily made parameters.
                self._modules.outputs(call, module, "", frame.held)
            frame.merge_effects(changed)
        self._states.changed_states(frame)

    def _record_outputs(self, call: int, slots: Slots, *, fresh_memory: bool) -> None:
        watched = self._selection.takes_phase(Phase.BACKWARD)
        for slot, tensor in slots.tensors:
            if fresh_memory:
                parts = [(slot, self._reader.describe(tensor, "uninitialised memory"))]
                self._records.tensors(call, Role.OUTPUT, parts)
            else:
                self._records.tensor(call, Role.OUTPUT, slot, tensor)
            if watched and isinstance(tensor, torch.Tensor) and not _in_functorch(tensor):
                self.watch(call, slot, tensor)

    def _record_effects(
        self, call: int, effects: xorsig.Effects, unless: Container[str] = ()
    ) -> None:
        if effects:
            self._known.record_effects(call, effects, unless)
            if self.stack:
                self.stack[-1].merge_effects(effects)

    def _record_changed_inputs(self, frame: Frame) -> None:
        if frame.inputs:
            changed = self.record_changed(frame.call, frame.inputs, frame.before)
            tensors = [tensor for tensor in changed if isinstance(tensor, torch.Tensor)]
            if tensors:
                frame.merge_effects(self._known.alias_changes(tensors))

    def _innermost(self) -> Frame | None:
        """The innermost open call, if the Python half records it."""
        call = self.stack[-1] if self.stack else None
        return call if isinstance(call, Frame) else None

    # What the native half calls, which has checked already that the call is to be recorded.

    @hidden_from_compiler
    def _native_results(self, call: int, result: Any) -> None:
        """A result that holds more than plain tensors and values."""
        with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
            slots = Slots()
            flatten(result, "out", "out", slots)
            self._record_outputs(call, slots, fresh_memory=False)
            self._records.values(call, Role.OUTPUT, slots.values)

    @hidden_from_compiler
    def _native_effects(self, call: int, effects: xorsig.Effects) -> None:
        """Effects of calls inside a native one."""
        self._record_effects(call, effects)

    # What OperatorCapture calls.

    def current(self) -> Frame | None:
        """The innermost open call, where operators are to be recorded in it."""
        call = self._innermost()
        if call is None or not call.deep or self.full or not self.enabled:
            return None
        return call if self._takes(self._phase(False)) else None

    def open_child(self, child: Frame, parent: Frame) -> None:
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

    # What torch's hooks call.

    @hidden_from_compiler
    def _before_step(self, optimizer: torch.optim.Optimizer) -> None:
        if threading.get_ident() != self._thread:
            return
        taken = not self.full and self._takes(Phase.OPTIMIZER)
        call = self._innermost() if taken else None
        if call is not None and not call.is_step:
            running = sys._getframe(1)
            self.guarded("optimizer step", lambda: self._open_step(call, optimizer, running))
        self.optimizer_depth += 1
        self._around_step(optimizer, Role.INPUT)

    def _open_step(self, call: Frame, optimizer: torch.optim.Optimizer, running: FrameType) -> None:
        """A step that a library makes inside a recorded call is a call of its own."""
        place = self._operators.step_place(running, call)
        frame = Frame(optimizer.step, self.optimizer_depth)
        frame.name = f"{type(optimizer).__name__}.step@{place}"
        frame.flags = Flag.OPERATOR
        frame.deep, frame.caller, frame.stepping = call.deep, call.caller, id(optimizer)
        frame.is_step = True
        changed = self._known.changes()
        if changed:
            call.merge_effects(changed)
        self.open_child(frame, call)

    @hidden_from_compiler
    def _after_step(self, optimizer: torch.optim.Optimizer, completes_step: bool) -> None:
        if threading.get_ident() != self._thread:
            return
        self.optimizer_depth = max(0, self.optimizer_depth - 1)
        self._around_step(optimizer, Role.OUTPUT)
        frame = self._innermost()
        if frame is not None and frame.stepping == id(optimizer):
            self.guarded("optimizer step", lambda: self.close_child(frame, None))
        if completes_step and self.enabled:
            self.completed_step()

    def _around_step(self, optimizer: torch.optim.Optimizer, role: Role) -> None:
        frame = self._innermost()
        if frame is not None and self._takes(Phase.OPTIMIZER):
            self.guarded("optimizer step", lambda: self._states.around_step(frame, optimizer, role))

    @hidden_from_compiler
    def _on_gradient(self, gradient: torch.Tensor, places: list[tuple[int, str]]) -> None:
        self.guarded(
            "gradient", lambda: self._record_gradient(gradient, places), engine_threads=True
        )

    def _record_gradient(self, gradient: torch.Tensor, places: list[tuple[int, str]]) -> None:
        if not _in_functorch(gradient):
            parts = self._reader.read("", gradient)
            for call, slot in places:
                self._records.under(call, Role.GRADIENT, slot, parts)


def _is_step(callee: Any) -> bool:
    owner = getattr(callee, "__self__", None)
    return isinstance(owner, torch.optim.Optimizer) and callee_name(callee) == "step"


def _flags(callee: Any, name: str) -> int:
    flags = Flag(0)
    if isinstance(callee, torch.nn.Module):
        flags |= Flag.MODULE
    if is_compiled(callee):
        flags |= Flag.COMPILED
    if name in FRESH_MEMORY:
        flags |= Flag.UNINITIALISED
    return flags


def _is_foreign_thread() -> bool:
    """Whether Python did not start this thread, as those of the autograd engine for a device."""
    return threading.current_thread().name.startswith("Dummy-")


def _in_functorch(tensor: torch.Tensor) -> bool:
    return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))
