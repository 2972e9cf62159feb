"""Keeping compiled code of instrumented sources out of the checkout."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

# Header of a .pyc since Python 3.7 (PEP 552): magic number, flags, then source time and size, u32
# each. Flag bit 0 says that a hash of the source stands in place of time and size.
_HEADER = struct.Struct("<4sIII")
_HASH_BASED = 1


def bytecode_environment(local_root: Path, capture_id: str) -> dict[str, str]:
    """Variables for the workload's processes that send bytecode to a folder of the capture's own.

    They win over values that the workload's own environment sets. With the prefix set, Python also
    reads no ``__pycache__``, so no cache of an original can hide an instrumented file; those of
    other files are linked into the folder (:mod:`opguard.tools.libraries`). The folder is new for
    each capture; ``local_root`` may be another disk on each node.

    Args:
        local_root: Absolute path outside the checkout.
        capture_id: Identifier of the capture.

    Source:
        Protocol requirement D4.
    """
    return {"PYTHONPYCACHEPREFIX": str(local_root / "pycache" / capture_id)}


def remove_stale_bytecode(source: Path, instrumented_size: int) -> None:
    """Delete caches beside ``source`` that a process without the prefix made while instrumented.

    Python would not load them, since the restored source has another time; they are removed so
    that nothing of the instrumentation is left. A cache that fits the source as it is now stays.

    Args:
        source: The restored file.
        instrumented_size: Bytes of the instrumented file.
    """
    with contextlib.suppress(OSError):
        status = source.stat()
        current = (int(status.st_mtime) & 0xFFFFFFFF, status.st_size & 0xFFFFFFFF)
        for cache in (source.parent / "__pycache__").glob(f"{_escaped(source.stem)}.*.pyc"):
            with open(cache, "rb") as file:
                header = file.read(_HEADER.size)
            if len(header) < _HEADER.size:
                continue
            _, flags, mtime, size = _HEADER.unpack(header)
            of_instrumented = size == instrumented_size & 0xFFFFFFFF
            if not flags & _HASH_BASED and of_instrumented and (mtime, size) != current:
                cache.unlink()


def _escaped(stem: str) -> str:
    """A file name's stem as a pattern that matches only itself."""
    return "".join(f"[{character}]" if character in "*?[" else character for character in stem)
