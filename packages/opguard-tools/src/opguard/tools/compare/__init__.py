"""Comparison of two captures: pairing of calls, relations of slots, and origins."""

from opguard.tools.compare.capture import Callsite, CaptureView, RankTables
from opguard.tools.compare.engine import (
    Comparison,
    RankComparison,
    compare_captures,
    compare_rank,
)
from opguard.tools.compare.errors import CaptureReadError, ReportExportError
from opguard.tools.compare.origins import Origin, OriginKind
from opguard.tools.compare.relations import Relation, RelationSource

__all__ = [
    "Callsite",
    "CaptureReadError",
    "CaptureView",
    "Comparison",
    "Origin",
    "OriginKind",
    "RankComparison",
    "RankTables",
    "Relation",
    "RelationSource",
    "ReportExportError",
    "compare_captures",
    "compare_rank",
]
