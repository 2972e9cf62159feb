"""Which expressions of a checkout touch tensors: a dispatch mode that looks at the stack."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any

import xorsig
from opguard.core import _torch_import
from opguard.core.device_activity import DeviceActivity
from opguard.core.interruption import comes_from_signal_handler
from opguard.core.locations import is_installed, package_folders, position_of, standard_library
from opguard.core.recording.names import Names
from opguard.core.selection import Selection

if TYPE_CHECKING:
    from torch.utils._python_dispatch import TorchDispatchMode

INNERMOST, OPAQUE, BACKWARD = 1, 2, 8
_EMIT_INTERVAL_SECONDS = 1.0
_CHECK_EVERY = 128

_OWN = os.path.dirname(os.path.realpath(__file__)) + os.sep
_COMPOSITE_MODULES = frozenset({"nn/modules/container.py", "nn/modules/transformer.py"})
"""torch's files of modules that run other modules, relative to torch."""

_Position = tuple[str, str, int, int, int, int]


class Discovery:
    """Records the callsites of a checkout that run tensor operations.

    Covers the thread that starts it; operations of other threads are counted. Forked children
    record nothing.

    Args:
        checkout: Folder whose source counts; symbolic links resolved.
        capture: Directory of the whole capture.
        staging: Directory on a local disk for unpublished batches.
        capture_id: 32 hexadecimal digits that all ranks share.
        rank: Global rank.
        regions: Regions per fingerprint, recorded only.
    """

    def __init__(
        self,
        checkout: Path,
        capture: Path,
        staging: Path,
        *,
        capture_id: str,
        rank: int,
        regions: int,
    ) -> None:
        self.capture = capture
        self.capture_id = capture_id
        self.regions = regions
        self.selection = Selection()
        self.packages: set[str] = set()
        self.activity: DeviceActivity | None = None
        self.device_used = False
        self.started_unix_ns = time.time_ns()
        self._root = os.path.realpath(checkout) + os.sep
        self._writer = xorsig.CaptureWriter(
            str(capture / f"rank-{rank}"),
            str(staging),
            capture_id=capture_id,
            rank=rank,
            regions=regions,
        )
        self._pid = os.getpid()
        self._thread = threading.get_ident()
        self._files: dict[str, str | None] = {}
        self._positions: dict[tuple[int, int], _Position | None] = {}
        self._codes: dict[int, CodeType] = {}
        self._pending: dict[tuple[_Position, str, int], list[Any]] = {}
        self._emitted = time.monotonic()
        self._mode: TorchDispatchMode | None = None
        self._active = False
        self._operators = 0
        self._elsewhere = 0
        self._totals: dict[str, int] | None = None
        self._failure: Exception | None = None
        self._names = Names(self._writer)
        self._opaque: dict[str, bool] = {}

    def start(self) -> None:
        """Observe from now on, or from the moment when torch is imported."""
        os.register_at_fork(after_in_child=self._abandon)
        _torch_import.when_torch_is_imported(self._activate)

    def _activate(self) -> None:
        if threading.get_ident() != self._thread or os.getpid() != self._pid:
            return
        import torch

        self._torch_folder = os.path.dirname(os.path.realpath(torch.__file__)) + os.sep
        self._graph_task: Callable[[], int] = torch._C._current_graph_task_id
        self._active = True
        from opguard.core.modes import ObservingMode, check_traces_without, run_operator

        def run(operator: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            self._observe(operator, args)
            return run_operator(operator, args, kwargs)

        self._mode = ObservingMode(run)
        check_traces_without(self._mode)
        self._mode.__enter__()  # type: ignore[no-untyped-call]

    def _abandon(self) -> None:
        self._active = False

    def close(self) -> dict[str, int]:
        """Stop observing and publish; gives the totals for the receipt.

        Raises:
            OSError: A batch could not be published.
            RuntimeError: The observation failed and was ended before the workload.
        """
        if self._failure is not None:
            raise RuntimeError(
                f"the observation of callsites ended early: {self._failure!r}; what was seen until "
                "then is incomplete"
            ) from self._failure
        if self._totals is None:
            self._active = False
            self._emit()
            stats = self._writer.close()
            self._totals = {
                "batches": stats["batches"],
                "records": stats["records"],
                "operators": self._operators,
                "other_thread_operations": self._elsewhere,
            }
        return self._totals

    def _observe(self, operator: Any, args: tuple[Any, ...]) -> None:
        """Note an operator; a failure ends the observation, never the workload."""
        if not self._active:
            return
        try:
            self._attribute(operator, args)
        except Exception as error:
            if comes_from_signal_handler(error):
                raise
            self._active = False
            self._failure = error

    def _attribute(self, operator: Any, args: tuple[Any, ...]) -> None:
        if threading.get_ident() != self._thread:
            self._elsewhere += 1
            return
        self._operators += 1
        # 0 is this frame, 1 _observe's, 2 and 3 the mode's, 4 the one that ran the operator.
        frame: FrameType | None = sys._getframe(4)
        phase = BACKWARD if self._graph_task() != -1 else 0
        innermost = True
        opaque = 0
        while frame is not None:
            code = frame.f_code
            # By identity: code objects of different files compare equal when their code is.
            key = (id(code), frame.f_lasti)
            try:
                position = self._positions[key]
            except KeyError:
                self._codes[id(code)] = code
                position = self._positions[key] = self._position(code, frame.f_lasti)
            if position is not None:
                flags = phase | opaque | (INNERMOST if innermost else 0)
                self._count(position, str(operator) if innermost else "", flags, args)
                innermost = False
            elif innermost and not opaque and self._is_library(code.co_filename):
                opaque = OPAQUE
            frame = frame.f_back
        if self._operators % _CHECK_EVERY == 0 and (
            time.monotonic() - self._emitted > _EMIT_INTERVAL_SECONDS
        ):
            self._emit()

    def _count(self, position: _Position, operator: str, flags: int, args: tuple[Any, ...]) -> None:
        entry = self._pending.get((position, operator, flags))
        if entry is None:
            self._pending[position, operator, flags] = [1, _example(args) if operator else ""]
        else:
            entry[0] += 1

    def _emit(self) -> None:
        pending, self._pending = self._pending, {}
        self._emitted = time.monotonic()
        intern = self._names.id
        for (position, operator, flags), (count, example) in pending.items():
            file, qualname, line, end_line, col, end_col = position
            self._writer.span(
                intern(file),
                intern(qualname),
                line,
                end_line,
                col,
                end_col,
                intern(operator),
                count,
                flags,
                intern(example),
            )

    def _position(self, code: CodeType, lasti: int) -> _Position | None:
        file = self._file(code.co_filename)
        if file is None:
            return None
        return (file, code.co_qualname, *position_of(code, lasti))

    def _file(self, name: str) -> str | None:
        """The real path of a code object's file if it is in the checkout.

        Generated code (``<string>``) has no file, although a relative name of that form would
        resolve into the working directory.
        """
        if name not in self._files:
            real = None
            if not name.startswith("<"):
                path = os.path.realpath(name)
                if path.startswith(self._root) and not is_installed(path):
                    real = path
            self._files[name] = real
        return self._files[name]

    def _is_library(self, name: str) -> bool:
        """Whether a file is of a library, wherever that is installed.

        Of torch only modules that call other modules count: what they call is worth seeing.
        """
        known = self._opaque.get(name)
        if known is None:
            known = self._opaque[name] = self._decide_library(name)
        return known

    def _decide_library(self, name: str) -> bool:
        if name.startswith("<"):
            return False
        path = os.path.realpath(name)
        if path.startswith(self._torch_folder):
            return path.removeprefix(self._torch_folder) in _COMPOSITE_MODULES
        if path.startswith(package_folders()):
            return True
        return not path.startswith((self._root, _OWN, *standard_library()))


def _example(args: tuple[Any, ...]) -> str:
    """Dtype and shape of the first tensor argument, e.g. ``float32[8, 64]``."""
    for item in args:
        try:
            return f"{item.dtype}{list(item.shape)}".removeprefix("torch.")
        except (AttributeError, RuntimeError, TypeError):
            continue  # no tensor, or one without a shape: a parameter that is not made yet
    return ""
