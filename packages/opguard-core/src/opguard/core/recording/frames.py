"""The state of one call while it runs."""

from __future__ import annotations

import enum
from types import FrameType
from typing import Any

import torch

import xorsig
from opguard.core.recording.tensors import Signature


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
    """A call in progress that the Python half records; see the base class for the rest.

    Attributes:
        callee: What is called.
        name: Its name.
        inputs: Slots and tensors that an operator may write to.
        optimizers: Optimizers whose state the call may change.
        optimizer_states: Their state before the call.
        random: Digests of the random generators before an operator.
        caller: The workload's frame that makes the call.
        stepping: Identity of the optimizer whose step this is, where no callsite stands for it.
    """

    __slots__ = (
        "callee",
        "caller",
        "inputs",
        "name",
        "optimizer_states",
        "optimizers",
        "random",
        "stepping",
    )

    def __init__(self, callee: Any, optimizer_depth: int) -> None:
        self.optimizer_depth = optimizer_depth
        self.callee = callee
        self.name = ""
        self.inputs: list[tuple[str, torch.Tensor]] = []
        self.optimizers: list[torch.optim.Optimizer] = []
        self.optimizer_states: dict[str, Signature | str] = {}
        self.random: dict[str, str] = {}
        self.caller: FrameType | None = None
        self.stepping = 0
