"""Parameters, buffers and mode of modules, as implicit inputs and as results."""

from __future__ import annotations

import torch

from opguard.core.recording.frames import Flag, Frame, Role
from opguard.core.recording.parameters import KnownParameters
from opguard.core.recording.records import Records
from opguard.core.recording.tensors import TensorReader


class ModuleRecords:
    """Records what a module holds around a call that involves it."""

    def __init__(self, records: Records, reader: TensorReader, known: KnownParameters) -> None:
        self._records = records
        self._reader = reader
        self._known = known

    def inputs(
        self, frame: Frame, module: torch.nn.Module, prefix: str, parent: Frame | None
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
        overwritten = frame.name == "load_state_dict"
        call, records = frame.call, self._records
        for name, parameter in module.named_parameters(remove_duplicate=False):
            slot = f"{prefix}param.{name}"
            frame.held.add(id(parameter))
            parts = self._known.reading(parameter, name, module, fresh=fresh)
            if not overwritten:
                records.under(call, Role.INPUT, slot, parts)
        for name, buffer in module.named_buffers(remove_duplicate=False):
            slot = f"{prefix}buffer.{name}"
            frame.held.add(id(buffer))
            frame.inputs.append((slot, buffer))
            if not overwritten:
                parts = self._reader.read(slot, buffer)
                records.tensors(call, Role.INPUT, parts)
                frame.remember(parts)
        records.value(call, Role.INPUT, f"value.{prefix}training", str(module.training))
        for name, child in module.named_modules():
            if name and child.training != module.training:
                slot = f"value.{prefix}training.{name}"
                records.value(call, Role.INPUT, slot, str(child.training))

    def outputs(
        self, call: int, module: torch.nn.Module, prefix: str, unless: frozenset[int] | set[int]
    ) -> None:
        """Record the parameters and buffers of a module after a call.

        Args:
            call: The call.
            module: A module that the call returned, or the one that was called.
            prefix: Slot prefix, e.g. ``out.``.
            unless: Identities of the tensors that were there before the call.
        """
        for name, parameter in module.named_parameters(remove_duplicate=False):
            if id(parameter) not in unless:
                parts = self._known.reading(parameter, name, module, fresh=True)
                self._records.under(call, Role.OUTPUT, f"{prefix}param.{name}", parts)
        for name, buffer in module.named_buffers(remove_duplicate=False):
            if id(buffer) not in unless:
                parts = self._reader.read(f"{prefix}buffer.{name}", buffer)
                self._records.tensors(call, Role.OUTPUT, parts)


def module_of(callee: object) -> torch.nn.Module | None:
    """The module that a call runs: the callee itself, or the one that a method is bound to."""
    if isinstance(callee, torch.nn.Module):
        return callee
    owner = getattr(callee, "__self__", None)
    return owner if isinstance(owner, torch.nn.Module) else None
