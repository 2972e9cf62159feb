"""Compiled modules of libraries, for processes that run instrumented source.

They look for bytecode only below ``PYTHONPYCACHEPREFIX``, a new folder for each capture, so that
none of an original hides an instrumented file. By that alone each of them would compile torch
again. So what lies beside the modules of a folder is linked into the new
folder before the first of them is imported. Python checks it against its source, as always.

Like the worker this imports nothing but the standard library.

Source:
    Protocol requirement D4.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterable, Sequence


class BytecodeLinks:
    """Finds no module: as a finder on ``sys.meta_path`` it is told what is about to be imported."""

    def __init__(self, instrumented: Iterable[str]) -> None:
        """Args: absolute paths of the files whose bytecode beside them does not hold."""
        self._instrumented = {os.path.realpath(path) for path in instrumented}
        self._linked: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: object = None
    ) -> None:
        """Link the bytecode of the folders in which a module is looked for."""
        for folder in sys.path if path is None else path:
            if folder not in self._linked:
                self._linked.add(folder)
                with contextlib.suppress(OSError, TypeError, ValueError):
                    self._link(folder)

    def _link(self, folder: str) -> None:
        prefix = sys.pycache_prefix
        if prefix is None or not os.path.isabs(folder):
            return
        beside = os.path.join(folder, "__pycache__")
        suffix = f".{sys.implementation.cache_tag}"
        real = os.path.realpath(folder)
        place = os.path.join(prefix, folder.lstrip(os.sep))
        names = [name for name in os.listdir(beside) if name.endswith(".pyc")]
        os.makedirs(place, exist_ok=True)
        for name in names:
            stem, found, _ = name.rpartition(suffix)
            if found and os.path.join(real, f"{stem}.py") not in self._instrumented:
                with contextlib.suppress(FileExistsError):  # another rank was first
                    os.symlink(os.path.join(beside, name), os.path.join(place, name))
