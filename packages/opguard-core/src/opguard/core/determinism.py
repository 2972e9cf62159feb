"""The opt-in determinism policy: what it sets, recorded setting by setting."""

from __future__ import annotations

import os
from typing import Any

CUBLAS_WORKSPACE = ":4096:8"


def prepare_environment() -> None:
    """Set what CUDA libraries read from the environment when they load.

    Source:
        protocol B10. An existing value of the workload's environment is kept.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", CUBLAS_WORKSPACE)


def apply() -> None:
    """Turn on torch's deterministic algorithms; seeds nothing and fills no memory.

    Source:
        protocol B10.
    """
    import torch

    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


def settings() -> dict[str, Any]:
    """The settings in force, by name; only the environment's when torch was never loaded."""
    import sys

    found: dict[str, Any] = {"CUBLAS_WORKSPACE_CONFIG": os.environ.get("CUBLAS_WORKSPACE_CONFIG")}
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "are_deterministic_algorithms_enabled"):
        found["use_deterministic_algorithms"] = torch.are_deterministic_algorithms_enabled()
        found["cudnn.deterministic"] = torch.backends.cudnn.deterministic
        found["cudnn.benchmark"] = torch.backends.cudnn.benchmark
        found["fill_uninitialized_memory"] = torch.utils.deterministic.fill_uninitialized_memory
    return found
