"""Optimizer steps: parameters, gradients, state and settings around each, and the step clock."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

import xorsig
from opguard.core.recording.flatten import plain_text
from opguard.core.recording.frames import Frame, Role
from opguard.core.recording.records import Records
from opguard.core.recording.tensors import Reading, Signature, TensorReader


class OptimizerHooks:
    """Calls back before and after every ``Optimizer.step`` of the process.

    Args:
        before: Receives the optimizer.
        after: Receives the optimizer and whether the step completes one step of the run: the
            first optimizer that is seen to step is the clock, and the next one when it is gone.
    """

    def __init__(
        self,
        before: Callable[[torch.optim.Optimizer], None],
        after: Callable[[torch.optim.Optimizer, bool], None],
    ) -> None:
        self._clock: weakref.ref[torch.optim.Optimizer] | None = None
        self._before = before
        self._after = after
        self._handles = [
            register_optimizer_step_pre_hook(self._pre),
            register_optimizer_step_post_hook(self._post),
        ]

    def remove(self) -> None:
        """Unregister both hooks."""
        for handle in self._handles:
            handle.remove()

    def _pre(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self._before(optimizer)

    def _post(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        if self._clock is None or self._clock() is None:
            self._clock = weakref.ref(optimizer)
        self._after(optimizer, self._clock() is optimizer)


class OptimizerRecords:
    """Records what an optimizer holds: parameters, gradients, state and settings."""

    def __init__(
        self, records: Records, reader: TensorReader, known: xorsig.KnownParameters
    ) -> None:
        self._records = records
        self._reader = reader
        self._known = known

    def around_step(self, frame: Frame, optimizer: torch.optim.Optimizer, role: Role) -> None:
        """Record one side of ``optimizer.step``: its inputs, or its outputs."""
        changed = self._known.changes()
        records, call = self._records, frame.call
        members = self._known.record_members(call, role, optimizer, groups=role is Role.INPUT)
        frame.recorded.update("param." + name for name, _ in members)
        if role is Role.INPUT:
            self._known.record_gradients(call, role)
            self._settings(call, optimizer)
        for slot, item in _state(optimizer, members):
            if isinstance(item, torch.Tensor):
                records.tensor(call, role, slot, item)
            else:
                records.value(call, role, slot, plain_text(item))
        frame.merge_effects(changed)

    def _settings(self, call: int, optimizer: torch.optim.Optimizer) -> None:
        """Every group's settings: learning rate, decay, flags."""
        for index, group in enumerate(optimizer.param_groups):
            for key, value in group.items():
                slot = f"group[{index}].{key}"
                if key in ("params", "param_names"):
                    continue
                if not isinstance(value, torch.Tensor):
                    self._records.value(call, Role.INPUT, f"value.{slot}", plain_text(value))
                elif value.is_cpu:
                    text = plain_text(value.item())
                    self._records.value(call, Role.INPUT, f"value.{slot}", text)
                else:
                    # The number would have to be waited for.
                    self._records.tensor(call, Role.INPUT, f"state.{slot}", value)

    def states(self, optimizer: torch.optim.Optimizer) -> dict[str, Signature | str]:
        """Signature or text of everything in the optimizer's state, by slot."""
        return {slot: _identity(item) for slot, item in self._items(optimizer)}

    def changed_states(self, frame: Frame) -> None:
        """Record as outputs what a call changed in the state of the optimizers it was given."""
        for optimizer in frame.optimizers:
            for slot, item in self._items(optimizer):
                known = slot in frame.optimizer_states
                before = frame.optimizer_states.get(slot)
                if known and before == _identity(item):
                    continue
                if isinstance(item, str):
                    self._records.value(frame.call, Role.OUTPUT, slot, item)
                else:
                    earlier = None if isinstance(before, str) else before
                    self._records.changed(frame.call, Role.OUTPUT, slot, item, earlier)

    def _items(self, optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, Reading | str]]:
        for slot, item in _state(optimizer, self._known.members(optimizer)):
            if isinstance(item, torch.Tensor):
                yield from self._reader.read(slot, item)
            else:
                yield slot, plain_text(item)


def _state(
    optimizer: torch.optim.Optimizer, members: list[tuple[str, Any]]
) -> Iterator[tuple[str, Any]]:
    """``(slot, item)`` of everything in the optimizer's state."""
    state = optimizer.state
    if not state:
        return
    for name, parameter in members:
        if parameter in state:
            for key, item in state[parameter].items():
                yield f"state.{name}.{key}", item


def _identity(item: Reading | str) -> Signature | str:
    return item if isinstance(item, str) else item.signature
