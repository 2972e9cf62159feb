"""Words that several reports share."""

from __future__ import annotations

from typing import Final

HEADLINES: Final = {
    "outputs_differ": "inputs equal, outputs differ",
    "unexplained_input": "an input differs, nothing recorded before explains it",
    "unpaired": "a call on one side only",
    "incompatible": "outputs cannot be set side by side",
}
"""One line per kind of origin."""
