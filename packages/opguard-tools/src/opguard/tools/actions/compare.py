"""``compare``: pair the calls of two successful traces and write the reports."""

from __future__ import annotations

import os
from pathlib import Path

from opguard.tools.actions.comparing import CaptureSource, compare_sources
from opguard.tools.launch.paths import check_paths
from opguard.tools.protocol.errors import ArtifactMismatchError
from opguard.tools.protocol.models import (
    CompareRequest,
    CompareResult,
    RankReport,
    RelationCounts,
    TraceResult,
)


def run(request: CompareRequest) -> CompareResult:
    """Compare two captures. No checkout is read.

    Raises:
        OutputExistsError: The output directory is not fresh.
        ArtifactMismatchError: A trace did not succeed, or its output is gone.
        CaptureReadError: A requested rank is missing in a capture.
        UnequalRepeatError: A repeat is no equal run of the baseline.
        ReportExportError: A report could not be written.

    Source:
        Protocol requirements E1, E2.
    """
    paths = check_paths(request.output)
    _check_usable("baseline", request.baseline)
    _check_usable("candidate", request.candidate)
    for index, repeat in enumerate(request.repeats):
        _check_usable(f"repeats[{index}]", repeat)
    compared = compare_sources(
        CaptureSource.of_result(request.baseline),
        CaptureSource.of_result(request.candidate),
        output=paths.output,
        ranks=request.ranks,
        repeats=[CaptureSource.of_result(repeat) for repeat in request.repeats],
    )
    relations = {
        rank.rank: {str(relation): count for relation, count in rank.relations().items()}
        for rank in compared.comparison.ranks
    }
    return CompareResult(
        output=str(paths.output),
        reports=[
            RankReport(
                rank=report.rank,
                path=str(report.path),
                sha256=report.sha256,
                relations=RelationCounts(
                    **{
                        name: relations[report.rank].get(name, 0)
                        for name in RelationCounts.model_fields
                    }
                ),
            )
            for report in compared.reports.ranks
        ],
        report_html=str(compared.reports.html),
        summary_json=str(compared.reports.summary),
        ranks=request.ranks,
        device_activity={
            "baseline": request.baseline.device_activity,
            "candidate": request.candidate.device_activity,
        },
    )


def _check_usable(field: str, side: TraceResult) -> None:
    if side.ending is not None:
        raise ArtifactMismatchError(
            f"{field}: this trace did not succeed ({side.ending.message}); `compare` takes "
            "successful traces only. Compare what was recorded with `opguard-tools diff "
            "--captures BASELINE CANDIDATE --partial`",
            field=field,
        )
    for path in (side.capture, side.plan):
        if not os.path.exists(path):
            raise ArtifactMismatchError(
                f"{field}: {path} is gone; pass the result of a trace whose output directory "
                "still exists",
                path=Path(path),
            )
