"""What observing may change in a workload: said in receipts and results, never left to be found."""

from __future__ import annotations

_MODE = (
    "operators run one Python call later, and torch code that asks for active modes may choose "
    "another path"
)

DISCOVERY_EFFECTS = (
    f"a TorchDispatchMode is active: {_MODE}",
    "the traceback of an operator that fails has frames of the mode in it",
)
"""Of a discovery."""

OPERATOR_EFFECTS = (
    f"a TorchDispatchMode is active during calls of depth aten: {_MODE}",
    "the traceback of an operator that fails in such a call has frames of the mode in it",
)
"""Of a trace that has callsites of depth ``aten``."""

DEVICE_EFFECTS = (
    "fingerprints of tensors on a device: their memory comes from the program's allocator, so that "
    "it may place tensors elsewhere, and memory that another stream allocated is given back after "
    "the fingerprint was taken",
)
"""Of a trace of a program that used a device."""

ACTIVITY_EFFECTS = (
    "torch's profiler runs and calls are recorded without the native recorder: the program is "
    "slower, code that asks for an active profiler sees one, and the device is waited for where "
    "a part of the activity is written",
)
"""Of a trace that collects device activity."""
