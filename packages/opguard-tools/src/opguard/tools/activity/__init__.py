"""Device activity of Kineto traces, attributed to the callsites of a capture."""

from opguard.tools.activity.attribution import Activity, Attribution, CallRange, attribute
from opguard.tools.activity.figures import CallsiteFigures, Figures, callsite_figures
from opguard.tools.activity.kineto import KinetoError, Row, read_rows
from opguard.tools.activity.ranks import read_activity

__all__ = [
    "Activity",
    "Attribution",
    "CallRange",
    "CallsiteFigures",
    "Figures",
    "KinetoError",
    "Row",
    "attribute",
    "callsite_figures",
    "read_activity",
    "read_rows",
]
