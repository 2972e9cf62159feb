"""Tensor fingerprints, capture files, tables and trace reports for OpGuard.

The work is done by the native module ``xorsig._xorsig``; this package re-exports it by name.
"""

from xorsig._errors import CorruptBatchError
from xorsig._xorsig import (
    FORMAT_VERSION,
    MIX_SCHEME,
    XOR_SCHEME,
    CallFrame,
    CallSite,
    CaptureWriter,
    Effects,
    KnownParameters,
    PendingSignature,
    Recorder,
    __version__,
    byte_ranges,
    fingerprint,
    fingerprint_tensor,
    materialize,
    read_receipt,
    region_mix,
    region_xor,
    row_xor,
    verify_capture,
    write_perfetto,
    write_receipt,
    xor,
)

__all__ = [
    "FORMAT_VERSION",
    "MIX_SCHEME",
    "XOR_SCHEME",
    "CallFrame",
    "CallSite",
    "CaptureWriter",
    "CorruptBatchError",
    "Effects",
    "KnownParameters",
    "PendingSignature",
    "Recorder",
    "__version__",
    "byte_ranges",
    "fingerprint",
    "fingerprint_tensor",
    "materialize",
    "read_receipt",
    "region_mix",
    "region_xor",
    "row_xor",
    "verify_capture",
    "write_perfetto",
    "write_receipt",
    "xor",
]
