"""What a call changed in the state of optimizers that it was given."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

import xorsig
from opguard.core.recording.flatten import plain_text
from opguard.core.recording.frames import Frame, Role
from opguard.core.recording.records import Records
from opguard.core.recording.tensors import Reading, Signature, TensorReader


class OptimizerStates:
    """Compares the state of optimizers before and after a call."""

    def __init__(
        self, records: Records, reader: TensorReader, known: xorsig.KnownParameters
    ) -> None:
        self._records = records
        self._reader = reader
        self._known = known

    def remember(self, frame: Frame, optimizers: list[torch.optim.Optimizer]) -> None:
        """Keep the state before a call that may change it."""
        frame.optimizers = optimizers
        for optimizer in optimizers:
            for slot, item in self._items(optimizer):
                frame.optimizer_states[slot] = _identity(item)

    def changed(self, frame: Frame) -> None:
        """Record as outputs what the call changed."""
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
        state: Any = optimizer.state
        for name, parameter in self._known.members(optimizer) if state else ():
            if parameter in state:
                for key, item in state[parameter].items():
                    slot = f"state.{name}.{key}"
                    if isinstance(item, torch.Tensor):
                        yield from self._reader.read(slot, item)
                    else:
                        yield slot, plain_text(item)


def _identity(item: Reading | str) -> Signature | str:
    return item if isinstance(item, str) else item.signature
