"""Interleaved measurements against named peers.

An area module (``areas/NAME.py``) says what is compared; this package measures and reports it.
"""

from harness.model import Area, Claim, Figure, Group, Outcome, Settings, Subject

__all__ = ["Area", "Claim", "Figure", "Group", "Outcome", "Settings", "Subject"]
