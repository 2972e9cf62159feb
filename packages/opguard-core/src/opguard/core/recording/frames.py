"""The state of one call while it runs."""

from __future__ import annotations

import enum
from typing import Any

import torch

from opguard.core.recording.parameters import Effect
from opguard.core.recording.tensors import Reading


class Role(enum.IntEnum):
    """What a record of a call says; stored as a number in the capture."""

    INPUT = 0
    OUTPUT = 1
    EFFECT_BEFORE = 2
    EFFECT_AFTER = 3
    GRADIENT = 4
    RANDOM_BEFORE = 5
    RANDOM_AFTER = 6


class Phase(enum.IntEnum):
    """What the training was doing when a call began."""

    FORWARD = 0
    BACKWARD = 1
    OPTIMIZER = 2


class Flag(enum.IntFlag):
    """Facts about a call."""

    COMPILED = 1
    RECOMPUTED = 2
    MODULE = 4
    UNINITIALISED = 8
    OPERATOR = 16


class Mark(enum.IntEnum):
    """Kinds of marks between calls."""

    STEP = 0
    USER = 1
    NOTE = 2
    DATA = 3


class Frame:
    """A call in progress; drops every reference to the workload's objects when it ends."""

    __slots__ = (
        "before",
        "call",
        "callee",
        "effects",
        "flags",
        "inputs",
        "name",
        "optimizer_states",
        "optimizers",
        "outputs_recorded",
        "parameters",
        "python_random",
        "random",
    )

    def __init__(self, call: int, callee: Any, name: str) -> None:
        self.call = call
        self.callee = callee
        self.name = name
        self.flags = 0
        self.inputs: list[tuple[str, torch.Tensor]] = []
        """Slots whose bytes are read again after the call."""
        self.before: dict[str, bytes | None] = {}
        """Signature per slot before the call; absent for what is only overwritten."""
        self.parameters: dict[int, str] = {}
        """Identity and slot of the called module's parameters and buffers."""
        self.effects: dict[str, Effect] = {}
        self.outputs_recorded: set[str] = set()
        self.optimizers: list[torch.optim.Optimizer] = []
        self.optimizer_states: dict[str, bytes | str | None] = {}
        self.random: dict[str, str] = {}
        self.python_random = False

    def merge_effects(self, found: dict[str, Effect]) -> None:
        """Add changes, keeping for each slot the value before the first of them."""
        for slot, effect in found.items():
            earlier = self.effects.get(slot)
            before = effect.before if earlier is None else earlier.before
            self.effects[slot] = Effect(before, effect.after)


def signature_of(parts: list[tuple[str, Reading]]) -> list[tuple[str, int, bytes | None]]:
    """What of a reading must be equal for two readings of one tensor to be equal."""
    return [(slot, part.layout, part.signature) for slot, part in parts]
