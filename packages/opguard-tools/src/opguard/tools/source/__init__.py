"""Source selection, alignment and instrumentation.

``read_observations`` gives what discovery saw, ``select_sites`` the callsites to record,
``configuration_text`` and ``build_plan`` write them down, ``instrument`` puts them into a file,
and ``align_sources`` relates the statements of two versions.
"""

from opguard.tools.source.align import Alignment, StatementKey, align_sources
from opguard.tools.source.configuration import (
    Configuration,
    configuration_text,
    parse_configuration,
)
from opguard.tools.source.errors import (
    ConfigurationError,
    InvalidPlanError,
    NothingToInstrumentError,
    RewriteError,
    UnusableSourceError,
)
from opguard.tools.source.observe import ObservedSpan, SpanFlag, read_observations
from opguard.tools.source.plan import (
    Excluded,
    Plan,
    PlanFile,
    Site,
    build_plan,
    load_plan,
)
from opguard.tools.source.rewrite import instrument
from opguard.tools.source.select import ObservedSummary, Peer, Selection, select_sites

__all__ = [
    "Alignment",
    "Configuration",
    "ConfigurationError",
    "Excluded",
    "InvalidPlanError",
    "NothingToInstrumentError",
    "ObservedSpan",
    "ObservedSummary",
    "Peer",
    "Plan",
    "PlanFile",
    "RewriteError",
    "Selection",
    "Site",
    "SpanFlag",
    "StatementKey",
    "UnusableSourceError",
    "align_sources",
    "build_plan",
    "configuration_text",
    "instrument",
    "load_plan",
    "parse_configuration",
    "read_observations",
    "select_sites",
]
