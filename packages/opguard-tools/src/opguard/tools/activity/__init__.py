"""Device activity of Kineto traces, attributed to the callsites of a capture."""

from opguard.tools.activity.attribution import Activity, Attribution, CallRange, attribute
from opguard.tools.activity.kineto import KinetoError, Row, read_rows

__all__ = [
    "Activity",
    "Attribution",
    "CallRange",
    "KinetoError",
    "Row",
    "attribute",
    "read_rows",
]
