"""What a set of figures was measured on and with."""

from __future__ import annotations

import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[3]


def description() -> dict[str, Any]:
    """Machine, versions, revision, date and command, for the head of a result file."""
    return {
        "command": " ".join(["nox", "-s", "bench", "--", *map(shlex.quote, sys.argv[1:])]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "revision": _revision(),
        "processor": _processor(),
        "processors_usable": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "load_average_1m": round(os.getloadavg()[0], 2),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "packages": {
            dist.metadata["Name"]: dist.version
            for dist in sorted(distributions(), key=lambda dist: dist.metadata["Name"].lower())
        },
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _revision() -> str:
    command = ["git", "-C", str(REPOSITORY), "describe", "--always", "--dirty"]
    try:
        found = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip()
