"""Requests and results of the automation protocol, as closed pydantic models.

The models are the single definition: JSON Schemas, validation messages and the functions offered
to other programs are made from them.
"""

from opguard.tools.protocol.models.activity import ActivityFigures, RankActivity
from opguard.tools.protocol.models.base import (
    PROTOCOL_VERSION,
    SUPPORTED_PROTOCOL_VERSIONS,
    ClosedModel,
    stable_view,
)
from opguard.tools.protocol.models.capabilities import (
    AbsentFeature,
    Availability,
    CapabilitiesResult,
)
from opguard.tools.protocol.models.capture import (
    CaptureResult,
    DeterminismPolicy,
    DiscoverResult,
    Ending,
    FingerprintLayout,
    RankCapture,
    TraceResult,
)
from opguard.tools.protocol.models.requests import (
    ActionRequest,
    CompareRequest,
    Counterpart,
    DiscoverRequest,
    LaunchRequest,
    PrepareRequest,
    TraceRequest,
)
from opguard.tools.protocol.models.results import (
    CompareResult,
    ExcludedFile,
    PlannedFile,
    PrepareResult,
    RankReport,
    RelationCounts,
)
from opguard.tools.protocol.models.workload import Workload

__all__ = [
    "PROTOCOL_VERSION",
    "SUPPORTED_PROTOCOL_VERSIONS",
    "AbsentFeature",
    "ActionRequest",
    "ActivityFigures",
    "Availability",
    "CapabilitiesResult",
    "CaptureResult",
    "ClosedModel",
    "CompareRequest",
    "CompareResult",
    "Counterpart",
    "DeterminismPolicy",
    "DiscoverRequest",
    "DiscoverResult",
    "Ending",
    "ExcludedFile",
    "FingerprintLayout",
    "LaunchRequest",
    "PlannedFile",
    "PrepareRequest",
    "PrepareResult",
    "RankActivity",
    "RankCapture",
    "RankReport",
    "RelationCounts",
    "TraceRequest",
    "TraceResult",
    "Workload",
    "stable_view",
]
