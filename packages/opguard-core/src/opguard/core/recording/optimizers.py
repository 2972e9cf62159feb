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

from opguard.core.recording.flatten import value_text
from opguard.core.recording.parameters import KnownParameters

StateItem = tuple[str, Any]


class OptimizerHooks:
    """Calls back before and after every ``Optimizer.step`` of the process.

    Args:
        before: Receives the optimizer.
        after: Receives the optimizer and whether the step completes one step of the run: the
            first optimizer that is seen to step is the clock.
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
        if self._clock is None:
            self._clock = weakref.ref(optimizer)
        self._after(optimizer, self._clock() is optimizer)


def members(
    optimizer: torch.optim.Optimizer, known: KnownParameters
) -> Iterator[tuple[int, str, torch.Tensor]]:
    """``(group, name, parameter)`` of an optimizer; unknown ones are named by position."""
    for group_index, group in enumerate(optimizer.param_groups):
        for index, parameter in enumerate(group["params"]):
            name = known.name(parameter)
            if name is None:
                name = f"group[{group_index}][{index}]"
                known.learn(parameter, name, weak=True)
            yield group_index, name, parameter


def state_items(
    optimizer: torch.optim.Optimizer, name: str, parameter: torch.Tensor
) -> Iterator[StateItem]:
    """``(slot, tensor or value)`` of the state that an optimizer keeps for one parameter."""
    state = optimizer.state
    if parameter in state:
        for key, value in state[parameter].items():
            yield f"state.{name}.{key}", value


def settings(optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, str]]:
    """``(slot, text)`` of every group's settings: learning rate, decay, flags."""
    for index, group in enumerate(optimizer.param_groups):
        for key, value in group.items():
            if key != "params" and key != "param_names" and not isinstance(value, torch.Tensor):
                yield f"value.group[{index}].{key}", value_text(value)
