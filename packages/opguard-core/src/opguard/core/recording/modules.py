"""Parameters, buffers and mode of modules, as implicit inputs and as results."""

from __future__ import annotations

from collections.abc import Container

import torch

import xorsig
from opguard.core.recording.frames import Flag, Frame, Role
from opguard.core.recording.records import Records
from opguard.core.recording.tensors import TensorReader

_NAMING = ("named_parameters", "named_buffers", "named_modules", "_named_members")


class ModuleRecords:
    """Records what a module holds around a call that involves it."""

    def __init__(
        self, records: Records, reader: TensorReader, known: xorsig.KnownParameters
    ) -> None:
        self._records = records
        self._reader = reader
        self._known = known

    def inputs(
        self,
        frame: Frame,
        module: torch.nn.Module,
        prefix: str,
        parent: xorsig.CallFrame | None,
    ) -> None:
        """Record a module before a call.

        Args:
            frame: The call.
            module: The called module, a bound method's, or one among the arguments.
            prefix: Slot prefix; empty for the module that is called.
            parent: The enclosing call.
        """
        # A module called from within another module's call was hashed with it just before.
        fresh = parent is None or not parent.flags & Flag.MODULE
        role = None if frame.name == "load_state_dict" else Role.INPUT
        call, records = frame.call, self._records
        if _names_like_torch(module):
            held, buffers = self._known.record_module(
                call, role, module, prefix, fresh, modes=True, unless=()
            )
            frame.held.update(held)
            for slot, buffer, parts in buffers:
                frame.inputs.append((slot, buffer))
                frame.before.update(parts)
            return
        for name, parameter in module.named_parameters(remove_duplicate=False):
            frame.held.add(id(parameter))
            self._parameter(call, role, f"{prefix}param.{name}", parameter, name, module, fresh)
        for name, buffer in module.named_buffers(remove_duplicate=False):
            slot = f"{prefix}buffer.{name}"
            frame.held.add(id(buffer))
            frame.inputs.append((slot, buffer))
            if role is not None:
                readings = self._reader.read(slot, buffer)
                records.tensors(call, role, readings)
                frame.remember(readings)
        records.value(call, Role.INPUT, f"value.{prefix}training", str(module.training))
        for name, child in module.named_modules():
            if name and child.training != module.training:
                slot = f"value.{prefix}training.{name}"
                records.value(call, Role.INPUT, slot, str(child.training))

    def outputs(
        self, call: int, module: torch.nn.Module, prefix: str, unless: Container[int]
    ) -> None:
        """Record the parameters and buffers of a module after a call.

        Args:
            call: The call.
            module: A module that the call returned, or the one that was called.
            prefix: Slot prefix, e.g. ``out.``.
            unless: Identities of the tensors that were there before the call.
        """
        if _names_like_torch(module):
            self._known.record_module(
                call, Role.OUTPUT, module, prefix, True, modes=False, unless=unless
            )
            return
        for name, parameter in module.named_parameters(remove_duplicate=False):
            if id(parameter) not in unless:
                slot = f"{prefix}param.{name}"
                self._parameter(call, Role.OUTPUT, slot, parameter, name, module, True)
        for name, buffer in module.named_buffers(remove_duplicate=False):
            if id(buffer) not in unless:
                parts = self._reader.read(f"{prefix}buffer.{name}", buffer)
                self._records.tensors(call, Role.OUTPUT, parts)

    def _parameter(
        self,
        call: int,
        role: Role | None,
        slot: str,
        parameter: torch.Tensor,
        name: str,
        module: torch.nn.Module,
        fresh: bool,
    ) -> None:
        holder = _holder(module, name, parameter)
        self._known.record(call, role, slot, parameter, name, holder, fresh)


def module_of(callee: object) -> torch.nn.Module | None:
    """The module that a call runs: the callee itself, or the one that a method is bound to."""
    if isinstance(callee, torch.nn.Module):
        return callee
    owner = getattr(callee, "__self__", None)
    return owner if isinstance(owner, torch.nn.Module) else None


def _names_like_torch(module: torch.nn.Module) -> bool:
    """Whether the class lets torch enumerate its parameters, buffers and children."""
    kind = type(module)
    return all(getattr(kind, name) is getattr(torch.nn.Module, name) for name in _NAMING)


def _holder(module: torch.nn.Module, name: str, parameter: torch.Tensor) -> torch.nn.Module | None:
    """The module that holds a parameter itself; ``None`` where the name does not lead to it."""
    path, _, field = name.rpartition(".")
    try:
        holder = module.get_submodule(path)
    except AttributeError:
        return None
    return holder if holder._parameters.get(field) is parameter else None
