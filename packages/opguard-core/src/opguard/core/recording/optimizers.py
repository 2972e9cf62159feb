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

from opguard.core.recording.flatten import plain_text
from opguard.core.recording.frames import Frame, Role
from opguard.core.recording.parameters import KnownParameters
from opguard.core.recording.records import Records
from opguard.core.recording.tensors import Reading, TensorReader


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

    def __init__(self, records: Records, reader: TensorReader, known: KnownParameters) -> None:
        self._records = records
        self._reader = reader
        self._known = known

    def around_step(self, frame: Frame, optimizer: torch.optim.Optimizer, role: Role) -> None:
        """Record one side of ``optimizer.step``: its inputs, or its outputs."""
        changed = self._known.changes()
        records, call = self._records, frame.call
        for group, name, parameter in self._members(optimizer):
            slot = "param." + name
            parts = self._known.reading(parameter, name, optimizer, fresh=True)
            records.under(call, role, slot, parts)
            frame.recorded.add(slot)
            if role is Role.INPUT:
                records.value(call, role, f"value.{slot}.group", str(group))
        if role is Role.INPUT:
            for name, reading in self._known.gradients():
                records.under_or_none(call, role, "grad.param." + name, reading)
            records.values(call, role, list(_settings(optimizer)))
        for slot, item in self._items(optimizer):
            self._write(call, role, slot, item)
        frame.merge_effects(changed)

    def states(self, optimizer: torch.optim.Optimizer) -> dict[str, bytes | str | None]:
        """Signature or text of everything in the optimizer's state, by slot."""
        return {slot: _identity(item) for slot, item in self._items(optimizer)}

    def changed_states(self, frame: Frame) -> None:
        """Record as outputs what a call changed in the state of the optimizers it was given."""
        for optimizer in frame.optimizers:
            for slot, item in self._items(optimizer):
                known = slot in frame.optimizer_states
                if not known or frame.optimizer_states[slot] != _identity(item):
                    self._write(frame.call, Role.OUTPUT, slot, item)

    def _write(self, call: int, role: Role, slot: str, item: Reading | str) -> None:
        if isinstance(item, str):
            self._records.value(call, role, slot, item)
        else:
            self._records.tensors(call, role, [(slot, item)])

    def _members(self, optimizer: torch.optim.Optimizer) -> Iterator[tuple[int, str, torch.Tensor]]:
        """``(group, name, parameter)``; parameters not seen in a module are named by position."""
        for group_index, group in enumerate(optimizer.param_groups):
            for index, parameter in enumerate(group["params"]):
                name = self._known.name(parameter)
                if name is None:
                    name = f"group[{group_index}][{index}]"
                    self._known.learn(parameter, name, optimizer, (group_index, index))
                yield group_index, name, parameter

    def _items(self, optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, Reading | str]]:
        state = optimizer.state
        for _, name, parameter in self._members(optimizer):
            if parameter not in state:
                continue
            for key, item in state[parameter].items():
                slot = f"state.{name}.{key}"
                if isinstance(item, torch.Tensor):
                    yield from self._reader.read(slot, item)
                else:
                    yield slot, plain_text(item)


def _identity(item: Reading | str) -> bytes | str | None:
    return item if isinstance(item, str) else item.signature


def _settings(optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, str]]:
    """``(slot, text)`` of every group's settings: learning rate, decay, flags."""
    for index, group in enumerate(optimizer.param_groups):
        for key, value in group.items():
            if key not in ("params", "param_names"):
                item = value.item() if isinstance(value, torch.Tensor) else value
                yield f"value.group[{index}].{key}", plain_text(item)
