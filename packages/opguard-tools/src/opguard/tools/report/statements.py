"""The statement around an origin's expression, where it is not the same on both sides."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from opguard.tools.compare.capture import CaptureView
from opguard.tools.compare.origin import Origin
from opguard.tools.compare.records import Call, CallFlag, Side
from opguard.tools.report.excerpts import decode_source
from opguard.tools.source.text import one_line


def changed_statements(
    origin: Origin, baseline: CaptureView, candidate: CaptureView
) -> tuple[dict[str, Any], dict[str, Any]]:
    """``{"statement": text}`` per side for statements that differ; nothing where they do not.

    Calls recorded inside libraries have none: they are shown at the library's own line. Neither has
    an origin that is named at a statement.
    """
    texts = [
        "" if side in origin.silent else _statement(call, capture)
        for side, call, capture in (
            (Side.BASELINE, origin.baseline, baseline),
            (Side.CANDIDATE, origin.candidate, candidate),
        )
    ]
    if texts[0] == texts[1]:
        return {}, {}
    left, right = ({"statement": text} if text else {} for text in texts)
    return left, right


def _statement(call: Call | None, capture: CaptureView) -> str:
    if call is None or call.flags & CallFlag.OPERATOR:
        return ""
    site = capture.sites.get(call.site)
    content = None if site is None else capture.sources.get(site.file)
    if site is None or content is None:
        return ""
    text = statement_text(content, site.statement)
    return "" if text == site.text else text


def statement_text(content: bytes, position: tuple[int, int]) -> str:
    """Source of the statement at a line and column, on one line; empty if there is none."""
    return one_line(_statements(content).get(position, ""))


@lru_cache(maxsize=32)
def _statements(content: bytes) -> Mapping[tuple[int, int], str]:
    """Text of every statement by line and column; of a compound one, its header."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(content)
    except (SyntaxError, ValueError, RecursionError):
        return {}
    lines = [line.encode() for line in decode_source(content)]
    found: dict[tuple[int, int], str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt):
            begin = node.lineno, node.col_offset
            end = _end(node)
            parts = lines[begin[0] - 1 : end[0]]
            parts[-1] = parts[-1][: end[1]]
            parts[0] = parts[0][begin[1] :]
            found[begin] = b" ".join(parts).decode("utf-8", "replace")
    return found


def _end(node: ast.stmt) -> tuple[int, int]:
    """Line and column at which a statement ends; of a compound one, where its body begins."""
    inside = [*getattr(node, "body", ()), *getattr(node, "cases", ())]
    first = inside[0] if inside else None
    if isinstance(first, ast.match_case):
        first = first.pattern
    if isinstance(first, (ast.stmt, ast.pattern)):
        return first.lineno, first.col_offset
    return node.end_lineno or node.lineno, node.end_col_offset or node.col_offset
