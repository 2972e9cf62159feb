"""Device activity, attributed to the recorded calls that caused it."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from opguard.tools.protocol.models.base import ClosedModel, Rank

_Count = Annotated[int, Field(ge=0)]


class ActivityFigures(ClosedModel):
    """Sums of device activity. Durations that overlap count twice.

    Source:
        Protocol requirement B11.
    """

    kernels: _Count = Field(description="Number of kernels.", examples=[120])
    copies: _Count = Field(
        description="Number of copies and fills on the device, to it and from it.", examples=[8]
    )
    device_ns: _Count = Field(
        description="Time that kernels, copies and fills took, in nanoseconds.", examples=[5210400]
    )
    runtime_calls: _Count = Field(
        description="Number of calls of the CUDA runtime.", examples=[130]
    )
    runtime_ns: _Count = Field(
        description="Time that the host spent in them, in nanoseconds.", examples=[912000]
    )


class RankActivity(ClosedModel):
    """Device activity of one rank."""

    rank: Rank = Field(description="Global rank.", examples=[0])
    direct: ActivityFigures = Field(description="What ran in recorded calls.")
    backward: ActivityFigures = Field(
        description="What the autograd engine ran on its own threads for recorded calls."
    )
    others: dict[str, ActivityFigures] = Field(
        description="What no recorded call caused: `tracer` is the recorder's own work, "
        "`outside_calls` was launched outside of every recorded call, and of `no_launch` the "
        "launch is not known.",
        examples=[
            {
                "tracer": {
                    "kernels": 240,
                    "copies": 2,
                    "device_ns": 810300,
                    "runtime_calls": 250,
                    "runtime_ns": 1204000,
                }
            }
        ],
    )
    warnings: list[str] = Field(
        description="What makes the figures doubtful.",
        examples=[["the file ends in the middle; rows until there are read"]],
    )
