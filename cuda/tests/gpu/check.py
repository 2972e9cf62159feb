"""Checks the CUDA kernels on a real device, and measures them, in under ten minutes.

    python cuda/tests/gpu/check.py [--json FILE] [--only NAME ...]

Exit status 0: every check passed. 1: one did not. 2: there is no device, so nothing was checked.
The checks stand in order: values first, then what the tracer promises (launches, no waiting, graph
capture), then speed. `compute-sanitizer` runs the values again where it is installed.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from measure import bandwidth_table, step_overhead
from promises import captures, launches, results, waits
from tracing import tracing
from values import agrees_with_host, agrees_with_vectors, large_tensors, statistics

from opguard.core.cuda.kernels import KERNELS

NO_DEVICE = 2
CHECKS: dict[str, Callable[[], dict[str, object]]] = {
    "vectors": agrees_with_vectors,
    "host": agrees_with_host,
    "statistics": statistics,
    "large": large_tensors,
    "launches": launches,
    "waits": waits,
    "results": results,
    "captures": captures,
    "tracing": tracing,
    "bandwidth": bandwidth_table,
    "overhead": step_overhead,
}
VALUES = ("vectors", "host", "statistics")


def sanitizer() -> dict[str, object]:
    """Run the value checks under compute-sanitizer, one tool after the other."""
    program = _compute_sanitizer()
    if program is None:
        return {"skipped": "compute-sanitizer is not installed"}
    outcomes = {}
    for tool in ("memcheck", "racecheck", "initcheck", "synccheck"):
        process = subprocess.run(
            [
                *(program, "--tool", tool, "--error-exitcode", "9", "--kernel-name"),
                *("kernel_substring=opguard", sys.executable, __file__, "--only", *VALUES[:2]),
            ],
            # The allocator hides the ends of tensors in larger blocks.
            env={**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1", "OPGUARD_GPU_FEW": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        outcomes[tool] = process.returncode
        if process.returncode:
            raise AssertionError(f"{tool}: {process.stdout[-3000:]}{process.stderr[-1000:]}")
    return {"tools": sorted(outcomes)}


def _compute_sanitizer() -> str | None:
    for entry in sys.path:
        found = Path(entry) / "nvidia" / "cu13" / "bin" / "compute-sanitizer"
        if found.is_file():
            return str(found)
    return shutil.which("compute-sanitizer")


def main() -> int:
    """Run the checks; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, help="where to write the figures")
    parser.add_argument("--only", nargs="+", choices=[*CHECKS, "sanitizer"], help="these checks")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        print("no CUDA device: nothing was checked or measured", file=sys.stderr)
        return NO_DEVICE
    if not KERNELS.usable(torch.cuda.current_device()):
        print(f"the kernels cannot be used: {KERNELS.problem}", file=sys.stderr)
        return 1
    report: dict[str, object] = {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "date": time.strftime("%Y-%m-%d"),
    }
    failed = False
    for name, check in {**CHECKS, "sanitizer": sanitizer}.items():
        if arguments.only and name not in arguments.only:
            continue
        start = time.monotonic()
        try:
            found = check()
        except AssertionError as error:
            failed = True
            found = {"failed": str(error) or "an assertion"}
        report[name] = found
        outcome = "FAIL" if "failed" in found else "skip" if "skipped" in found else "pass"
        print(f"{outcome}  {name}  ({time.monotonic() - start:.1f} s)", flush=True)
        for key, value in found.items():
            print(f"      {key}: {value}", flush=True)
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
