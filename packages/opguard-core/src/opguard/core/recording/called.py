"""Facts about one call of something that may do anything, as the native half needs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from opguard.core.recording.callees import (
    FRESH_MEMORY,
    KEEPS_OPTIMIZER_STATE,
    bound_to,
    callee_name,
    is_compiled,
    may_use_python_random,
    overwritten_prefixes,
    reads_gradients,
    runs_workload_code,
)
from opguard.core.recording.frames import Flag
from opguard.core.recording.modules import module_of
from opguard.core.recording.purity import module_facts


class Called(NamedTuple):
    """What is known about a call before it runs; the native half reads the fields in this order.

    Attributes:
        name: Name of the callee.
        flags: :class:`Flag` bits.
        reads_only: Whether the callee can only read what it is given, and what it holds.
        random: Whether it may move torch's random generators.
        python_random: Whether it may move those of ``random`` and numpy as well.
        workload_code: Whether the values that it returns say nothing of their own.
        is_step: Whether the call makes a step of an optimizer and nothing else.
        reads_gradients: Whether it may read gradients that no argument shows.
        overwritten: Beginnings of slots that it overwrites without reading them.
        owner: The tensor that it is bound to.
        module: The module that it runs: itself, or the one that a method is bound to.
        optimizers: Optimizers whose state it may change: among the arguments, or the one that a
            method is bound to.
        by_class: Whether all of this but ``module`` holds for every object of the callee's class
            that has none of :data:`TELLING` among its own attributes.
    """

    name: str
    flags: int
    reads_only: bool
    random: bool
    python_random: bool
    workload_code: bool
    is_step: bool
    reads_gradients: bool
    overwritten: tuple[str, ...]
    owner: torch.Tensor | None
    module: torch.nn.Module | None
    optimizers: list[torch.optim.Optimizer]
    by_class: bool


TELLING = ("__name__", "_compiled_call_impl")
"""Attributes of a module of its own that facts about it depend on."""


def describe(
    callee: Any,
    args: tuple[Any, ...],
    tensors: Sequence[Any],
    optimizers: Sequence[torch.optim.Optimizer],
) -> Called:
    """Facts about a call.

    Args:
        callee: What is called.
        args: Positional arguments; none need be given where all are plain.
        tensors: Tensors of kinds that may bring code of their own, among others.
        optimizers: Optimizers among the arguments.
    """
    name = callee_name(callee)
    owner = bound_to(callee)
    facts = module_facts(callee, tensors) if isinstance(callee, torch.nn.Module) else None
    changed = list(optimizers)
    keeps_state = name == "step" or name in KEEPS_OPTIMIZER_STATE
    if isinstance(owner, torch.optim.Optimizer) and not keeps_state:
        changed.append(owner)
    random = facts is None or facts.random
    return Called(
        name,
        _flags(callee, name),
        facts is not None,
        random,
        random and may_use_python_random(callee),
        runs_workload_code(callee),
        # Also that of something that is given the optimizer, such as a gradient scaler.
        name == "step" and (isinstance(owner, torch.optim.Optimizer) or bool(optimizers)),
        reads_gradients(name, args, changed),
        overwritten_prefixes(name, owner),
        owner if isinstance(owner, torch.Tensor) else None,
        module_of(callee),
        changed,
        _is_plain_class(type(callee)),
    )


def is_step(callee: Any) -> bool:
    """Whether the callee is the ``step`` of an optimizer."""
    owner = bound_to(callee)
    return isinstance(owner, torch.optim.Optimizer) and callee_name(callee) == "step"


def _is_plain_class(kind: type) -> bool:
    """Whether it is a class of modules of the workload whose objects do not name themselves."""
    if not issubclass(kind, torch.nn.Module) or kind.__module__.startswith("torch."):
        return False
    return not any("__name__" in base.__dict__ for base in kind.__mro__)


def _flags(callee: Any, name: str) -> int:
    flags = Flag(0)
    if isinstance(callee, torch.nn.Module):
        flags |= Flag.MODULE
    if is_compiled(callee):
        flags |= Flag.COMPILED
    if name in FRESH_MEMORY:
        flags |= Flag.UNINITIALISED
    return int(flags)
