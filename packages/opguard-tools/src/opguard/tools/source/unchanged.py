"""Instrumented source without the statements that it shares with the original.

A statement whose lines are the same in both, and hold nothing else but a comment, is replaced by
``pass``; where only the header of a compound statement is the same, by the shortest header that
may be followed by the same clauses. What is left is parsed in less time, and shows as much. Where
a statement is parsed that begins on a stand-in's line, one begins in the whole text too, with the
same nesting and outside of brackets and strings. From there its own text decides what it is parsed
to. It ends where it ended in the original: nothing that goes on with it may follow the stand-in.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from opguard.tools.source.kinds import BLOCKS_OF
from opguard.tools.source.text import LineSet, first_line

_INDENTATION = " \t\f"
_HEADERS: dict[type[ast.AST], str] = {
    **dict.fromkeys((ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef), "with _:"),
    **dict.fromkeys((ast.With, ast.AsyncWith), "with _:"),
    **dict.fromkeys((ast.For, ast.AsyncFor, ast.While), "while _:"),
    ast.If: "if _:",
}


@dataclass(frozen=True, slots=True)
class Shortened:
    """A shortened text.

    Attributes:
        text: It, with as many lines as the whole.
        stand_ins: Line of the one for each statement of which something is left out.
    """

    text: str
    stand_ins: dict[ast.stmt, int]


def without_unchanged(tree: ast.Module, before: list[str], after: list[str]) -> Shortened:
    """Leave out what did not change.

    Args:
        tree: The original.
        before: Its lines, without their ends.
        after: As many lines of instrumented source.
    """
    pairs = enumerate(zip(before, after, strict=True), 1)
    changed = LineSet((number for number, (old, new) in pairs if old != new), len(after))
    lines = after.copy()
    stand_ins: dict[ast.stmt, int] = {}
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.stmt):
            first = first_line(node)
            found = _stand_in(node, first, changed, lines)
            if found is not None:
                last, stand_in = found
                indentation = _indentation(lines[first - 1])
                lines[first - 1 : last] = [indentation + stand_in, *[""] * (last - first)]
                stand_ins[node] = first
                if stand_in == "pass":
                    continue
        for name in BLOCKS_OF[type(node)]:
            pending += getattr(node, name)
    return Shortened("\n".join(lines), stand_ins)


def _stand_in(
    statement: ast.stmt, first: int, changed: LineSet, lines: list[str]
) -> tuple[int, str] | None:
    """Last of the lines to leave out, and what stands for them; None if they have to stay."""
    if not _begins(statement, lines[first - 1]):
        return None
    last: int = statement.end_lineno  # type: ignore[assignment]  # the parser sets it
    if not changed.between(first, last):
        rest = lines[last - 1].encode()[statement.end_col_offset :].lstrip(_INDENTATION.encode())
        return (last, "pass") if rest[:1] in (b"", b"#") else None
    header = _HEADERS.get(type(statement))
    if header is None:
        return None
    body: ast.stmt = statement.body[0]  # type: ignore[attr-defined]
    last = first_line(body) - 1
    if first > last or changed.between(first, last) or lines[last - 1].endswith("\\"):
        return None
    return (last, header) if _begins(body, lines[last]) else None


def _begins(statement: ast.stmt, line: str) -> bool:
    """Whether nothing stands before a statement on its first line.

    A decorator's ``@`` may stand above its expression, and an ``elif`` is parsed to an ``if``.
    """
    begin = len(_indentation(line))
    if getattr(statement, "decorator_list", None):
        return line.startswith("@", begin)
    return begin == statement.col_offset and not line.startswith("elif", begin)


def _indentation(line: str) -> str:
    return line[: len(line) - len(line.lstrip(_INDENTATION))]
