"""Completion receipts: what a rank says about its own capture when it ends."""

from __future__ import annotations

import importlib.metadata
import json
import os
import platform
import socket
import sys
import time
import traceback
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import xorsig
from opguard.core import determinism
from opguard.core._version import __version__
from opguard.core.device_activity import DeviceActivity, device_activity
from opguard.core.effects import ACTIVITY_EFFECTS, DEVICE_EFFECTS
from opguard.core.environment import Rank
from opguard.core.locations import is_installed
from opguard.core.selection import Selection

PROTOCOL_VERSION = 1
_REPORTED_PACKAGES = ("numpy", "triton", "transformers", "lightning", "accelerate", "deepspeed")


class Recording(Protocol):
    """What a receipt needs to know of a session or of a discovery."""

    capture: Path
    capture_id: str
    regions: int
    started_unix_ns: int
    selection: Selection
    packages: set[str]
    activity: DeviceActivity | None
    device_used: bool

    def close(self) -> dict[str, int]:
        """End the recording and give its totals."""


def publish_receipt(
    recording: Recording,
    *,
    action: str,
    rank: Rank,
    deterministic: bool,
    exit_status: int = 0,
    exit_kind: str = "returned",
    failure: BaseException | None = None,
    observer_effects: tuple[str, ...] = (),
) -> None:
    """Write the receipt of this rank, once.

    Args:
        recording: A closed session or discovery.
        action: ``discover`` or ``trace``.
        rank: This process.
        deterministic: Whether the determinism policy was asked for.
        exit_status: Status that the process is about to end with.
        exit_kind: ``returned``, ``system_exit``, ``exception`` or ``os_exit``.
        failure: The exception that ended the workload.
        observer_effects: Side effects of the way of observing that the reader should know.

    Raises:
        FileExistsError: Another process wrote a receipt for this rank; a second one is written
            beside it, so that the duplicate is seen.

    Source:
        protocol B5, B7.
    """
    totals = recording.close()
    if recording.device_used:
        observer_effects = (*observer_effects, *DEVICE_EFFECTS)
    activity = recording.activity
    device = device_activity(os.environ) if activity is None else activity.states()
    if any(state.startswith("collected") for state in device.values()):
        observer_effects = (*observer_effects, *ACTIVITY_EFFECTS)
    document = {
        "protocol_version": PROTOCOL_VERSION,
        "format_version": xorsig.FORMAT_VERSION,
        "capture_id": recording.capture_id,
        "action": action,
        "rank": rank.rank,
        "rank_source": rank.source,
        "world_size": rank.world_size,
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "batches": totals["batches"],
        "records": totals["records"],
        "exit_status": exit_status,
        "exit_kind": exit_kind if failure is None or exit_kind != "returned" else "exception",
        "exception": None if failure is None else describe_exception(failure),
        "versions": versions(recording.packages),
        "fingerprint": {
            "schemes": [xorsig.XOR_SCHEME, xorsig.MIX_SCHEME],
            "regions": recording.regions,
        },
        "determinism": {"requested": deterministic, "settings": determinism.settings()},
        "observer_effects": list(observer_effects),
        "selection": recording.selection.document(),
        "device_activity": device,
        "counts": {k: v for k, v in totals.items() if k not in ("batches", "records")},
        "environment": environment_facts(),
        "started_unix_ns": recording.started_unix_ns,
        "ended_unix_ns": time.time_ns(),
    }
    text = json.dumps(document, sort_keys=True)
    folder = recording.capture / "receipts"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        xorsig.write_receipt(str(folder / f"rank-{rank.rank}.receipt"), text)
    except FileExistsError:
        name = f"rank-{rank.rank}.duplicate-{socket.gethostname()}-{os.getpid()}.receipt"
        xorsig.write_receipt(str(folder / name), text)
        raise


def describe_exception(error: BaseException) -> dict[str, Any]:
    """Type, message and source position of an exception.

    The position is the innermost one outside installed libraries, where there is one: an error of
    a collective is raised deep inside torch, and says nothing there.
    """
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not is_installed(os.path.realpath(frame.filename))]
    place = next(reversed(own or frames), None)
    return {
        "type": type(error).__qualname__,
        "message": str(error)[:2000],
        "file": place.filename if place is not None else None,
        "line": place.lineno if place is not None else None,
    }


def versions(seen: Iterable[str] = ()) -> dict[str, str]:
    """Versions of the interpreter and of the packages that decide numerical results.

    Args:
        seen: Top-level names of further packages, which ran operators.
    """
    found = {
        "python": platform.python_version(),
        "opguard-core": __version__,
        "xorsig": xorsig.__version__,
    }
    torch: ModuleType | None = sys.modules.get("torch")
    if torch is not None:
        found["torch"] = str(getattr(torch, "__version__", "unknown"))
    for name in sorted({*_REPORTED_PACKAGES, *seen} - found.keys()):
        if name in sys.modules:
            try:
                found[name] = importlib.metadata.version(name)
            except importlib.metadata.PackageNotFoundError:
                if name in _REPORTED_PACKAGES:
                    found[name] = "unknown"
    return found


def environment_facts() -> dict[str, Any]:
    """Facts besides versions that can make equal programs differ: threads, precision, flags."""
    found: dict[str, Any] = {
        name: os.environ[name]
        for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "PYTHONHASHSEED")
        if name in os.environ
    }
    torch: Any = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "get_num_threads"):
        found["torch.num_threads"] = torch.get_num_threads()
        found["torch.default_dtype"] = str(torch.get_default_dtype()).removeprefix("torch.")
        found["torch.float32_matmul_precision"] = torch.get_float32_matmul_precision()
        found["torch.cuda"] = torch.version.cuda if torch.cuda.is_initialized() else None
    found["machine"] = platform.machine()
    return found
