"""What modules hold, where their classes have their own way of naming it."""

from __future__ import annotations

from typing import NamedTuple

import torch

from opguard.core.recording.callees import bound_to

NAMING = ("named_parameters", "named_buffers", "named_modules", "_named_members")
"""Methods of :class:`torch.nn.Module` that the native half does not have to ask."""


class Members(NamedTuple):
    """What a module holds, by its own names.

    Attributes:
        parameters: Name, the module that holds it itself if the name leads to it, and parameter.
        buffers: Name and buffer.
        modes: The module's training flag under an empty name, and those of children that differ.
    """

    parameters: list[tuple[str, torch.nn.Module | None, torch.Tensor]]
    buffers: list[tuple[str, torch.Tensor]]
    modes: list[tuple[str, str]]


def named_members(module: torch.nn.Module) -> Members:
    """What a module holds, as its methods say."""
    return Members(
        [
            (name, _holder(module, name, parameter), parameter)
            for name, parameter in module.named_parameters(remove_duplicate=False)
        ],
        list(module.named_buffers(remove_duplicate=False)),
        [
            ("", str(module.training)),
            *(
                (name, str(child.training))
                for name, child in module.named_modules()
                if name and child.training != module.training
            ),
        ],
    )


def module_of(callee: object) -> torch.nn.Module | None:
    """The module that a call runs: the callee itself, or the one that a method is bound to."""
    if isinstance(callee, torch.nn.Module):
        return callee
    owner = bound_to(callee)
    return owner if isinstance(owner, torch.nn.Module) else None


def _holder(module: torch.nn.Module, name: str, parameter: torch.Tensor) -> torch.nn.Module | None:
    """The module that holds a parameter itself; ``None`` where the name does not lead to it."""
    path, _, field = name.rpartition(".")
    try:
        holder = module.get_submodule(path)
    except AttributeError:
        return None
    return holder if holder._parameters.get(field) is parameter else None
