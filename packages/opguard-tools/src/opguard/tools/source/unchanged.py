"""Instrumented source without the statements that it shares with the original.

A statement whose lines are the same in both, and hold nothing else but a comment, is replaced by
``pass``. What is left is parsed in half the time, and shows as much: where a ``pass`` is parsed
that begins at the same place, a statement begins in the whole text too, with the same nesting and
outside of brackets and strings. From there its own text decides what it is parsed to. It ends
where it ended in the original, because nothing that goes on with a statement may follow ``pass``.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

from opguard.tools.source.kinds import BLOCKS_OF, STATEMENTS
from opguard.tools.source.text import LineSet, first_line

_INDENTATION = " \t\f"


@dataclass(frozen=True, slots=True)
class Shortened:
    """A shortened text.

    Attributes:
        text: It, with as many lines as the whole.
        places: Line and column of the ``pass`` that stands for each statement left out.
    """

    text: str
    places: dict[ast.stmt, tuple[int, int]]


def without_unchanged(tree: ast.Module, before: list[str], after: list[str]) -> Shortened:
    """Leave out what did not change.

    Args:
        tree: The original.
        before: Its lines, without their ends.
        after: As many lines of instrumented source.
    """
    pairs = zip(before, after, strict=True)
    changed = LineSet((number for number, (old, new) in enumerate(pairs, 1) if old != new), len(after))
    lines = after.copy()
    places: dict[ast.stmt, tuple[int, int]] = {}
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        for name in BLOCKS_OF[type(node)]:
            for inner in getattr(node, name):
                if type(inner) in STATEMENTS and not changed.touches(inner):
                    first, last = first_line(inner), inner.end_lineno
                    indentation = _indentation(inner, lines[first - 1], lines[last - 1])
                    if indentation is not None:
                        lines[first - 1 : last] = [indentation + "pass", *[""] * (last - first)]
                        places[inner] = (first, len(indentation))
                        continue
                pending.append(inner)
    return Shortened("\n".join(lines), places)


def _indentation(statement: ast.stmt, first: str, last: str) -> str | None:
    """What stands before a statement on its first line; None if it shares its lines."""
    begin = len(first) - len(first.lstrip(_INDENTATION))
    if getattr(statement, "decorator_list", None):
        begins = first.startswith("@", begin)  # which may stand above its expression
    else:
        begins = begin == statement.col_offset and not first.startswith("elif", begin)
    end: int = statement.end_col_offset  # type: ignore[assignment]  # the parser sets it
    rest = last.encode()[end:].lstrip(_INDENTATION.encode())
    return first[:begin] if begins and rest[:1] in (b"", b"#") else None
