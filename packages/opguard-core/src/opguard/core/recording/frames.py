"""The state of one call while it runs."""

from __future__ import annotations

import enum
from types import FrameType
from typing import Any

import torch

import xorsig
from opguard.core.recording.tensors import Reading, Signature


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
    PLACE = 4


class Frame(xorsig.CallFrame):
    """A call in progress that the Python half records.

    Attributes:
        call: Number of the call in its capture, known once its beginning is recorded.
        callee: What is called.
        name: Its name.
        flags: :class:`Flag` bits.
        inputs: Slots and tensors whose bytes are read again after the call.
        before: Signature per slot before the call; absent for what is only overwritten.
        held: Identities of the parameters and buffers of the modules involved.
        effects: Changes of known parameters and gradients in the call's extent.
        recorded: Slots of parameters that an optimizer step has recorded already.
        optimizers: Optimizers among the arguments, or the one that a method is bound to.
        optimizer_states: Their state before the call.
        optimizer_depth: Optimizer steps that were running when the call began.
        random: Digests of the random generators before the call.
        python_random: Whether they include those of ``random`` and numpy.
        site: Number of the callsite; an operator has that of the call around it.
        deep: Whether the operators inside are recorded.
        caller: The workload's frame that makes the call.
        stepping: Identity of the optimizer whose step this is, where no callsite stands for it.
        reads_only: Whether the callee can only read what it is given, and what it holds.
        is_step: Whether the call makes a step of an optimizer and nothing else.
    """

    __slots__ = (
        "before",
        "callee",
        "caller",
        "held",
        "inputs",
        "is_step",
        "name",
        "optimizer_depth",
        "optimizer_states",
        "optimizers",
        "python_random",
        "random",
        "reads_only",
        "recorded",
        "site",
        "stepping",
    )

    def __init__(self, callee: Any, optimizer_depth: int) -> None:
        self.optimizer_depth = optimizer_depth
        self.callee = callee
        self.name = ""
        self.inputs: list[tuple[str, torch.Tensor]] = []
        self.before: dict[str, Signature] = {}
        self.held: set[int] = set()
        self.recorded: set[str] = set()
        self.optimizers: list[torch.optim.Optimizer] = []
        self.optimizer_states: dict[str, Signature | str] = {}
        self.random: dict[str, str] = {}
        self.python_random = False
        self.site = 0
        self.caller: FrameType | None = None
        self.stepping = 0
        self.reads_only = False
        self.is_step = False

    def remember(self, parts: list[tuple[str, Reading]]) -> None:
        """Keep the signatures of an input to tell whether the call changed it."""
        for slot, reading in parts:
            self.before[slot] = reading.signature
