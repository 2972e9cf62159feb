"""Tracer and tensor fingerprints, embedded in a training process.

Importing this package loads neither torch nor any CUDA library: the public names below are
resolved on first use. A recording is started with :func:`capture` or :func:`start`, or by the
command line of ``opguard-tools``, which rewrites a checkout so that its calls run through
:mod:`opguard.core._site`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from opguard.core._version import __version__

if TYPE_CHECKING:
    from opguard.core.capturing import EmbeddedSession, capture, start
    from opguard.core.fingerprint import region_signatures, xor_signature, xor_signature_rows
    from opguard.core.session import Session

_HOMES = {
    "EmbeddedSession": "opguard.core.capturing",
    "Session": "opguard.core.session",
    "capture": "opguard.core.capturing",
    "region_signatures": "opguard.core.fingerprint",
    "start": "opguard.core.capturing",
    "xor_signature": "opguard.core.fingerprint",
    "xor_signature_rows": "opguard.core.fingerprint",
}

__all__ = [
    "EmbeddedSession",
    "Session",
    "__version__",
    "capture",
    "region_signatures",
    "start",
    "xor_signature",
    "xor_signature_rows",
]


def __getattr__(name: str) -> Any:
    """Resolve a public name in the module that defines it."""
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(home), name)


def __dir__() -> list[str]:
    """The public names."""
    return sorted(__all__)
