"""What is said about device kernels and CUDA runtime calls, which this version does not collect."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

VARIABLES = ("OPGUARD_CALLSITE_CUPTI", "OPGUARD_CALLSITE_CUDAAPI")
"""Kernels on the device, and calls of the CUDA runtime; ``0`` turns each off."""


def device_activity(environment: Mapping[str, str]) -> dict[str, str]:
    """Whether each kind of activity was collected, by its variable: ``off`` or why it could not be.

    Asks nothing of CUDA: a program that has not used a device does not get one set up.

    Source:
        protocol B11.
    """
    torch: Any = sys.modules.get("torch")
    used = torch is not None and hasattr(torch, "cuda") and torch.cuda.is_initialized()
    if used:
        reason = "unavailable: this version does not attribute device activity to callsites"
    elif torch is not None and getattr(torch.version, "cuda", None) is None:
        reason = "unavailable: this build of torch has no CUDA"
    else:
        reason = "unavailable: the program used no CUDA device"
    return {name: "off" if environment.get(name) == "0" else reason for name in VARIABLES}
