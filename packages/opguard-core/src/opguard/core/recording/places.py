"""Where a dispatched operator was called from: the lines of libraries that led to it.

A place is a position in a file together with the places around it, up to the recorded call that
the operator ran in. Each is written once, as a mark, and operators refer to it by number.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import torch

from opguard.core.locations import below_package_folder, position_of, standard_library
from opguard.core.recording.frames import Mark
from opguard.core.recording.records import Records

NO_PLACE = 0
"""Number that stands for the recorded call itself."""

LIBRARIES = "libraries"
"""Folder of a capture with the source files of places, each named by its SHA-256."""

_OWN_AS_IMPORTED = os.path.dirname(os.path.dirname(__file__)) + os.sep
_OWN = os.path.dirname(os.path.dirname(os.path.realpath(__file__))) + os.sep
_TORCH = os.path.dirname(os.path.realpath(torch.__file__)) + os.sep
_PLUMBING = tuple(
    _TORCH + name
    for name in (
        "_compile.py", "_dynamo/", "_functorch/", "_higher_order_ops/", "_inductor/",
        "_jit_internal.py", "_library/", "_ops.py", "_tensor.py", "amp/autocast_mode.py",
        "autograd/", "fx/", "jit/", "library.py", "nn/modules/module.py", "optim/optimizer.py",
        "overrides.py", "utils/_contextlib.py", "utils/_device.py", "utils/_python_dispatch.py",
        "utils/_pytree.py", "utils/checkpoint.py", "utils/hooks.py",
    )
)  # fmt: skip
"""torch's own frames between a line that calls an operator and the operator."""

_WORKER = "/opguard/tools/worker.py"
_ENGINE = "_engine_run_backward"
_COMPILED = tuple(
    _TORCH + name
    for name in (
        "_functorch/_aot_autograd/runtime_wrappers.py",
        "_inductor/output_code.py",
        "_inductor/utils.py",
    )
)
"""Frames that run compiled code: the operators in it are not those of the source."""

_SKIP, _STOP_AT_ENGINE, _IN_COMPILED = object(), object(), object()


class _File:
    """A source file: absolute path, a name that other environments share, digest of its content.

    The path of a file of the checkout is empty, and its digest is: the plan has both. The digest of
    a library's file is ``None`` until it is needed.
    """

    __slots__ = ("digest", "name", "path")

    def __init__(self, path: str, name: str, digest: str | None) -> None:
        self.path = path
        self.name = name
        self.digest = digest


