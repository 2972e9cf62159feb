"""Short digests of text, equal in every process (unlike ``hash``)."""

from __future__ import annotations

import xorsig


def text_digest(text: str) -> str:
    """Sixteen hexadecimal digits over the UTF-8 bytes of ``text``, both fingerprint schemes."""
    data = text.encode("utf-8", "backslashreplace")
    return f"{xorsig.region_xor(data, 1)[0]:08x}{xorsig.region_mix(data, 1)[0]:08x}"
