"""Slots of a call: the tensors, values and modules inside its arguments or its result."""

from __future__ import annotations

import collections
import dataclasses
import enum
import sys
from typing import Any

import torch
from torch.utils._pytree import SUPPORTED_NODES

from opguard.core.interruption import comes_from_signal_handler
from opguard.core.recording.attributes import attribute, attributes
from opguard.core.recording.digest import text_digest

MAX_DEPTH = 6
MAX_ITEMS = 512
MAX_SLOTS = 8192
MAX_TEXT = 160

_PRIMITIVES = frozenset({int, float, bool, bytes, complex, type(None), range, slice, type(...)})
_TORCH_PRIMITIVES = (
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    torch.Size,
)


class Slots:
    """What :func:`flatten` found, each with the spelling of the place where it was.

    Attributes:
        tensors: ``(slot, tensor)``; numpy arrays count as tensors.
        values: ``(slot, text)`` of everything that is neither tensor nor module.
        modules: ``(slot, module)``.
        optimizers: Optimizers among the arguments.
    """

    __slots__ = ("modules", "optimizers", "tensors", "values")

    def __init__(self) -> None:
        self.tensors: list[tuple[str, Any]] = []
        self.values: list[tuple[str, str]] = []
        self.modules: list[tuple[str, torch.nn.Module]] = []
        self.optimizers: list[torch.optim.Optimizer] = []

    def full(self) -> bool:
        """Whether there are so many slots that no further items of containers are taken in."""
        return len(self.tensors) + len(self.values) >= MAX_SLOTS


def flatten(item: Any, slot: str, value_slot: str, into: Slots, depth: int = 0) -> None:
    """Sort ``item`` and what it contains into ``into``.

    Args:
        item: An argument or a result.
        slot: Spelling for tensors and modules, e.g. ``arg[0]``.
        value_slot: Spelling for other values, e.g. ``value.arg[0]``.
        into: Receives the findings.
        depth: Containers around ``item``.
    """
    kind = type(item)
    if kind is torch.Tensor or isinstance(item, torch.Tensor):
        into.tensors.append((slot, item))
    elif kind in _PRIMITIVES or kind is str or isinstance(item, _TORCH_PRIMITIVES):
        into.values.append((value_slot, value_text(item)))
    elif isinstance(item, torch.nn.Module):
        into.modules.append((slot, item))
    elif isinstance(item, torch.optim.Optimizer):
        into.optimizers.append(item)
        into.values.append((value_slot, f"<{kind.__name__}>"))
    elif depth >= MAX_DEPTH:
        into.values.append((value_slot, f"<{kind.__name__}>"))
    elif isinstance(item, dict):
        # Unbound methods here and below: those of a workload's subclass may do anything.
        _flatten_items(list(dict.items(item)), slot, value_slot, into, depth)
    elif isinstance(item, (list, tuple)):
        _flatten_sequence(item, slot, value_slot, into, depth)
    elif _is_numpy(item):
        into.tensors.append((slot, item))
    elif isinstance(item, (set, frozenset)):
        into.values.append((value_slot, f"<{kind.__name__} of {len(item)}>"))
    elif isinstance(item, enum.Enum):
        into.values.append((value_slot, f"<{kind.__qualname__}.{item._name_}>"))
    elif isinstance(item, (collections.UserDict, collections.UserList)):
        flatten(item.data, slot, value_slot, into, depth + 1)
    elif (fields := _field_names(item)) is not None:
        held = [(name, attribute(item, name)) for name in fields]
        _flatten_items(held, slot, value_slot, into, depth)
    elif kind in SUPPORTED_NODES:
        _flatten_node(item, slot, value_slot, into, depth)
    else:
        into.values.append((value_slot, _opaque_text(item)))
        _flatten_attributes(item, slot, into)


def value_text(value: Any) -> str:
    """A text of a plain value that is equal exactly when the values are, in any process."""
    # Serialised objects differ between equal runs; what their bytes decide shows elsewhere.
    text = f"<{len(value)} bytes>" if isinstance(value, bytes) else repr(value)
    if len(text) > MAX_TEXT:
        return f"{text[:MAX_TEXT]}…#{text_digest(text)}"
    return text


def plain_text(item: Any) -> str:
    """As :func:`value_text` for any object; one whose text would hold an address gives its type."""
    simple = item is None or isinstance(item, (int, float, complex, str, bytes))
    if simple or isinstance(item, _TORCH_PRIMITIVES):
        return value_text(item)
    if isinstance(item, (tuple, list)):
        return f"({', '.join(plain_text(element) for element in item)})"
    return _opaque_text(item)


