"""Records the calls of instrumented source: inputs before, outputs and effects after."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import torch

from opguard.core.recording.callees import (
    FRESH_MEMORY,
    callee_name,
    is_compiled,
    may_use_python_random,
    overwritten_prefixes,
)
from opguard.core.recording.flatten import Slots, flatten, value_text
from opguard.core.recording.frames import Flag, Frame, Mark, Phase, Role
from opguard.core.recording.gradients import GradientHooks
from opguard.core.recording.names import Names
from opguard.core.recording.optimizers import OptimizerHooks, members, settings, state_items
from opguard.core.recording.parameters import KnownParameters
from opguard.core.recording.random_state import RandomState
from opguard.core.recording.tensors import Reading, TensorReader

if TYPE_CHECKING:
    from xorsig import CaptureWriter

_STOP_RECOMPUTATION = "_StopRecomputationError"


class CallRecorder:
    """Receives calls from :mod:`opguard.core._site` and writes their records.

    It belongs to the thread that made it; calls of other threads run unrecorded. It never raises
    into the workload: a failure of its own is written into the capture as a note and counted.
    """

    def __init__(self, writer: CaptureWriter, regions: int) -> None:
        self._writer = writer
        self._names = Names(writer)
        self._reader = TensorReader(writer, self._names, regions)
        self._known = KnownParameters(self._reader)
        self._gradients = GradientHooks(self._on_gradient)
        self._optimizers = OptimizerHooks(self._before_step, self._after_step)
        self._random = RandomState()
        self._thread = threading.get_ident()
        self._stack: list[Frame] = []
        self._busy = False
        self._optimizer_depth = 0
        self._last_gradient: tuple[int, int, int, list[tuple[str, Reading]]] | None = None
        self.enabled = True
        self.step = 0
        self.calls = 0
        self.tensors = 0
        self.failures = 0

    def close(self) -> None:
        """Stop recording and unregister torch's hooks."""
        self.enabled = False
        self._optimizers.remove()
        self._stack.clear()

    # What xorsig.CallSite calls.

    def begin(
        self, index: int, callee: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None
    ) -> Frame | None:
        """Record a call's inputs; ``None`` when it is not to be recorded."""
        if not self.enabled or self._busy or threading.get_ident() != self._thread:
            return None
        self._busy = True
        try:
            with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
                return self._begin(index, callee, args, kwargs)
        except Exception as error:
            self._failed(f"callsite {index}", error)
            return None
        finally:
            self._busy = False

    def finish(self, token: object, result: Any) -> None:
        """Record a call's outputs and effects."""
        self._end(token, result, None)

    def fail(self, token: object, error: BaseException) -> None:
        """Record that a call raised, and what it had changed until then."""
        self._end(token, None, error)

    def completed_step(self) -> None:
        """Count a completed step of the run."""
        self.step += 1
        self._writer.mark(Mark.STEP, self.step, 0, 0)

    def note(self, kind: Mark, name: str, value: str) -> None:
        """Write a mark."""
        self._writer.mark(kind, self.step, self._names.id(name), self._names.id(value))

    # Calls.

    def _begin(
        self, index: int, callee: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None
    ) -> Frame:
        changed = self._known.changes()
        parent = self._stack[-1] if self._stack else None
        if parent is not None and changed:
            parent.merge_effects(changed)
        self.calls += 1
        name = callee_name(callee)
        frame = Frame(self.calls, callee, name)
        owner = getattr(callee, "__self__", None)
        slots = Slots()
        for position, item in enumerate(args):
            flatten(item, f"arg[{position}]", f"value.arg[{position}]", slots)
        if kwargs:
            for key, item in kwargs.items():
                flatten(item, f"kwarg.{key}", f"value.{key}", slots)
        if isinstance(owner, torch.Tensor):
            slots.tensors.append(("self", owner))
        module = self._module_of(callee, owner)
        phase = Phase.FORWARD
        if torch._C._current_graph_task_id() != -1:
            phase = Phase.BACKWARD
        is_step = name == "step" and isinstance(owner, torch.optim.Optimizer)
        if is_step or self._optimizer_depth:
            phase = Phase.OPTIMIZER
        if module is callee and module is not None:
            frame.flags |= Flag.MODULE
        if is_compiled(callee):
            frame.flags |= Flag.COMPILED
        if name in FRESH_MEMORY:
            frame.flags |= Flag.UNINITIALISED
        frame.optimizers = [
            *slots.optimizers,
            *([owner] if isinstance(owner, torch.optim.Optimizer) and not is_step else []),
        ]
        self._writer.begin(
            frame.call,
            parent.call if parent is not None else 0,
            index,
            self.step,
            phase,
            0,
            frame.flags,
            self._names.id(name),
        )
        self._record_inputs(frame, slots, module, parent)
        if name == "backward":
            for known_name, reading in self._known.gradients():
                self._effect_side(frame.call, Role.INPUT, "grad.param." + known_name, reading)
        for optimizer in frame.optimizers:
            frame.optimizer_states.update(self._optimizer_state(optimizer))
        frame.python_random = may_use_python_random(callee)
        frame.random = self._random.digests(frame.python_random)
        self._stack.append(frame)
        return frame

    @staticmethod
    def _module_of(callee: Any, owner: Any) -> torch.nn.Module | None:
        if isinstance(callee, torch.nn.Module):
            return callee
        return owner if isinstance(owner, torch.nn.Module) else None

    def _record_inputs(
        self, frame: Frame, slots: Slots, module: torch.nn.Module | None, parent: Frame | None
    ) -> None:
        overwritten = overwritten_prefixes(frame.callee, frame.name)
        call = frame.call
        for slot, tensor in slots.tensors:
            if slot.startswith(overwritten):
                frame.inputs.append((slot, tensor))
                continue
            parts = self._reader.read(slot, tensor)
            self._tensors(call, Role.INPUT, parts)
            for part, reading in parts:
                frame.before[part] = reading.signature
            frame.inputs.append((slot, tensor))
        loads = frame.name == "load_state_dict"
        if module is not None:
            self._record_module(frame, module, "", loads, parent)
        for slot, item in slots.modules:
            self._record_module(frame, item, slot + ".", loads, parent)
        value, ids = self._writer.value, self._names.id
        for slot, text in slots.values:
            value(call, Role.INPUT, ids(slot), ids(text))

    def _record_module(
        self,
        frame: Frame,
        module: torch.nn.Module,
        prefix: str,
        overwritten: bool,
        parent: Frame | None,
    ) -> None:
        # A module called from within another module's call was hashed with it just before.
        fresh = parent is None or not parent.flags & Flag.MODULE
        for name, parameter in module.named_parameters(remove_duplicate=False):
            slot = f"{prefix}param.{name}"
            parts = self._known.reading(parameter, name, fresh=fresh)
            frame.parameters[id(parameter)] = slot
            if not overwritten:
                self._tensors(frame.call, Role.INPUT, [(slot + p, r) for p, r in parts])
        for name, buffer in module.named_buffers(remove_duplicate=False):
            slot = f"{prefix}buffer.{name}"
            frame.parameters[id(buffer)] = slot
            if not overwritten:
                parts = self._reader.read(slot, buffer)
                self._tensors(frame.call, Role.INPUT, parts)
                for part, reading in parts:
                    frame.before[part] = reading.signature
            frame.inputs.append((slot, buffer))
        value, ids = self._writer.value, self._names.id
        value(
            frame.call,
            Role.INPUT,
            ids(f"value.{prefix}training"),
            ids(str(module.training)),
        )
        for name, child in module.named_modules():
            if name and child.training != module.training:
                value(
                    frame.call,
                    Role.INPUT,
                    ids(f"value.{prefix}training.{name}"),
                    ids(str(child.training)),
                )

    def _end(self, token: object, result: Any, error: BaseException | None) -> None:
        if not isinstance(token, Frame) or token not in self._stack:
            return
        while self._stack and self._stack[-1] is not token:
            self._stack.pop()
        self._stack.pop()
        if not self.enabled or threading.get_ident() != self._thread:
            return
        busy, self._busy = self._busy, True
        try:
            with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
                self._finish(token, result, error)
        except Exception as failure:
            self._failed(token.name, failure)
        finally:
            self._busy = busy

    def _finish(self, frame: Frame, result: Any, error: BaseException | None) -> None:
        call = frame.call
        slots = Slots()
        if error is None:
            flatten(result, "out", "out", slots)
        self._record_changed_inputs(frame)
        for slot, tensor in slots.tensors:
            if frame.flags & Flag.UNINITIALISED:
                self._tensors(call, Role.OUTPUT, [(slot, self._uninitialised(tensor))])
            else:
                parts = self._reader.read(slot, tensor)
                self._tensors(call, Role.OUTPUT, parts)
            if isinstance(tensor, torch.Tensor) and not self._in_functorch(tensor):
                self._gradients.watch(call, slot, tensor)
        value, ids = self._writer.value, self._names.id
        for slot, text in slots.values:
            value(call, Role.OUTPUT, ids(slot), ids(text))
        for slot, module in slots.modules:
            for name, parameter in module.named_parameters(remove_duplicate=False):
                parts = self._known.reading(parameter, name, fresh=True)
                self._tensors(call, Role.OUTPUT, [(f"{slot}.param.{name}{p}", r) for p, r in parts])
            for name, buffer in module.named_buffers(remove_duplicate=False):
                self._tensors(
                    call, Role.OUTPUT, self._reader.read(f"{slot}.buffer.{name}", buffer)
                )
        self._record_new_parameters(frame)
        for optimizer in frame.optimizers:
            for slot, (reading, text) in self._optimizer_parts(optimizer).items():
                new: bytes | str | None = reading.signature if reading is not None else text
                if slot in frame.optimizer_states and frame.optimizer_states[slot] == new:
                    continue
                if reading is not None:
                    self._tensors(call, Role.OUTPUT, [(slot, reading)])
                else:
                    value(call, Role.OUTPUT, ids(slot), ids(text))
        frame.merge_effects(self._known.changes())
        for slot, effect in frame.effects.items():
            if slot not in frame.outputs_recorded:
                self._effect_side(call, Role.EFFECT_BEFORE, slot, effect.before)
                self._effect_side(call, Role.EFFECT_AFTER, slot, effect.after)
        if self._stack:
            self._stack[-1].merge_effects(frame.effects)
        after = self._random.digests(frame.python_random)
        for slot, text in frame.random.items():
            if after.get(slot) != text:
                value(call, Role.RANDOM_BEFORE, ids(slot), ids(text))
                value(call, Role.RANDOM_AFTER, ids(slot), ids(after.get(slot, "None")))
        flags, status, kind = 0, 0, ""
        if error is not None:
            kind = type(error).__name__
            if kind == _STOP_RECOMPUTATION:
                # Checkpointing ends a recomputation early by an exception: no failure.
                flags, kind = Flag.RECOMPUTED, ""
            else:
                status = 1
        self._writer.end(call, status, flags, ids(kind) if kind else 0)

    def _record_changed_inputs(self, frame: Frame) -> None:
        for slot, tensor in frame.inputs:
            for part, reading in self._reader.read(slot, tensor):
                if part in frame.before and frame.before[part] == reading.signature:
                    continue
                self._tensors(frame.call, Role.OUTPUT, [(part, reading)])
                if isinstance(tensor, torch.Tensor):
                    frame.merge_effects(self._known.alias_changes(tensor))

    def _record_new_parameters(self, frame: Frame) -> None:
        """Parameters that the called module got during the call (resizing, lazy modules)."""
        module = self._module_of(frame.callee, getattr(frame.callee, "__self__", None))
        if module is None:
            return
        for name, parameter in module.named_parameters(remove_duplicate=False):
            if id(parameter) not in frame.parameters:
                parts = self._known.reading(parameter, name, fresh=True)
                self._tensors(
                    frame.call, Role.OUTPUT, [(f"param.{name}{p}", r) for p, r in parts]
                )
        for name, buffer in module.named_buffers(remove_duplicate=False):
            if id(buffer) not in frame.parameters:
                self._tensors(
                    frame.call, Role.OUTPUT, self._reader.read(f"buffer.{name}", buffer)
                )

    # Optimizers.

    def _before_step(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer_depth += 1
        self._around_step(optimizer, Role.INPUT)

    def _after_step(self, optimizer: torch.optim.Optimizer, completes: bool) -> None:
        self._optimizer_depth = max(0, self._optimizer_depth - 1)
        self._around_step(optimizer, Role.OUTPUT)
        if completes and self.enabled and threading.get_ident() == self._thread:
            self.completed_step()

    def _around_step(self, optimizer: torch.optim.Optimizer, role: Role) -> None:
        if not self.enabled or self._busy or threading.get_ident() != self._thread:
            return
        if not self._stack:
            return
        frame = self._stack[-1]
        self._busy = True
        try:
            with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
                self._record_step(frame, optimizer, role)
        except Exception as error:
            self._failed("optimizer step", error)
        finally:
            self._busy = False

    def _record_step(self, frame: Frame, optimizer: torch.optim.Optimizer, role: Role) -> None:
        changed = self._known.changes()
        value, ids = self._writer.value, self._names.id
        for group, name, parameter in members(optimizer, self._known):
            slot = "param." + name
            parts = self._known.reading(parameter, name, fresh=True)
            self._tensors(frame.call, role, [(slot + p, r) for p, r in parts])
            frame.outputs_recorded.add(slot)
            if role is Role.INPUT:
                value(frame.call, role, ids(f"value.{slot}.group"), ids(str(group)))
        if role is Role.INPUT:
            for name, reading in self._known.gradients():
                self._effect_side(frame.call, role, "grad.param." + name, reading)
            for slot, text in settings(optimizer):
                value(frame.call, role, ids(slot), ids(text))
        for slot, (state, text) in self._optimizer_parts(optimizer).items():
            if state is not None:
                self._tensors(frame.call, role, [(slot, state)])
            else:
                value(frame.call, role, ids(slot), ids(text))
        frame.merge_effects(changed)

    def _optimizer_parts(
        self, optimizer: torch.optim.Optimizer
    ) -> dict[str, tuple[Reading | None, str]]:
        found: dict[str, tuple[Reading | None, str]] = {}
        for _, name, parameter in members(optimizer, self._known):
            for slot, item in state_items(optimizer, name, parameter):
                if isinstance(item, torch.Tensor):
                    for part, reading in self._reader.read(slot, item):
                        found[part] = (reading, "")
                else:
                    found[slot] = (None, value_text(item) if _is_simple(item) else "<object>")
        return found

    def _optimizer_state(self, optimizer: torch.optim.Optimizer) -> dict[str, bytes | str | None]:
        return {
            slot: reading.signature if reading is not None else text
            for slot, (reading, text) in self._optimizer_parts(optimizer).items()
        }

    # Gradients.

    def _on_gradient(self, call: int, slot: str, gradient: torch.Tensor) -> None:
        if not self.enabled or self._busy or threading.get_ident() != self._thread:
            return
        self._busy = True
        try:
            with torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch():
                if self._in_functorch(gradient):
                    return
                # Nested calls that return one tensor share its gradient: read it once.
                key = (id(gradient), gradient._version, self.calls)
                last = self._last_gradient
                if last is not None and last[:3] == key:
                    parts = last[3]
                else:
                    parts = [(p[1:], r) for p, r in self._reader.read(".", gradient)]
                    self._last_gradient = (*key, parts)
                self._tensors(call, Role.GRADIENT, [(slot + p, r) for p, r in parts])
        except Exception as error:
            self._failed(f"gradient of call {call}", error)
        finally:
            self._busy = False

    # Writing.

    def _tensors(self, call: int, role: Role, parts: list[tuple[str, Reading]]) -> None:
        write, ids = self._writer.tensor, self._names.id
        self.tensors += len(parts)
        for slot, reading in parts:
            write(call, role, ids(slot), reading.layout, reading.signature, reading.note)

    def _effect_side(
        self, call: int, role: Role, slot: str, reading: list[tuple[str, Reading]] | None
    ) -> None:
        if reading is None:
            self._writer.value(call, role, self._names.id(slot), self._names.id("None"))
        else:
            self._tensors(call, role, [(slot + part, item) for part, item in reading])

    def _uninitialised(self, tensor: Any) -> Reading:
        return self._reader.describe(tensor, "uninitialised memory")

    @staticmethod
    def _in_functorch(tensor: torch.Tensor) -> bool:
        return bool(torch._C._functorch.is_functorch_wrapped_tensor(tensor))

    def _failed(self, where: str, error: Exception) -> None:
        self.failures += 1
        if self.failures <= 20:
            text = f"{where}: {type(error).__name__}: {error}"[:300]
            self.note(Mark.NOTE, "recorder failure", text)


def _is_simple(item: Any) -> bool:
    return isinstance(item, (int, float, bool, str, type(None), tuple, list))