class Places:
    """The places of one capture.

    Args:
        records: Receives a mark for every new place.
        capture: Directory of the whole capture; ``None`` keeps no source files.
        checkout: Folder of the workload's own source.

    Attributes:
        packages: Top-level names of the libraries seen.
    """

    def __init__(self, records: Records, capture: Path | None, checkout: Path | None) -> None:
        self._records = records
        self._capture = capture
        self._checkout = "" if checkout is None else os.path.realpath(checkout) + os.sep
        self._codes: dict[int, tuple[CodeType, Any]] = {}
        self._positions: dict[tuple[int, int], tuple[int, int, int, int]] = {}
        self._files: dict[str, _File] = {}
        self._chains: dict[tuple[int, ...], int] = {}
        self._numbers: dict[tuple[Any, ...], int] = {}
        self.packages: set[str] = set()

    def find(self, frame: FrameType | None, until: FrameType | None, outer: int) -> int | None:
        """The place of the operator that a frame runs.

        Args:
            frame: The innermost frame.
            until: The frame of the recorded call; itself not looked at.
            outer: The place that those found lie in, where the autograd engine is on the way.

        Returns:
            Number of the innermost place, or :data:`NO_PLACE`. ``None`` inside compiled code, and
            where the engine runs an operator that nothing is known of.
        """
        chain: list[int] = []
        codes: list[tuple[CodeType, int, _File]] = []
        engine = False
        while frame is not None and frame is not until:
            code = frame.f_code
            known = self._codes.get(id(code))
            kind = known[1] if known is not None else self._learn(code, frame)
            if kind is not _SKIP:
                if kind is _IN_COMPILED:
                    return None
                if kind is _STOP_AT_ENGINE:
                    if not outer and not codes:
                        return None
                    engine = True
                    break
                lasti = frame.f_lasti
                chain += (id(code), lasti)
                codes.append((code, lasti, kind))
            frame = frame.f_back
        if not engine:
            outer = NO_PLACE
        chain.append(outer)
        key = tuple(chain)
        place = self._chains.get(key)
        if place is None:
            place = outer
            for code, lasti, file in reversed(codes):
                place = self._number(place, code, lasti, file)
            self._chains[key] = place
        return place

    def _learn(self, code: CodeType, frame: FrameType) -> Any:
        kind = self._kind(code, frame)
        self._codes[id(code)] = (code, kind)
        return kind

    def _kind(self, code: CodeType, frame: FrameType) -> Any:
        path = code.co_filename
        if path.startswith("<"):
            return _SKIP
        real = os.path.realpath(path)
        if code.co_name == _ENGINE and real.startswith(_TORCH):
            return _STOP_AT_ENGINE
        if real.startswith(_COMPILED):
            return _IN_COMPILED
        if real.startswith((_OWN, *_PLUMBING)) or real.endswith(_WORKER):
            return _SKIP
        if real.startswith(standard_library()) and below_package_folder(real) is None:
            return _SKIP
        file = self._files.get(real)
        if file is None:
            file = self._files[real] = self._open(real, frame)
        return file

    def _open(self, path: str, frame: FrameType) -> _File:
        own = self._checkout and path.startswith(self._checkout)
        if own and below_package_folder(path) is None:
            # On disk it is instrumented; the originals are kept with the plan.
            return _File("", path.removeprefix(self._checkout), "")
        return _File(path, _shared_name(path, frame.f_globals.get("__name__")), None)

    def _keep(self, path: str) -> str:
        """Copy a source file into the capture; gives its digest, or nothing if it is unreadable."""
        try:
            with open(path, "rb") as file:
                data = file.read()
        except OSError:
            return ""
        digest = hashlib.sha256(data).hexdigest()
        if self._capture is not None:
            folder = self._capture / LIBRARIES
            target = folder / digest
            if not target.exists():
                folder.mkdir(parents=True, exist_ok=True)
                unfinished = folder / f".{digest}-{os.getpid()}"
                unfinished.write_bytes(data)
                unfinished.replace(target)
        return digest

    def _number(self, outer: int, code: CodeType, lasti: int, file: _File) -> int:
        position = self._positions.get((id(code), lasti))
        if position is None:
            position = self._positions[id(code), lasti] = position_of(code, lasti)
        key = (outer, file.name, code.co_qualname, position)
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._numbers) + 1
            if file.digest is None:
                file.digest = self._keep(file.path)
                self.packages.add(file.name.removesuffix(".py").partition("/")[0])
            description = {
                "outer": outer,
                "file": file.path,
                "name": file.name,
                "qualname": code.co_qualname,
                "position": position,
                "source": file.digest,
            }
            self._records.mark(Mark.PLACE, 0, str(number), json.dumps(description))
        return number


def calling_frame() -> FrameType | None:
    """The innermost frame of the workload, below those of the tracer itself."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_OWN_AS_IMPORTED):
        frame = frame.f_back
    return frame


def _shared_name(path: str, module: Any) -> str:
    """A file's name below the folder that its package lies in, equal in every environment.

    The module's dotted name says how much of the path belongs to the package, wherever that is
    installed; without one, the folder of an installation does.
    """
    if isinstance(module, str):
        inner = module.replace(".", "/")
        for ending in (f"/{inner}.py", f"/{inner}/__init__.py"):
            if path.endswith(ending):
                return ending[1:]
    return below_package_folder(path) or path
