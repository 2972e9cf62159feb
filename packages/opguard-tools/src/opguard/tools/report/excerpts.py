"""Source around an origin: excerpts of both sides, and the source diff between them."""

from __future__ import annotations

import difflib
import io
import tokenize
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CONTEXT_LINES = 6
"""Lines shown above and below the call."""

MAX_CALL_LINES = 30
"""Lines of a call that are shown; a longer one is cut."""

MAX_DIFF_LINES = 120
"""Lines of source diff shown around an origin."""

MAX_DIFFED_LINES = 20_000
"""Files longer than this are not diffed: difflib's time grows faster than their length."""


@dataclass(frozen=True, slots=True)
class ExcerptLine:
    """One line of source; ``marked`` where the call lies."""

    number: int
    text: str
    marked: bool


@dataclass(frozen=True, slots=True)
class DiffLine:
    """One line of a unified diff; ``kind`` is hunk, added, removed or context."""

    kind: str
    text: str


def decode_source(source: bytes) -> list[str]:
    """Lines of a source file, in the encoding it declares, split where Python splits them."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
        text = source.decode(encoding, "replace")
    except (SyntaxError, LookupError):
        text = source.decode("utf-8", "replace")
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n").split("\n")


def excerpt(sources: Mapping[str, bytes], location: Mapping[str, Any] | None) -> list[ExcerptLine]:
    """The call's lines with context; empty when its source is not part of the capture."""
    place = _readable(location, sources)
    source = sources.get(place["file"]) if place else None
    if place is None or source is None:
        return []
    lines = decode_source(source)
    first, last = place["line"], min(place["end_line"], place["line"] + MAX_CALL_LINES - 1)
    begin, end = max(1, first - CONTEXT_LINES), min(len(lines), last + CONTEXT_LINES)
    return [
        ExcerptLine(number, lines[number - 1], first <= number <= last)
        for number in range(begin, end + 1)
    ]


def excerpt_without_call(
    sources: Mapping[str, bytes], other_sources: Mapping[str, bytes], other: Mapping[str, Any]
) -> list[ExcerptLine]:
    """Where a call of the other side only would be, in the file of the same path; none marked."""
    place = _readable(other, other_sources)
    if place is None or place["file"] not in sources or place["file"] not in other_sources:
        return []
    lines = decode_source(sources[place["file"]])
    other_lines = decode_source(other_sources[place["file"]])
    if max(len(lines), len(other_lines)) > MAX_DIFFED_LINES:
        return []
    matcher = difflib.SequenceMatcher(None, other_lines, lines)
    index = place["line"] - 1
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if i1 <= index < i2:
            nearest = j1 + (index - i1 if tag == "equal" else 0)
            begin = max(1, nearest + 1 - CONTEXT_LINES)
            end = min(len(lines), max(nearest, j2 if tag == "replace" else 0) + CONTEXT_LINES)
            return [ExcerptLine(n, lines[n - 1], False) for n in range(begin, end + 1)]
    return []


def source_diff(
    baseline_sources: Mapping[str, bytes],
    candidate_sources: Mapping[str, bytes],
    origin: Mapping[str, Any],
) -> list[DiffLine]:
    """Unified diff of the files an origin names, the hunks nearest to it first to be kept.

    A call on one side only is diffed against the file of the same path on the other side.
    """
    left = _readable(origin["baseline"], baseline_sources)
    right = _readable(origin["candidate"], candidate_sources)
    known = left or right
    if known is None:
        return []
    left_file = (left or known)["file"]
    right_file = (right or known)["file"]
    before = decode_source(baseline_sources.get(left_file, b""))
    after = decode_source(candidate_sources.get(right_file, b""))
    if before == after or max(len(before), len(after)) > MAX_DIFFED_LINES:
        return []
    hunks = _hunks(before, after)
    target = known["line"]
    offset = 0 if left else 1
    nearest = sorted(hunks, key=lambda hunk: abs(hunk.begin[offset] - target))
    kept: set[int] = set()
    total = 0
    for hunk in nearest:
        if kept and total + len(hunk.lines) > MAX_DIFF_LINES:
            break
        kept.add(hunk.index)
        total += len(hunk.lines)
    return [line for hunk in hunks if hunk.index in kept for line in hunk.lines[:MAX_DIFF_LINES]]


@dataclass(frozen=True, slots=True)
class _Hunk:
    index: int
    begin: tuple[int, int]
    lines: list[DiffLine]


def _hunks(before: Sequence[str], after: Sequence[str]) -> list[_Hunk]:
    """Changed blocks with three lines of context, each headed by its line numbers."""
    hunks: list[_Hunk] = []
    matcher = difflib.SequenceMatcher(None, before, after)
    for index, group in enumerate(matcher.get_grouped_opcodes(3)):
        begin = (group[0][1] + 1, group[0][3] + 1)
        lines = [DiffLine("hunk", f"@@ baseline line {begin[0]} · candidate line {begin[1]} @@")]
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                lines += [DiffLine("context", text) for text in before[i1:i2]]
            else:
                lines += [DiffLine("removed", text) for text in before[i1:i2]]
                lines += [DiffLine("added", text) for text in after[j1:j2]]
        hunks.append(_Hunk(index, begin, lines))
    return hunks


def _readable(
    location: Mapping[str, Any] | None, sources: Mapping[str, bytes]
) -> Mapping[str, Any] | None:
    """The place under the name that ``sources`` has its file by.

    Of an operator whose library's file is not there, the callsite that led to it.
    """
    if location is None:
        return None
    if location.get("library"):
        if location["name"] in sources:
            return {**location, "file": location["name"]}
        callsite: Mapping[str, Any] | None = location.get("callsite")
        return callsite
    return location if location["file"] else None
