"""What an object holds, without calling any code of its class."""

from __future__ import annotations

import types
from collections.abc import Iterator
from typing import Any

_members: dict[type, tuple[tuple[str, Any], ...]] = {}


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
    own = getattr(item, "__dict__", None)
    if type(own) is dict:
        yield from list(own.items())


def _slots(kind: type) -> Iterator[tuple[str, Any]]:
    for base in kind.__mro__:
        if "__slots__" in base.__dict__:
            for name, member in base.__dict__.items():
                if type(member) is types.MemberDescriptorType:
                    yield name, member
