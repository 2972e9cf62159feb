"""The ``OPGUARD_*`` variables that decide how a capture is made, checked before anything starts."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from opguard.tools.launch.selection import CaptureSelection, read_selection
from opguard.tools.protocol.errors import InvalidSettingError

REGIONS_VARIABLE = "OPGUARD_XOR_REGIONAL"
DETERMINISTIC_VARIABLE = "OPGUARD_DETERMINISTIC"
ACTIVITY_VARIABLES = ("OPGUARD_CALLSITE_CUPTI", "OPGUARD_CALLSITE_CUDAAPI")
"""Read by the tracer in each rank; a wrong value is found here, before anything starts."""

DEFAULT_REGIONS = 4
MAX_REGIONS = 64


@dataclass(frozen=True)
class CaptureSettings:
    """How tensors are fingerprinted, and whether the determinism policy is on.

    Attributes:
        regions: Byte regions per tensor, 1 to 64.
        deterministic: The request asks for the determinism policy.
        selection: What a trace records.
    """

    regions: int
    deterministic: bool
    selection: CaptureSelection = field(default_factory=CaptureSelection)


def capture_settings(
    workload_env: Mapping[str, str], caller_env: Mapping[str, str] | None = None
) -> CaptureSettings:
    """Read the settings from the workload's environment.

    Args:
        workload_env: The request's ``workload.env``.
        caller_env: The environment that the workload inherits; this process's by default.

    Raises:
        InvalidSettingError: A variable has a value outside its range; names the variable.

    Source:
        Fingerprint requirement F5; protocol requirement B10 (an inherited determinism variable
        does not count, it must be asked for in the request).
    """
    inherited = os.environ if caller_env is None else caller_env
    effective = {**inherited, **workload_env}
    for name in ACTIVITY_VARIABLES:
        _parse_switch(name, effective.get(name))
    return CaptureSettings(
        regions=parse_regions(effective.get(REGIONS_VARIABLE)),
        deterministic=_parse_switch(
            DETERMINISTIC_VARIABLE, workload_env.get(DETERMINISTIC_VARIABLE)
        ),
        selection=read_selection(effective),
    )


def parse_regions(value: str | None) -> int:
    """Number of regions that ``OPGUARD_XOR_REGIONAL`` selects.

    Raises:
        InvalidSettingError: The value is not a whole number from 0 to 64.
    """
    if value is None:
        return DEFAULT_REGIONS
    if re.fullmatch("[0-9]{1,3}", value) and int(value) <= MAX_REGIONS:
        return max(int(value), 1)
    raise InvalidSettingError(
        f"{REGIONS_VARIABLE} is {value!r}; set it to a whole number from 1 to {MAX_REGIONS} (0 "
        f"means 1), or unset it for {DEFAULT_REGIONS}",
        variable=REGIONS_VARIABLE,
        value=value,
    )


def _parse_switch(name: str, value: str | None) -> bool:
    if value in (None, "", "0"):
        return False
    if value == "1":
        return True
    raise InvalidSettingError(
        f"{name} is {value!r}; set it to 1 or leave it out",
        variable=name,
        value=value,
    )
