"""Slots of a call: the tensors, values and modules inside its arguments or its result."""

from __future__ import annotations

import dataclasses
import sys
from typing import Any

import torch

from opguard.core.recording.digest import text_digest

MAX_DEPTH = 6
MAX_ITEMS = 512
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
        for count, (key, value) in enumerate(dict.items(item)):
            if count == MAX_ITEMS:
                into.values.append((f"{value_slot}.…", f"{dict.__len__(item)} items"))
                break
            flatten(value, f"{slot}.{key}", f"{value_slot}.{key}", into, depth + 1)
    elif isinstance(item, (list, tuple)):
        _flatten_sequence(item, slot, value_slot, into, depth)
    elif _is_numpy(item):
        into.tensors.append((slot, item))
    elif isinstance(item, (set, frozenset)):
        into.values.append((value_slot, f"<{kind.__name__} of {len(item)}>"))
    elif dataclasses.is_dataclass(item) and not isinstance(item, type):
        for field in dataclasses.fields(item):
            value = getattr(item, field.name, None)
            flatten(value, f"{slot}.{field.name}", f"{value_slot}.{field.name}", into, depth + 1)
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


def _flatten_sequence(item: Any, slot: str, value_slot: str, into: Slots, depth: int) -> None:
    names = getattr(type(item), "_fields", None)
    items = list.copy(item) if isinstance(item, list) else tuple.__add__(item, ())
    if len(items) > 8 and all(type(element) in (int, float, bool) for element in items):
        into.values.append((value_slot, value_text(items)))
        return
    for index, value in enumerate(items):
        if index == MAX_ITEMS:
            into.values.append((f"{value_slot}[…]", f"{len(items)} items"))
            break
        if names is not None and index < len(names):
            suffix = f".{names[index]}"
        else:
            suffix = f"[{index}]"
        flatten(value, slot + suffix, value_slot + suffix, into, depth + 1)


def _flatten_attributes(item: Any, slot: str, into: Slots) -> None:
    """Tensors held directly by a user's object, such as a batch class."""
    attributes = getattr(item, "__dict__", None)
    if type(attributes) is not dict or isinstance(item, type) or callable(item):
        return
    for name, value in list(attributes.items())[:MAX_ITEMS]:
        if isinstance(value, torch.Tensor) or _is_numpy(value):
            into.tensors.append((f"{slot}.{name}", value))


def _opaque_text(item: Any) -> str:
    kind = type(item)
    module = sys.modules.get("numpy")
    if module is not None and isinstance(item, module.generic):
        return repr(item)
    if isinstance(item, type) or callable(item):
        name = getattr(item, "__qualname__", None)
        # Not formatted unless it is text: a proxy (torch.fx) gives another proxy for any name.
        return f"<{name if isinstance(name, str) else kind.__qualname__}>"
    return f"<{kind.__qualname__}>"


def _is_numpy(item: Any) -> bool:
    module = sys.modules.get("numpy")
    array = getattr(module, "ndarray", None)
    return array is not None and isinstance(item, array)
