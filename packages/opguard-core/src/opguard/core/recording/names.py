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
            known = self._ids[text] = self._intern(encodable(text))
        return known


def encodable(text: str) -> str:
    """``text`` with lone surrogates (of undecodable file names, say) spelled out.

    They have no UTF-8 form.
    """
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
