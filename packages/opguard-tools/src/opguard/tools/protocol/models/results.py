"""Results of the actions that run no workload."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from opguard.tools.protocol.models.base import ClosedModel, Rank, RankList, Sha256, SystemPath
from opguard.tools.protocol.models.capture import Coverage

_DIGEST_EXAMPLE = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
Count = Annotated[int, Field(ge=0)]


class ExcludedFile(ClosedModel):
    """A file that was observed and will not be instrumented."""

    path: str = Field(
        description="The file: relative to the checkout, or absolute where it lies outside.",
        examples=["/usr/lib/python3.11/site-packages/lib/layer.py"],
    )
    reason: str = Field(
        description="Why it is left alone.", examples=["outside the checkout: installed library"]
    )


class PlannedFile(ClosedModel):
    """A source file that will be instrumented."""

    path: str = Field(description="Relative to the checkout.", examples=["model.py"])
    size: Count = Field(description="Length in bytes.", examples=[2048])
    sha256: Sha256 = Field(
        description="SHA-256 of the content that the plan was made from.",
        examples=[_DIGEST_EXAMPLE],
    )
    sites: Count = Field(description="Number of callsites chosen in the file.", examples=[12])


class PrepareResult(ClosedModel):
    """Result of `prepare`; it is the `plan` of a `trace` request.

    Source:
        Protocol requirements C1, C2, C3.
    """

    action: Literal["prepare"] = Field(
        default="prepare", description="The action that made this result.", examples=["prepare"]
    )
    plan: SystemPath = Field(
        description="The plan file, absolute.", examples=["/data/runs/a-prepare/plan.json"]
    )
    plan_sha256: Sha256 = Field(description="SHA-256 of the plan file.", examples=[_DIGEST_EXAMPLE])
    configuration: SystemPath = Field(
        description="The normalised YAML configuration, absolute.",
        examples=["/data/runs/a-prepare/configuration.yaml"],
    )
    configuration_sha256: Sha256 = Field(
        description="SHA-256 of the configuration file.", examples=[_DIGEST_EXAMPLE]
    )
    files: list[PlannedFile] = Field(
        description="The files that `trace` will instrument, in the plan's order."
    )
    sites: Count = Field(description="Number of callsites in the plan.", examples=[37])
    observed_sites: Count = Field(
        description="How many of them this side's discovery observed; the others were observed on "
        "the counterpart only.",
        examples=[36],
    )
    excluded: list[ExcludedFile] = Field(
        description="Observed files that stay as they are, each with the reason."
    )
    coverage: Coverage = Field(
        default="observed_callsites_only",
        description="What the plan covers: callsites seen in discovery.",
        examples=["observed_callsites_only"],
    )


class RelationCounts(ClosedModel):
    """How many pairs of calls stand in each relation."""

    equal: Count = Field(description="Pairs whose recorded values all agree.", examples=[4100])
    different: Count = Field(description="Pairs with at least one differing value.", examples=[12])
    incompatible: Count = Field(
        description="Pairs whose values cannot be set side by side (shape, dtype or layout).",
        examples=[0],
    )
    unpaired: Count = Field(description="Calls that exist on one side only.", examples=[2])
    incomplete: Count = Field(
        description="Pairs of which a side is missing its end or a fingerprint.", examples=[0]
    )


class RankReport(ClosedModel):
    """The report of one rank."""

    rank: Rank = Field(description="Global rank.", examples=[0])
    path: SystemPath = Field(
        description="Perfetto trace file of the rank, absolute.",
        examples=["/data/runs/compare/rank-0.perfetto-trace"],
    )
    sha256: Sha256 = Field(description="SHA-256 of that file.", examples=[_DIGEST_EXAMPLE])
    relations: RelationCounts = Field(
        description="Number of pairs per relation.",
    )


class CompareResult(ClosedModel):
    """Result of `compare`. It states what was observed and holds no verdict.

    Source:
        Protocol requirements E1, E2.
    """

    action: Literal["compare"] = Field(
        default="compare", description="The action that made this result.", examples=["compare"]
    )
    output: SystemPath = Field(
        description="The operation's output directory, absolute.", examples=["/data/runs/compare"]
    )
    reports: list[RankReport] = Field(
        description="One report per rank, in ascending order of rank."
    )
    report_html: SystemPath = Field(
        description="Self-contained page for people, absolute.",
        examples=["/data/runs/compare/report.html"],
    )
    summary_json: SystemPath = Field(
        description="Origins, pairs and counts as data, absolute.",
        examples=["/data/runs/compare/summary.json"],
    )
    ranks: RankList = Field(description="Ranks compared.", examples=[[0]])
    device_activity: dict[Literal["baseline", "candidate"], dict[str, str]] = Field(
        description="Whether each side collected device kernels and CUDA runtime calls, by the "
        "variable that switches them; the figures are in summary.json.",
        examples=[{"baseline": {"OPGUARD_CALLSITE_CUPTI": "off"}, "candidate": {}}],
    )
    coverage: Coverage = Field(
        default="observed_callsites_only",
        description="What was compared: callsites seen in discovery.",
        examples=["observed_callsites_only"],
    )
    verdict: Literal["not_evaluated"] = Field(
        default="not_evaluated",
        description="Always `not_evaluated`: a report is neither a proof of numerical equivalence "
        "nor a finding of a root cause.",
        examples=["not_evaluated"],
    )
