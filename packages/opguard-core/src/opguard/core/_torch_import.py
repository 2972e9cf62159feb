"""Run a callback as soon as the workload itself has imported torch.

The tracer must not import torch first: thread counts, CUDA settings and allocator options are read
from the environment while torch loads, and a script may set them before its own ``import torch``.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


class _Loader(importlib.abc.Loader):
    """Execute torch through its own loader, then call back; leaves no trace on the module."""

    def __init__(self, loader: Any, callback: Callable[[], None]) -> None:
        self._loader = loader
        self._callback = callback

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        created: ModuleType | None = self._loader.create_module(spec)
        return created

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._callback()


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, callback: Callable[[], None]) -> None:
        self._callback = callback

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._callback)
        return spec


def when_torch_is_imported(callback: Callable[[], None]) -> None:
    """Call ``callback`` once, in the importing thread, right after torch was imported.

    When torch is loaded already the callback runs at once.
    """
    if "torch" in sys.modules:
        callback()
    else:
        sys.meta_path.insert(0, _Finder(callback))
