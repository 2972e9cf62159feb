"""Peers that may be absent."""

from __future__ import annotations

import importlib
from types import ModuleType


def optional(name: str, notes: list[str]) -> ModuleType | None:
    """A module, or ``None`` and a note that the comparison with it is left out."""
    try:
        return importlib.import_module(name)
    except ImportError:
        note = f"{name} is not installed: no comparison with it"
        if note not in notes:
            notes.append(note)
        return None
