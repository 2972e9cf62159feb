from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from opguard.tools.compare import Comparison, ReportExportError
from opguard.tools.report import document, write_reports


@pytest.mark.requirement("E1", "E2")
def test_one_trace_per_rank_a_page_and_the_document_are_written(
    differing: Comparison, tmp_path: Path
) -> None:
    reports = write_reports(differing, tmp_path)

    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "rank-0.perfetto-trace",
        "rank-1.perfetto-trace",
        "report.html",
        "summary.json",
    ]
    assert [report.rank for report in reports.ranks] == [0, 1]
    for report in reports.ranks:
        assert report.sha256 == hashlib.sha256(report.path.read_bytes()).hexdigest()
    assert json.loads(reports.summary.read_text("utf-8")) == document(differing, reports)


def test_same_comparison_gives_the_same_files(differing: Comparison, tmp_path: Path) -> None:
    written = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        reports = write_reports(differing, tmp_path / name)
        written.append([report.sha256 for report in reports.ranks])

    assert written[0] == written[1]


@pytest.mark.requirement("E1")
@pytest.mark.parametrize("name", ["rank-1.perfetto-trace", "report.html", "summary.json"])
def test_one_failed_export_fails_the_operation_and_is_named(
    differing: Comparison, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).mkdir()

    with pytest.raises(ReportExportError) as caught:
        write_reports(differing, tmp_path)

    assert caught.value.details["path"] == str(tmp_path / name)
