"""Known parameters: their names, and what calls do to them and to their gradients."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from opguard.core.recording.tensors import Reading, TensorReader

Owner = torch.nn.Module | torch.optim.Optimizer


class Effect(NamedTuple):
    """A known parameter or gradient before and after a change; ``None`` where it was absent."""

    before: list[tuple[str, Reading]] | None
    after: list[tuple[str, Reading]] | None


class _Known:
    """One parameter: its longest name so far and the readings of it and of its gradient.

    A reading is kept with the identity, version counter and address that it was taken at. The
    gradient is referred to by identity and version only, so that nothing is kept alive.

    The parameter is found again at its owner. A weak reference to the tensor itself would make
    ``torch.utils.swap_tensors`` raise, which modules use to convert their parameters.
    """

    __slots__ = (
        "_field",
        "_group",
        "_identity",
        "_owner",
        "by_position",
        "grad_key",
        "grad_reading",
        "key",
        "name",
        "reading",
    )

    def __init__(
        self, parameter: torch.Tensor, name: str, owner: Owner, place: tuple[int, int] | None
    ) -> None:
        self._identity = id(parameter)
        self._owner: weakref.ref[Any] = weakref.ref(parameter)
        self._field: Any
        self._group, self._field = place if place is not None else (-1, name.rpartition(".")[2])
        by_position = place is not None
        if isinstance(owner, torch.optim.Optimizer):
            self._owner = weakref.ref(owner)
        elif (holder := _holder(owner, name, parameter)) is not None:
            self._owner = weakref.ref(holder)
        self.name = name
        self.by_position = by_position
        self.key: tuple[int, int] | None = None
        self.reading: list[tuple[str, Reading]] = []
        self.grad_key: tuple[int, int, int] | None = None
        self.grad_reading: list[tuple[str, Reading]] | None = None

    def ref(self) -> torch.Tensor | None:
        """The parameter; ``None`` once its owner is gone or holds another one instead."""
        owner = self._owner()
        if owner is None or isinstance(owner, torch.Tensor):
            return owner
        try:
            if isinstance(owner, torch.nn.Module):
                found = owner._parameters.get(self._field)
            else:
                found = owner.param_groups[self._group]["params"][self._field]
        except LookupError:
            return None
        return found if id(found) == self._identity else None


class KnownParameters:
    """Parameters seen in called modules and stepped optimizers.

    Parameters are keyed by identity, since names change after construction or resizing, and two
    modules may share one parameter.
    """

    def __init__(self, reader: TensorReader) -> None:
        self._reader = reader
        self._known: dict[int, _Known] = {}

    def learn(
        self,
        parameter: torch.Tensor,
        name: str,
        owner: Owner,
        place: tuple[int, int] | None = None,
    ) -> _Known:
        """Remember ``parameter``; of several names the longest is kept.

        Args:
            parameter: The parameter.
            name: Its name in the module at hand.
            owner: That module, or an optimizer.
            place: Group and index in an optimizer: the name says only where that holds the
                parameter, and any other name replaces it.
        """
        by_position = place is not None
        known = self._known.get(id(parameter))
        if known is None or known.ref() is not parameter:
            known = self._known[id(parameter)] = _Known(parameter, name, owner, place)
            self._read(known, parameter)
            self._read_grad(known, parameter)
        elif not by_position and (known.by_position or len(name) > len(known.name)):
            known.name, known.by_position = name, False
        return known

    def reading(
        self, parameter: torch.Tensor, name: str, owner: Owner, *, fresh: bool
    ) -> list[tuple[str, Reading]]:
        """The parameter's fingerprint.

        Args:
            parameter: The parameter.
            name: Its name in the module at hand.
            owner: That module, or an optimizer.
            fresh: Read the bytes again even when version and address are unchanged. Version
                counters miss writes through ``.data`` and numpy, so only a module called from
                within another module's call, which has just read them, may pass ``False``.
        """
        known = self._known.get(id(parameter))
        if known is None or known.ref() is not parameter:
            return self.learn(parameter, name, owner).reading
        self.learn(parameter, name, owner)
        if fresh or known.key != _key(parameter):
            self._read(known, parameter)
        return known.reading

    def name(self, parameter: torch.Tensor) -> str | None:
        """The longest known name, or ``None`` for a parameter never seen."""
        known = self._known.get(id(parameter))
        return known.name if known is not None and known.ref() is parameter else None

    def gradients(self) -> Iterator[tuple[str, list[tuple[str, Reading]] | None]]:
        """``(name, reading)`` of every known parameter's gradient; ``None`` where it has none.

        The bytes are read again: ``parameter.grad.data`` can be written without a trace.
        """
        for known in list(self._known.values()):
            parameter = known.ref()
            if parameter is not None and parameter.requires_grad:
                self._read_grad(known, parameter)
                yield known.name, known.grad_reading

    def changes(self) -> dict[str, Effect]:
        """Parameters and gradients that changed since the last look, by slot."""
        found: dict[str, Effect] = {}
        gone: list[int] = []
        for identity, known in self._known.items():
            parameter = known.ref()
            if parameter is None:
                gone.append(identity)
                continue
            if known.key != _key(parameter):
                before = known.reading
                self._read(known, parameter)
                if _signatures(before) != _signatures(known.reading):
                    found["param." + known.name] = Effect(before, known.reading)
            if known.grad_key != _grad_key(parameter):
                before_grad = known.grad_reading
                self._read_grad(known, parameter)
                if _signatures(before_grad) != _signatures(known.grad_reading):
                    found["grad.param." + known.name] = Effect(before_grad, known.grad_reading)
        for identity in gone:
            del self._known[identity]
        return found

    def alias_changes(self, tensor: torch.Tensor) -> dict[str, Effect]:
        """Known parameters and gradients that share memory with ``tensor``, just changed by a call.

        A write through ``parameter.data``, ``parameter.grad.data`` or ``detach()`` moves no
        version counter of what it changes; the memory tells.
        """
        found: dict[str, Effect] = {}
        storage = _storage(tensor)
        if not storage:
            return found
        for known in self._known.values():
            parameter = known.ref()
            if parameter is None:
                continue
            if parameter is not tensor and _storage(parameter) == storage:
                before = known.reading
                self._read(known, parameter)
                if _signatures(before) != _signatures(known.reading):
                    found["param." + known.name] = Effect(before, known.reading)
            grad = parameter.grad if parameter.is_leaf else None
            if grad is not None and grad is not tensor and _storage(grad) == storage:
                before_grad = known.grad_reading
                self._read_grad(known, parameter)
                if _signatures(before_grad) != _signatures(known.grad_reading):
                    found["grad.param." + known.name] = Effect(before_grad, known.grad_reading)
        return found

    def _read(self, known: _Known, parameter: torch.Tensor) -> None:
        known.key = _key(parameter)
        known.reading = self._reader.read("", parameter)

    def _read_grad(self, known: _Known, parameter: torch.Tensor) -> None:
        known.grad_key = _grad_key(parameter)
        grad = parameter.grad if parameter.is_leaf else None
        known.grad_reading = None if grad is None else self._reader.read("", grad)


def _holder(module: Any, name: str, parameter: torch.Tensor) -> torch.nn.Module | None:
    """The module that holds a parameter itself; ``None`` where the name does not lead to it."""
    path, _, field = name.rpartition(".")
    try:
        holder: torch.nn.Module = module.get_submodule(path)
    except AttributeError:
        return None
    return holder if holder._parameters.get(field) is parameter else None


def _storage(tensor: torch.Tensor) -> int:
    """Address of the memory behind a tensor; 0 for one without."""
    try:
        return tensor.untyped_storage().data_ptr()
    except (AttributeError, RuntimeError, TypeError):
        return 0


def _key(parameter: torch.Tensor) -> tuple[int, int]:
    try:
        return parameter._version, parameter.data_ptr()
    except (AttributeError, RuntimeError, TypeError):
        return -1, 0


def _grad_key(parameter: torch.Tensor) -> tuple[int, int, int]:
    if not parameter.is_leaf:
        return 0, 0, 0
    grad: Any = parameter.grad
    if grad is None:
        return 0, 0, 0
    try:
        return id(grad), grad._version, grad.data_ptr()
    except (AttributeError, RuntimeError, TypeError):
        return id(grad), -1, 0


def _signatures(reading: list[tuple[str, Reading]] | None) -> list[tuple[int, bytes | None]] | None:
    if reading is None:
        return None
    return [(part.layout, part.signature) for _, part in reading]