def _flatten_items(
    items: list[tuple[Any, Any]], slot: str, value_slot: str, into: Slots, depth: int
) -> None:
    for count, (key, value) in enumerate(items):
        if count == MAX_ITEMS or into.full():
            into.values.append((f"{value_slot}.…", f"{len(items)} items"))
            break
        name = _key_text(key, count)
        flatten(value, f"{slot}.{name}", f"{value_slot}.{name}", into, depth + 1)


def _key_text(key: Any, index: int) -> str:
    """A key that is an object of the workload's is named by its type and its place.

    Its own text may run code of its class, and hold an address or the values of a tensor.
    """
    if isinstance(key, str):
        return str.__str__(key)
    if type(key) in _PRIMITIVES:
        return str(key)
    if isinstance(key, enum.Enum):
        return f"{type(key).__qualname__}.{key._name_}"
    if type(key) is tuple:
        return f"({', '.join(_key_text(part, index) for part in key)})"
    if isinstance(key, _TORCH_PRIMITIVES):
        return str(key)
    return f"{_opaque_text(key)}#{index}"


def _flatten_sequence(item: Any, slot: str, value_slot: str, into: Slots, depth: int) -> None:
    names = getattr(type(item), "_fields", None)
    items = list.copy(item) if isinstance(item, list) else tuple.__add__(item, ())
    if len(items) > 8 and all(type(element) in (int, float, bool) for element in items):
        into.values.append((value_slot, value_text(items)))
        return
    for index, value in enumerate(items):
        if index == MAX_ITEMS or into.full():
            into.values.append((f"{value_slot}[…]", f"{len(items)} items"))
            break
        if names is not None and index < len(names):
            suffix = f".{names[index]}"
        else:
            suffix = f"[{index}]"
        flatten(value, slot + suffix, value_slot + suffix, into, depth + 1)


def _flatten_node(item: Any, slot: str, value_slot: str, into: Slots, depth: int) -> None:
    """A container that its library has registered with torch, by the function that it gave."""
    try:
        children, _ = SUPPORTED_NODES[type(item)].flatten_fn(item)
    except Exception as error:
        if comes_from_signal_handler(error):
            raise
        into.values.append((value_slot, _opaque_text(item)))
        _flatten_attributes(item, slot, into)
    else:
        _flatten_sequence(list(children), slot, value_slot, into, depth)


def _flatten_attributes(item: Any, slot: str, into: Slots) -> None:
    """Tensors of a user's object, such as a batch class: its attributes, and lists and dicts there.

    Objects inside it are left alone: what a program hands around may hold all of its state.
    """
    if isinstance(item, type) or callable(item):
        return
    for count, (name, value) in enumerate(attributes(item)):
        if count == MAX_ITEMS or into.full():
            break
        place = f"{slot}.{name}"
        if isinstance(value, torch.Tensor) or _is_numpy(value):
            into.tensors.append((place, value))
        elif type(value) in (list, tuple, dict):
            held = value.items() if type(value) is dict else enumerate(value)
            for index, (key, element) in enumerate(list(held)):
                if index == MAX_ITEMS:
                    break
                if isinstance(element, torch.Tensor) or _is_numpy(element):
                    named = type(value) is dict
                    suffix = f".{_key_text(key, index)}" if named else f"[{key}]"
                    into.tensors.append((place + suffix, element))


def _field_names(item: Any) -> list[str] | None:
    """Fields of a dataclass or of a class made by ``attrs``; ``None`` for other objects."""
    if isinstance(item, type):
        return None
    if dataclasses.is_dataclass(item):
        return [field.name for field in dataclasses.fields(item)]
    fields = getattr(type(item), "__attrs_attrs__", None)
    return [field.name for field in fields] if isinstance(fields, tuple) else None


def _opaque_text(item: Any) -> str:
    kind = type(item)
    module = sys.modules.get("numpy")
    if module is not None and isinstance(item, module.generic):
        return repr(item)
    if isinstance(item, type) or callable(item):
        name = attribute(item, "__qualname__")
        return f"<{name if isinstance(name, str) else kind.__qualname__}>"
    return f"<{kind.__qualname__}>"


def _is_numpy(item: Any) -> bool:
    module = sys.modules.get("numpy")
    array = getattr(module, "ndarray", None)
    return array is not None and isinstance(item, array)
