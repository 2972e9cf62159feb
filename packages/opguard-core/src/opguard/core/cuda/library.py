"""Finds, checks and binds the CUDA kernel library; needs neither torch nor a device.

The library is a plain C ABI (``opguard_cuda.h``), so one file serves every Python and every torch,
and a call through :mod:`ctypes` is invisible to torch's dispatch modes.
"""

from __future__ import annotations

import ctypes
import importlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

ABI_VERSION = 1
ENVIRONMENT_VARIABLE = "OPGUARD_CUDA_LIBRARY"
NO_STATISTICS = 0
PLAIN = 1
BOTH = 3

_U32, _I32 = ctypes.c_uint32, ctypes.c_int32
_U64, _POINTER = ctypes.c_uint64, ctypes.c_void_p


class Plan(ctypes.Structure):
    """How a tensor is spread over a device; ``opguard_cuda_plan`` of the C ABI."""

    _fields_ = (
        ("nbytes", _U64),
        ("regions", _U32),
        ("schemes", _U32),
        ("element", _U32),
        ("blocks_per_region", _U32),
        ("launches", _U32),
        ("workspace_bytes", _U32),
    )


class Statistics(ctypes.Structure):
    """Statistics of a tensor; ``opguard_cuda_statistics`` of the C ABI."""

    _fields_ = (
        ("elements", _U64),
        ("nans", _U64),
        ("infinities", _U64),
        ("zeros", _U64),
        ("minimum", ctypes.c_double),
        ("maximum", ctypes.c_double),
        ("absolute_maximum", ctypes.c_double),
        ("mean", ctypes.c_double),
        ("l2", ctypes.c_double),
    )


_FUNCTIONS: dict[str, tuple[object, tuple[object, ...]]] = {
    "error_string": (ctypes.c_char_p, (_I32,)),
    "resident_blocks": (_I32, (_I32, ctypes.POINTER(_U32))),
    "make_plan": (_I32, (_U64, _U32, _U32, _U32, _U32, ctypes.POINTER(Plan))),
    "launch": (
        _I32,
        (
            *(ctypes.POINTER(Plan), _POINTER, _POINTER, _POINTER),
            *(_POINTER, _U64, _I32, _POINTER),
        ),
    ),
    "fingerprint": (
        _I32,
        (_POINTER, _U64, _U32, _U32, _POINTER, _POINTER, _U64, _I32, _POINTER),
    ),
    "relax_capture_mode": (_I32, ()),
}


class Attempt(NamedTuple):
    """A place where the library was looked for, and why it is not used from there."""

    step: str
    path: str
    reason: str


class LibraryNotUsableError(Exception):
    """No kernel library could be loaded.

    Attributes:
        attempts: Every place that was tried, in order.
    """

    def __init__(self, attempts: list[Attempt]) -> None:
        tried = "; ".join(f"{step} ({path}): {reason}" for step, path, reason in attempts)
        super().__init__(
            f"no usable CUDA fingerprint library: {tried}; tensors on a device are fingerprinted "
            f"by tensor operations, with equal values but slower. Install opguard-cuda, or set "
            f"{ENVIRONMENT_VARIABLE} to the library's file"
        )
        self.attempts = attempts


class CudaError(Exception):
    """A function of the library returned an error.

    Attributes:
        code: Negative for the library's own errors, positive for those of the CUDA runtime.
    """

    def __init__(self, function: str, code: int, text: str) -> None:
        super().__init__(f"opguard_cuda_{function} failed: {text} ({code})")
        self.code = code


