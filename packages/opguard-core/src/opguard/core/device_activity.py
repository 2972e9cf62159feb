"""Collects device kernels and CUDA runtime calls of a capture with torch's profiler (Kineto).

Each recorded call is a range of the profiler with the numbers of its callsite and of the call in
its name, and so is the recorder's own work; ``opguard-tools`` attributes the activity to the calls.
This module imports torch only once it is to collect.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

VARIABLES = ("OPGUARD_CALLSITE_CUPTI", "OPGUARD_CALLSITE_CUDAAPI")
"""Kernels on the device, and calls of the CUDA runtime; ``0`` turns each off, unset means on."""

OWN_RANGE = "opguard:own"
"""Range of the recorder's own work."""

MAX_CALLS = 200_000
"""Recorded calls after which collecting ends: the profiler keeps all of its events in memory."""

MAX_CALLS_UNASKED = 20_000
"""The same where nobody has set a variable to ``1``."""

_DEVICE_FILES = ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")
"""Of a driver for NVIDIA's devices, for AMD's, and of either in a Windows host."""

_NO_CUDA = "unavailable: this build of torch has no CUDA"
_NO_DEVICE = "unavailable: this machine has no CUDA device"
_NOT_USED = "unavailable: the program used no CUDA device"
_NO_KINETO = "unavailable: torch's profiler (Kineto) cannot observe this device"
_DISCOVERY = "unavailable: a discovery does not collect it"
_COLLECTED = "collected"


class DeviceActivity:
    """One rank's device activity, in parts of a step selection each.

    It never raises into the workload: a failure of the profiler ends the collection and is its
    stated reason.

    Args:
        folder: Receives ``rank-<r>.<part>.json.gz``.
        rank: Global rank.
        environment: Holds the :data:`VARIABLES`.
        host_only: Collect the operators of the host instead, for machines without a device.

    Attributes:
        wanted: Whether anything is to be collected, should the program use a device.
    """

    def __init__(
        self,
        folder: Path,
        rank: int,
        environment: Mapping[str, str],
        *,
        host_only: bool = False,
    ) -> None:
        self._folder = folder
        self._rank = rank
        self._environment = environment
        self._host_only = host_only
        self._ended = _NOT_USED
        self._profiler: Any = None
        self._parts = 0
        self._calls = 0
        self._pid = os.getpid()
        self._taken: dict[str, Any] = {}
        asked = any(environment.get(name) == "1" for name in VARIABLES)
        self._max_calls = MAX_CALLS if asked else MAX_CALLS_UNASKED
        some = any(environment.get(name) != "0" for name in VARIABLES)
        self.wanted = some and (host_only or (_built_for_devices() and _has_device()))
        self._open = self.wanted

    def range(self, name: str) -> Any:
        """An entered range of the profiler, or None while nothing is collected."""
        if self._profiler is None:
            return None
        import torch

        made = torch._C._profiler._RecordFunctionFast(name)
        made.__enter__()
        return made

    def call_begins(self) -> None:
        """Start the profiler once the program uses a device, and count the call."""
        if self._profiler is None and self._open:
            torch: Any = sys.modules["torch"]
            if self._host_only or torch.cuda.is_initialized():
                self._guarded(self._start)
        if self._profiler is not None:
            self._calls += 1
            if self._calls > self._max_calls:
                self._end(f"{_COLLECTED}: until the limit of {self._max_calls} recorded calls")

    def pause(self) -> None:
        """Write what was collected; the next recorded call starts a new part."""
        if self._profiler is not None:
            self._guarded(self._stop)

    def close(self) -> None:
        """End the collection."""
        self.pause()
        self._open = False

    def leave_to_the_parent(self) -> None:
        """In a forked child, where nobody will ever read the profiler's events: make no more."""
        if self._profiler is not None:
            import torch

            self._give_back()
            self._profiler, self._open = None, False
            torch._C._autograd._enable_record_function(False)

    def states(self) -> dict[str, str]:
        """Whether each kind of activity was collected, or why not, by its variable.

        Source:
            protocol B11.
        """
        return _states(self._environment, self._ended if self.wanted else None)

    def _start(self) -> None:
        from torch.profiler import ProfilerActivity, profile

        torch: Any = sys.modules["torch"]
        activities = {ProfilerActivity.CPU}
        if not self._host_only:
            if ProfilerActivity.CUDA not in torch.profiler.supported_activities():
                self._end(_NO_KINETO)
                return
            activities.add(ProfilerActivity.CUDA)
        if torch._C._autograd._profiler_enabled():
            self._end("unavailable: the program's own profiler was running")
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        profiler = profile(activities=activities)
        profiler.start()
        self._profiler, self._ended = profiler, _COLLECTED
        self._yield_to_the_program()

    def _stop(self) -> None:
        profiler, self._profiler = self._profiler, None
        self._give_back()
        profiler.stop()
        name = f"rank-{self._rank}.{self._parts}.json.gz"
        self._parts += 1
        unfinished = self._folder / f".{name}"
        profiler.export_chrome_trace(str(unfinished))
        unfinished.replace(self._folder / name)

    def _end(self, reason: str) -> None:
        self.pause()
        self._open, self._ended = False, reason

    def _guarded(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:
            self._profiler, self._open = None, False
            self._give_back()
            kind = type(error).__name__
            self._ended = f"unavailable: torch's profiler failed: {kind}: {error}"[:300]

    def _yield_to_the_program(self) -> None:
        """Let the program start a profiler of its own: there can be one, and it would fail."""
        from torch.autograd import profiler

        def yielding(start: Callable[..., Any]) -> Callable[..., Any]:
            def started(*args: Any, **kwargs: Any) -> Any:
                if os.getpid() == self._pid:
                    self._end(f"{_COLLECTED}: until the program started a profiler of its own")
                return start(*args, **kwargs)

            return started

        for name in ("_prepare_profiler", "_enable_profiler"):
            self._taken[name] = getattr(profiler, name)
            setattr(profiler, name, yielding(self._taken[name]))

    def _give_back(self) -> None:
        if self._taken:
            from torch.autograd import profiler

            for name, start in self._taken.items():
                setattr(profiler, name, start)
            self._taken = {}


def device_activity(environment: Mapping[str, str]) -> dict[str, str]:
    """What is said where nothing was collected: ``off`` or the reason, by variable.

    Asks nothing of CUDA: a program that has not used a device does not get one set up.

    Source:
        protocol B11.
    """
    return _states(environment, None)


def _states(environment: Mapping[str, str], outcome: str | None) -> dict[str, str]:
    torch: Any = sys.modules.get("torch")
    if outcome is None:
        if torch is not None and not _built_for_devices():
            outcome = _NO_CUDA
        elif not _has_device():
            outcome = _NO_DEVICE
        else:
            used = torch is not None and hasattr(torch, "cuda") and torch.cuda.is_initialized()
            outcome = _DISCOVERY if used else _NOT_USED
    return {name: "off" if environment.get(name) == "0" else outcome for name in VARIABLES}


def _built_for_devices() -> bool:
    version: Any = getattr(sys.modules.get("torch"), "version", None)
    return any(getattr(version, name, None) is not None for name in ("cuda", "hip"))


def _has_device() -> bool:
    """Whether a driver for devices runs; asking CUDA would set it up, and spoil forked children."""
    return any(os.path.exists(path) for path in _DEVICE_FILES)
