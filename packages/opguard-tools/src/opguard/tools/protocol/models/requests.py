"""Requests of the protocol's actions."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from opguard.tools.protocol.models.base import ClosedModel, RankList, SystemPath
from opguard.tools.protocol.models.capture import DiscoverResult, TraceResult
from opguard.tools.protocol.models.results import PrepareResult
from opguard.tools.protocol.models.workload import Workload


class ActionRequest(ClosedModel):
    """Fields common to all requests."""

    protocol_version: Literal[1] = Field(
        description="Version of the protocol that the request is written in.", examples=[1]
    )
    output: SystemPath = Field(
        description="Directory that the action makes and fills. Neither it nor a sibling of the "
        "same name with `-instrument` appended may exist. A retry takes a new one.",
        examples=["/data/runs/a-discover"],
    )


class LaunchRequest(ActionRequest):
    """Fields common to the requests that run a workload."""

    local_root: SystemPath = Field(
        description="Directory for staging on the node's own disk, shared by the ranks of that "
        "node. It is neither inside `output` nor around it, and not inside the checkout.",
        examples=["/tmp/opguard"],
    )
    timeout_seconds: Annotated[float, Field(gt=0)] = Field(
        description="Seconds after which the workload and everything that it started is ended.",
        examples=[1800],
    )
    workload: Workload = Field(
        description="The program to run.",
    )


class DiscoverRequest(LaunchRequest):
    """Run a workload once and record which expressions of its checkout touch tensors."""


class Counterpart(ClosedModel):
    """The other side of a comparison: its workload and what was observed there."""

    workload: Workload = Field(
        description="The other side's workload.",
    )
    discovery: DiscoverResult = Field(description="The other side's discovery, unchanged.")


class PrepareRequest(ActionRequest):
    """Choose the callsites of a checkout from what a discovery observed."""

    workload: Workload = Field(
        description="The workload that will be traced; its checkout holds the sources.",
    )
    discovery: DiscoverResult = Field(
        description="Result of `discover` on the same checkout, unchanged."
    )
    counterpart: Counterpart | None = Field(
        default=None,
        description="The other side of the comparison that the plan is for. A statement that both "
        "checkouts hold gets the same callsites on both, whichever side they were observed on: "
        "without this, a call that ran on one side only could not be paired.",
    )
    depth: Literal["auto", "call", "aten"] = Field(
        default="auto",
        description="How deep calls are recorded. `call`: arguments and results. `aten`: the "
        "operators that run inside as well, with file and line. `auto`: `aten` for calls whose "
        "operators run in lines of a library, `call` for the others.",
        examples=["auto"],
    )


class TraceRequest(LaunchRequest):
    """Instrument a checkout as planned, run the workload, restore the checkout."""

    plan: PrepareResult = Field(description="Result of `prepare`, unchanged.")


class CompareRequest(ActionRequest):
    """Pair the calls of two captures and write the reports."""

    baseline: TraceResult = Field(
        description="Result of `trace` on the side taken as reference, unchanged."
    )
    candidate: TraceResult = Field(
        description="Result of `trace` on the side in question, unchanged."
    )
    ranks: RankList = Field(
        description="Ranks to compare; each must exist in all captures.", examples=[[0, 1]]
    )
    repeats: list[TraceResult] = Field(
        default=[],
        description="Results of further `trace` operations with the baseline's plan and workload, "
        "unchanged. What differs between these equal runs is listed apart as not repeatable.",
        examples=[[]],
    )
