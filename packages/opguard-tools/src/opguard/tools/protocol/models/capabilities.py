"""Result of `capabilities`: what this installation can do and what it cannot."""

from __future__ import annotations

from pydantic import Field

from opguard.tools.protocol.models.base import ClosedModel


class Availability(ClosedModel):
    """Whether something works here, and if not, why not."""

    available: bool = Field(description="True when it can be used here.", examples=[True])
    reason: str | None = Field(
        description="What is missing and what to do about it; null when available.",
        examples=["the package torch is not installed in this environment"],
    )


class AbsentFeature(ClosedModel):
    """Something that a caller might look for and will not find."""

    name: str = Field(description="Stable identifier.", examples=["rank_remapping"])
    description: str = Field(
        description="What is not offered.", examples=["Pairing rank i with another rank j."]
    )


class CapabilitiesResult(ClosedModel):
    """Versions, formats, actions, and what is absent.

    Source:
        Protocol requirements A1, E4.
    """

    protocol_versions: list[int] = Field(
        description="Protocol versions that a request may carry.", examples=[[1]]
    )
    actions: list[str] = Field(
        description="Actions that can be called.", examples=[["capabilities", "compare"]]
    )
    commands: list[str] = Field(
        description="Commands for people, outside the protocol.", examples=[["diff", "schema"]]
    )
    versions: dict[str, str | None] = Field(
        description="Versions of Python and of the packages found here; null where a package is "
        "not installed.",
        examples=[{"opguard-tools": "0.1.0", "torch": None}],
    )
    formats: dict[str, int | None] = Field(
        description="Version number of each format read and written here; null where the package "
        "that holds it is not installed.",
        examples=[{"capture": 1, "plan": 1, "diff_document": 1}],
    )
    fingerprint_schemes: list[str] = Field(
        description="Fingerprint schemes that captures carry.",
        examples=[["flat-u32-le-v1", "flat-u32-mix-v1"]],
    )
    capture: Availability = Field(
        description="Whether `discover` and `trace` can run a workload with the interpreter of "
        "this program. Another interpreter in `launcher` may differ.",
    )
    analysis: Availability = Field(
        description="Whether `prepare` and `compare` can run here.",
    )
    absent: list[AbsentFeature] = Field(description="Features that this version does not have.")
