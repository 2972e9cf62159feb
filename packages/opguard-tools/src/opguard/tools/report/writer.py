"""Writes all report files of a comparison."""

from __future__ import annotations

import json
from pathlib import Path

from opguard.tools.compare.errors import ReportExportError
from opguard.tools.compare.results import Comparison
from opguard.tools.digests import sha256_file
from opguard.tools.report.document import document
from opguard.tools.report.files import RankReportFile, Reports
from opguard.tools.report.html import render_html
from opguard.tools.report.perfetto import write_rank_trace


def write_reports(comparison: Comparison, output: Path) -> Reports:
    """Write one Perfetto trace per rank, ``report.html`` and ``summary.json``.

    Args:
        comparison: The comparison.
        output: Existing folder that receives the files.

    Raises:
        ReportExportError: A file could not be written; one failed export fails all.

    Source: protocol E1, E2.
    """
    ranks: list[RankReportFile] = []
    for rank in comparison.ranks:
        path = output / f"rank-{rank.rank}.perfetto-trace"
        try:
            write_rank_trace(comparison, rank, path)
            ranks.append(RankReportFile(rank.rank, path, sha256_file(path)))
        except (OSError, ValueError) as error:
            raise ReportExportError(
                f"cannot write the report of rank {rank.rank} to {path}: {error}; free space or "
                "choose another output folder and compare again",
                rank=rank.rank,
                path=str(path),
            ) from error
    reports = Reports(ranks, output / "report.html", output / "summary.json")
    data = document(comparison, reports)
    _write(reports.summary, json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    _write(reports.html, render_html(comparison, data))
    return reports


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8", errors="backslashreplace", newline="\n")
    except OSError as error:
        raise ReportExportError(
            f"cannot write {path}: {error}; free space or choose another output folder and "
            "compare again",
            path=str(path),
        ) from error
