"""Interned text: the capture stores every distinct string once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from xorsig import CaptureWriter


class Names:
    """Ids of strings in one capture, cached so that a repeated string costs one dict lookup."""

    def __init__(self, writer: CaptureWriter) -> None:
        self._intern = writer.intern
        self._ids: dict[str, int] = {}

    def id(self, text: str) -> int:
        """The id of ``text``, which the writer records when it is new."""
        known = self._ids.get(text)
        if known is None:
            # Lone surrogates (from undecodable file names, say) have no UTF-8 form.
            clean = text.encode("utf-8", "backslashreplace").decode("utf-8")
            known = self._ids[text] = self._intern(clean)
        return known
