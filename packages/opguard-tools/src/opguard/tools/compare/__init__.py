"""Comparison of two captures: pairing of calls, relations of slots, and origins."""

from opguard.tools.compare.capture import Callsite, CaptureView, RankTables
from opguard.tools.compare.circumstances import Circumstance, CircumstanceKind
from opguard.tools.compare.endings import EndKind, RankEnding
from opguard.tools.compare.engine import compare_captures, compare_rank
from opguard.tools.compare.errors import CaptureReadError, ReportExportError
from opguard.tools.compare.origin import Origin, OriginKind
from opguard.tools.compare.relations import Relation, RelationSource
from opguard.tools.compare.repeatability import compare_with_repeats
from opguard.tools.compare.results import (
    Comparison,
    RankComparison,
    Repeatability,
    UnrepeatableCallsite,
    UnrepeatableOrigin,
)
from opguard.tools.compare.silent import name_silent_statements

__all__ = [
    "Callsite",
    "CaptureReadError",
    "CaptureView",
    "Circumstance",
    "CircumstanceKind",
    "Comparison",
    "EndKind",
    "Origin",
    "OriginKind",
    "RankComparison",
    "RankEnding",
    "RankTables",
    "Relation",
    "RelationSource",
    "Repeatability",
    "ReportExportError",
    "UnrepeatableCallsite",
    "UnrepeatableOrigin",
    "compare_captures",
    "compare_rank",
    "compare_with_repeats",
    "name_silent_statements",
]
