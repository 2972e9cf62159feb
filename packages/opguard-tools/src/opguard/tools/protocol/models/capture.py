"""Results of the two actions that run a workload: what was captured, per rank."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from opguard.tools.protocol.models.activity import RankActivity
from opguard.tools.protocol.models.base import (
    VARIES,
    CaptureId,
    ClosedModel,
    Rank,
    RankList,
    Sha256,
    SystemPath,
)

Coverage = Literal["observed_callsites_only"]
ExitKind = Literal["returned", "system_exit", "exception", "os_exit"]


class RankCapture(ClosedModel):
    """What one rank left behind, as its receipt states and as was verified.

    Source:
        Protocol requirements B5, B6.
    """

    rank: Rank = Field(description="Global rank.", examples=[0])
    rank_source: str = Field(
        description="Environment variable that the rank was read from; `default` where none was "
        "set and the rank is 0.",
        examples=["RANK"],
    )
    world_size: int = Field(
        ge=1, description="Number of ranks that the launcher announced.", examples=[2]
    )
    batches: int = Field(
        ge=1,
        description="Number of batch files published and verified.",
        examples=[3],
        json_schema_extra=VARIES,
    )
    records: int = Field(
        ge=1,
        description="Number of records in those batches.",
        examples=[41812],
    )
    exit_status: int = Field(description="Exit status of the rank's process.", examples=[0])
    exit_kind: ExitKind = Field(
        description="How the script ended: it returned, raised SystemExit, raised another "
        "exception, or left through os._exit.",
        examples=["returned"],
    )
    host: str = Field(
        description="Host name of the node that ran the rank.",
        examples=["node-03"],
        json_schema_extra=VARIES,
    )
    pid: int = Field(
        ge=1,
        description="Process id of the rank on its host.",
        examples=[4711],
        json_schema_extra=VARIES,
    )


class DeterminismPolicy(ClosedModel):
    """Whether the opt-in determinism policy was on, and the settings in force.

    Source:
        Protocol requirement B10.
    """

    requested: bool = Field(
        description="True when the request's `workload.env` holds OPGUARD_DETERMINISTIC=1.",
        examples=[False],
    )
    settings: dict[str, str | bool | int | None] = Field(
        description="Each setting that the policy governs, with the value in force at the end of "
        "the run; null where it was not set.",
        examples=[{"cudnn.benchmark": False, "CUBLAS_WORKSPACE_CONFIG": None}],
    )


class FingerprintLayout(ClosedModel):
    """How the tensors of a capture were fingerprinted."""

    schemes: list[str] = Field(
        description="Identifiers of the fingerprint schemes recorded for every tensor.",
        examples=[["flat-u32-le-v1", "flat-u32-mix-v1"]],
    )
    regions: Annotated[int, Field(ge=1, le=64)] = Field(
        description="Number of contiguous byte regions per tensor, each with a value of its own.",
        examples=[4],
    )


class RecordedSelection(ClosedModel):
    """What of a run was recorded, where the `OPGUARD_SELECT_*` variables limited it."""

    steps: str | None = Field(
        default=None,
        description="Numbers and ranges of steps; null for all. A step's number is the number of "
        "steps completed before it.",
        examples=["0-3,10"],
    )
    phases: list[str] | None = Field(
        default=None,
        description="Phases out of forward, backward and optimizer; null for all.",
        examples=[["forward"]],
    )
    callsites: list[str] = Field(
        default=[],
        description="Patterns FILE[:FUNCTION[:CALLEE]] of callsites; empty for all.",
        examples=[["model.py:Attention.*"]],
    )
    levels: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="How deep recorded calls were nested at most, the outermost being 1; null "
        "for the tracer's own limit.",
        examples=[3],
    )


class Ending(ClosedModel):
    """How a run ended that did not succeed, and left something to look at all the same."""

    error_type: str = Field(
        description="Identifier of the error that the action reported.", examples=["script_raised"]
    )
    message: str = Field(
        description="What the error said, without the log's last lines.",
        examples=["the script raised in rank 0: ValueError: bad value (train.py:12)"],
    )
    launcher_status: int = Field(
        description="Exit status of the launcher; minus the signal's number if one ended it.",
        examples=[1],
    )


class CaptureResult(ClosedModel):
    """Fields common to the results of `discover` and `trace`."""

    output: SystemPath = Field(
        description="The operation's output directory, absolute.", examples=["/data/runs/a-trace"]
    )
    capture: SystemPath = Field(
        description="Directory of the published batches and receipts, absolute.",
        examples=["/data/runs/a-trace/capture"],
    )
    capture_id: CaptureId = Field(
        description="Identity of the capture.",
        examples=["0f8fad5bd9cb469fa16570867728950e"],
        json_schema_extra=VARIES,
    )
    checkout: SystemPath = Field(
        description="The workload's `cwd` with symbolic links resolved.",
        examples=["/home/me/model-a"],
    )
    log: SystemPath = Field(
        description="File with everything that the workload and its children printed, absolute.",
        examples=["/data/runs/a-trace/workload.log"],
    )
    ranks: RankList = Field(description="Global ranks captured.", examples=[[0]])
    captured: list[RankCapture] = Field(
        description="One entry per rank that left a receipt, in ascending order of rank."
    )
    fingerprint: FingerprintLayout = Field(
        description="Fingerprint schemes and layout of every rank.",
    )
    determinism: DeterminismPolicy = Field(
        description="The determinism policy in force.",
    )
    observer_effects: list[str] = Field(
        description="Ways in which observing may have influenced the workload, in words; empty "
        "when there is none to state.",
        examples=[["a dispatch mode was active in discovery"]],
    )
    versions: dict[str, str] = Field(
        description="Versions of Python and of the packages in the workload's process.",
        examples=[{"python": "3.11.7", "torch": "2.13.0"}],
    )
    coverage: Coverage = Field(
        default="observed_callsites_only",
        description="What the capture covers: callsites seen in discovery, never a claim that "
        "every step or callsite was seen.",
        examples=["observed_callsites_only"],
    )
    started_at: str = Field(
        description="Start of the operation, UTC, ISO 8601.",
        examples=["2026-03-01T12:00:00Z"],
        json_schema_extra=VARIES,
    )
    elapsed_seconds: Annotated[float, Field(ge=0)] = Field(
        description="Duration of the operation in seconds.",
        examples=[12.5],
        json_schema_extra=VARIES,
    )
    ending: Ending | None = Field(
        default=None,
        description="Null in every result that an action prints. Where a workload ended by itself "
        "without success, the action reports an error and leaves this document as "
        "`incomplete.json` in its output directory, with the ending in this field and the ranks "
        "that recorded something in `ranks`. `prepare` takes such a discovery; `compare` refuses "
        "such a trace.",
    )


class DiscoverResult(CaptureResult):
    """Result of `discover`; it is the `discovery` of a `prepare` request."""

    action: Literal["discover"] = Field(
        default="discover", description="The action that made this result.", examples=["discover"]
    )


class TraceResult(CaptureResult):
    """Result of `trace`; it is the `baseline` or `candidate` of a `compare` request."""

    action: Literal["trace"] = Field(
        default="trace", description="The action that made this result.", examples=["trace"]
    )
    plan: SystemPath = Field(
        description="The plan that was executed, a copy in the output directory, absolute.",
        examples=["/data/runs/a-trace/plan.json"],
    )
    plan_sha256: Sha256 = Field(
        description="SHA-256 of the plan file.",
        examples=["9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"],
    )
    selection: RecordedSelection | None = Field(
        default=None,
        description="What the recording was limited to; null when it was not.",
        examples=[None],
    )
    device_activity: dict[str, str] = Field(
        default={},
        description="Whether device kernels and CUDA runtime calls were collected, by the variable "
        "that switches them: collected, off, or why they are unavailable.",
        examples=[{"OPGUARD_CALLSITE_CUPTI": "off"}],
    )
    activity: list[RankActivity] = Field(
        default=[],
        description="What was collected, for every rank that collected something.",
        json_schema_extra=VARIES,
    )
    activity_report: SystemPath | None = Field(
        default=None,
        description="File with the same for every callsite, absolute; null where nothing was "
        "collected.",
        examples=["/data/runs/a-trace/device-activity.json"],
    )
    instrumented_files: list[str] = Field(
        description="Source files that were instrumented and restored, relative to the checkout, "
        "in the plan's order.",
        examples=[["model.py", "train.py"]],
    )