class Library:
    """A loaded kernel library.

    Args:
        path: The shared library.
        found_via: Name of the step that found it.

    Attributes:
        path: As given.
        found_via: As given.

    Raises:
        OSError: It cannot be loaded.
        ValueError: It lacks a function, or is of another ABI version.
    """

    def __init__(self, path: Path, found_via: str) -> None:
        self.path = path
        self.found_via = found_via
        loaded = ctypes.CDLL(str(path))
        try:
            version_of = loaded.opguard_cuda_abi_version
        except AttributeError:
            raise ValueError("it is not a library of opguard-cuda") from None
        version_of.restype, version_of.argtypes = _I32, ()
        version = version_of()
        if version != ABI_VERSION:
            raise ValueError(f"its ABI version is {version}, and {ABI_VERSION} is needed")
        self._functions: dict[str, Callable[..., int]] = {}
        for name, (result, arguments) in _FUNCTIONS.items():
            try:
                function = getattr(loaded, f"opguard_cuda_{name}")
            except AttributeError:
                raise ValueError(f"it lacks opguard_cuda_{name}") from None
            function.restype, function.argtypes = result, arguments
            self._functions[name] = function

    def error_text(self, code: int) -> str:
        """English text of an error code."""
        text = self._functions["error_string"](code)
        return text.decode() if isinstance(text, bytes) else str(text)

    def resident_blocks(self, device: int) -> int:
        """Thread blocks that a device runs at once; loads the kernels onto it.

        Raises:
            CudaError: There is no such device, or no driver.
        """
        blocks = _U32()
        self._check("resident_blocks", device, ctypes.byref(blocks))
        return blocks.value

    def plan(
        self, nbytes: int, regions: int, schemes: int, resident: int, element: int = NO_STATISTICS
    ) -> Plan:
        """Plan for a tensor of ``nbytes`` bytes; needs no device.

        Raises:
            CudaError: An argument is out of range.
        """
        plan = Plan()
        self._check("make_plan", nbytes, regions, schemes, element, resident, ctypes.byref(plan))
        return plan

    def launch(
        self,
        plan: Plan,
        data: int,
        out: int,
        workspace: int,
        workspace_bytes: int,
        device: int,
        stream: int,
        statistics: int | None = None,
    ) -> None:
        """Fingerprint memory of a device on a stream; all buffers are addresses on the device.

        Raises:
            CudaError: A buffer is missing or too small, or the launch failed.
        """
        self._check(
            "launch",
            *(ctypes.byref(plan), data, out, statistics),
            *(workspace, workspace_bytes, device, stream),
        )

    def fingerprint(
        self,
        data: int,
        nbytes: int,
        regions: int,
        schemes: int,
        out: int,
        workspace: int,
        workspace_bytes: int,
        device: int,
        stream: int,
    ) -> None:
        """Fingerprint memory of a device by the plan for all of its blocks, in one call.

        Raises:
            CudaError: As :meth:`launch`.
        """
        self._check(
            "fingerprint",
            *(data, nbytes, regions, schemes, out, workspace, workspace_bytes, device, stream),
        )

    def relax_capture_mode(self) -> None:
        """Let the calling thread fetch results while another thread captures a graph.

        Raises:
            CudaError: The runtime refused.
        """
        self._check("relax_capture_mode")

    def _check(self, name: str, *arguments: object) -> None:
        code = self._functions[name](*arguments)
        if code != 0:
            raise CudaError(name, code, self.error_text(code))


def _named_by_environment(environment: Mapping[str, str]) -> Path | None:
    named = environment.get(ENVIRONMENT_VARIABLE)
    return Path(named) if named else None


def _of_distribution(_environment: Mapping[str, str]) -> Path | None:
    try:
        distribution = importlib.import_module("opguard.cuda")
    except ModuleNotFoundError:
        return None
    return Path(distribution.library_path())


# A place that names a file decides: when that file is unusable, no later place is asked.
FIND_STEPS: tuple[tuple[str, Callable[[Mapping[str, str]], Path | None]], ...] = (
    (f"environment variable {ENVIRONMENT_VARIABLE}", _named_by_environment),
    ("distribution opguard-cuda", _of_distribution),
)


def load_library(environment: Mapping[str, str] = os.environ) -> Library:
    """Load the library from the first place that names one.

    Args:
        environment: Variables to look into.

    Returns:
        The library, with the step that found it.

    Raises:
        LibraryNotUsableError: No place names a library, or the named one cannot be used.
    """
    attempts = []
    for step, find in FIND_STEPS:
        path = find(environment)
        if path is None:
            attempts.append(Attempt(step, "-", "names no library"))
            continue
        try:
            return Library(path, step)
        except (OSError, ValueError) as error:
            attempts.append(Attempt(step, str(path), str(error)))
            break
    raise LibraryNotUsableError(attempts)
