"""The device activity of one rank of a capture: all of its parts, without what was turned off."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from opguard.tools.activity.attribution import DEVICE_KINDS, Attribution, attribute
from opguard.tools.activity.kineto import KinetoError, read_rows

ACTIVITY_NAME: Final = "activity"
"""Folder of the traces in that of a capture."""

_KINDS: Final[dict[str, frozenset[str]]] = {
    "OPGUARD_CALLSITE_CUPTI": frozenset(DEVICE_KINDS.values()),
    "OPGUARD_CALLSITE_CUDAAPI": frozenset({"runtime"}),
}
"""Kinds of activity by the variable that turns them off."""


def read_activity(capture: Path, rank: int, states: Mapping[str, str]) -> Attribution | None:
    """Attribute what a rank has collected.

    Args:
        capture: Directory of the capture.
        rank: Global rank.
        states: What the rank says of each kind, by variable.

    Returns:
        The attribution; ``None`` where nothing was collected. A part that cannot be read is a
        warning.

    Source:
        Protocol requirement B11.
    """
    parts = _parts(capture / ACTIVITY_NAME, rank)
    if not parts:
        return None
    result = Attribution()
    for path in parts:
        try:
            attribute(read_rows(path, result.warnings), result)
        except KinetoError as error:
            result.warnings[f"{path.name} is left out: {error.message}"] += 1
    off = {kind for name, kinds in _KINDS.items() if states.get(name) == "off" for kind in kinds}
    return _without(result, off) if off else result


def _parts(folder: Path, rank: int) -> list[Path]:
    name = re.compile(rf"rank-{rank}\.(\d+)\.json\.gz")
    found = [(int(m[1]), path) for path in folder.glob("*") if (m := name.fullmatch(path.name))]
    return [path for _, path in sorted(found)]


def _without(attribution: Attribution, off: set[str]) -> Attribution:
    for directions in attribution.calls.values():
        for kinds in directions.values():
            for kind in off & kinds.keys():
                del kinds[kind]
    for kinds in attribution.others.values():
        for kind in off & kinds.keys():
            del kinds[kind]
    return attribution
