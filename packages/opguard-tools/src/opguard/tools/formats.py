"""Names and versions of the files that operations leave in their output directories."""

from __future__ import annotations

from typing import Final, Literal

REQUEST_NAME: Final = "worker-request.json"
"""What every rank of a run reads; written before the launcher starts."""

RESULT_NAME: Final = "result.json"
"""The result of a trace that succeeded."""

INCOMPLETE_NAME: Final = "incomplete.json"
"""The same for a run that ended by itself without success; its ``ending`` says how."""

EMBEDDED_NAME: Final = "capture.json"
"""Identity of a capture that a program made of itself."""

CONFIGURATION_NAME: Final = "configuration.yaml"
PLAN_NAME: Final = "plan.json"

SOURCES_NAME: Final = "sources"
"""Folder with the originals of every planned file."""

CAPTURE_NAME: Final = "capture"
"""Folder of the published batches and receipts."""

ACTIVITY_REPORT_NAME: Final = "device-activity.json"
"""Device activity of every callsite, where some was collected."""

LOG_NAME: Final = "workload.log"
"""Everything that the workload and its children print."""

REPORTS_NAME: Final = "compare"
"""Folder of the reports in the output directory of ``diff``."""

PLAN_VERSION: Final[Literal[1]] = 1
CONFIGURATION_VERSION: Final[Literal[1]] = 1

ACTIVITY_SCHEMA: Final[dict[str, str | int]] = {"name": "opguard-device-activity", "version": 1}
"""Identity of the document in :data:`ACTIVITY_REPORT_NAME`."""

DIFF_SCHEMA: Final[dict[str, str | int]] = {"name": "opguard-diff", "version": 1}
"""Identity of the document that ``diff --json`` prints and ``summary.json`` holds."""
