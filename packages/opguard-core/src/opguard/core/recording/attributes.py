"""What an object holds, without asking ``__getattr__`` of its class."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

from opguard.core.interruption import comes_from_signal_handler

_members: dict[type, tuple[tuple[str, Any], ...]] = {}


def attribute(item: Any, name: str) -> Any:
    """Attribute ``name`` of an object; ``None`` without one.

    Not by ``__getattr__`` of its class: a module looks for what it lacks among all that it holds, a
    proxy answers to any name, and either may print or raise. A property does run.
    """
    # A bound method has few attributes but those of its function.
    get: Any = getattr if isinstance(item, types.MethodType) else object.__getattribute__
    try:
        return get(item, name)
    except Exception as error:
        if comes_from_signal_handler(error):
            raise
        return None


def attributes(item: Any) -> Iterator[tuple[str, Any]]:
    """``(name, value)`` of an object's own attributes: those in ``__dict__`` and in ``__slots__``.

    Properties, and whatever ``__getattr__`` of the class makes up, are not among them.
    """
    kind = type(item)
    members = _members.get(kind)
    if members is None:
        members = _members[kind] = tuple(_slots(kind))
    for name, member in members:
        try:
            yield name, member.__get__(item)
        except AttributeError:
            continue  # a slot that was never assigned
    own = attribute(item, "__dict__")
    if type(own) is dict:
        yield from list(own.items())


def _slots(kind: type) -> Iterator[tuple[str, Any]]:
    for base in kind.__mro__:
        if "__slots__" in base.__dict__:
            for name, member in base.__dict__.items():
                if type(member) is types.MemberDescriptorType:
                    yield name, member
