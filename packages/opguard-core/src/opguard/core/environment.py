"""What the launcher's environment says: the rank, and the tracer's settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

REGIONS_VARIABLE = "OPGUARD_XOR_REGIONAL"


class Rank(NamedTuple):
    """This process among those of the workload.

    Attributes:
        rank: Global rank.
        world_size: Number of ranks.
        source: The variable that said so, or ``default``.
    """

    rank: int
    world_size: int
    source: str


_SOURCES = (
    ("RANK", "WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
)


def identify_rank(environment: Mapping[str, str]) -> Rank:
    """The global rank, from the first launcher variable that is set.

    ``SLURM_PROCID`` counts only with more than one task: an interactive allocation sets it to 0
    for every process.

    Raises:
        ValueError: A variable is not a number.

    Source:
        protocol B4.
    """
    for variable, size_variable in _SOURCES:
        text = environment.get(variable)
        if text is None:
            continue
        size = _number(size_variable, environment.get(size_variable, "1"))
        if variable == "SLURM_PROCID" and size <= 1:
            continue
        return Rank(_number(variable, text), size, variable)
    return Rank(0, 1, "default")


def regions_from_environment(environment: Mapping[str, str]) -> int:
    """Number of regions per fingerprint.

    Raises:
        ValueError: The variable is set and not 0 to 64.

    Source:
        fingerprint spec F5.
    """
    text = environment.get(REGIONS_VARIABLE)
    if text is None:
        return 4
    if not (text.isascii() and text.isdigit()) or int(text) > 64:
        raise ValueError(
            f"{REGIONS_VARIABLE}={text!r} is not a number of regions: set it to 1...64, to 0 for "
            "a single region, or unset it for 4"
        )
    return max(1, int(text))


def _number(variable: str, text: str) -> int:
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{variable}={text!r} in the launcher's environment is not a number")
    return int(text)
