"""Reports of a comparison: data, page, Perfetto traces and text."""

from opguard.tools.report.document import document
from opguard.tools.report.files import RankReportFile, Reports
from opguard.tools.report.text import render_text
from opguard.tools.report.writer import write_reports

__all__ = ["RankReportFile", "Reports", "document", "render_text", "write_reports"]
