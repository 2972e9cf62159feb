r"""Decoded source text with the positions that ``ast`` uses.

``ast`` counts lines by ``\n``, ``\r\n`` and ``\r`` only, and columns in bytes of the UTF-8 form
of the decoded line, whatever the file's encoding. Everything here follows that, so a position of
a node becomes an offset into the decoded text, and the text goes back to the file's own bytes.
"""

from __future__ import annotations

import ast
import bisect
import codecs
import gc
import itertools
import re
import tokenize
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from opguard.tools.source.errors import UnusableSourceError

Span = tuple[int, int, int, int]
"""``(line, end_line, col, end_col)``: lines from 1, columns in UTF-8 bytes."""

MAX_SHOWN_CHARACTERS = 120
"""Characters of source that a callsite or a report shows."""

_LINE_END = re.compile(r"\r\n|\n|\r")
_BYTE_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\n|\r|$)")


@dataclass(frozen=True, slots=True)
class SourceText:
    """A source file's text, without its byte order mark.

    Attributes:
        text: Decoded text; line ends as in the file.
        encoding: Codec name from the byte order mark or the coding comment, else UTF-8.
        byte_order_mark: The UTF-8 mark that the file began with, or nothing.
        line_starts: Offset of each line's first character, and of the end as last entry.
    """

    text: str
    encoding: str
    byte_order_mark: bytes
    line_starts: tuple[int, ...]

    @classmethod
    def decode(cls, source: bytes) -> SourceText:
        """Decode a file as Python itself would.

        Raises:
            UnusableSourceError: Unknown encoding, bytes that it does not allow, or an encoding
                that does not give the same bytes back.

        Source:
            PEP 263.
        """
        mark = codecs.BOM_UTF8 if source.startswith(codecs.BOM_UTF8) else b""
        lines = _byte_lines(source)
        try:
            encoding = tokenize.detect_encoding(lambda: next(lines, b""))[0]
        except SyntaxError as error:
            raise _unusable(f"encoding: {error}") from error
        if encoding == "utf-8-sig":
            encoding = "utf-8"
        body = source[len(mark) :]
        try:
            text = body.decode(encoding)
            unchanged = text.encode(encoding) == body
        except (UnicodeError, LookupError) as error:
            raise _unusable(f"not valid {encoding}: {error}") from error
        if not unchanged:
            raise _unusable(f"encoding {encoding} does not give the same bytes back")
        return cls(text, encoding, mark, _line_starts(text))

    @property
    def line_count(self) -> int:
        """Number of lines, the last one included even when it is empty."""
        return len(self.line_starts) - 1

    def line(self, number: int) -> str:
        """Line ``number`` (from 1) with its line end."""
        return self.text[self.line_starts[number - 1] : self.line_starts[number]]

    def lines(self) -> list[str]:
        """All lines without their line ends."""
        return _LINE_END.split(self.text) if "\r" in self.text else self.text.split("\n")

    def lines_with(self, words: Iterable[str]) -> LineSet:
        """Lines that hold one of these words, be it within a longer one."""
        found: list[int] = []
        for word in words:
            at = self.text.find(word)
            while at >= 0:
                found.append(bisect.bisect(self.line_starts, at))
                at = self.text.find(word, at + 1)
        return LineSet(found, self.line_count)

    def offset(self, line: int, col: int) -> int:
        """Offset into the text of a position of ``ast``.

        Args:
            line: From 1.
            col: UTF-8 bytes from the start of the line.
        """
        start = self.line_starts[line - 1]
        if self.text[start : start + col].isascii():
            return start + col
        return start + len(self.line(line).encode()[:col].decode())

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Offsets of a node's first character and of the one after its last."""
        end_line, end_col = node.end_lineno, node.end_col_offset
        assert end_line is not None  # the parser sets both
        assert end_col is not None
        return self.offset(node.lineno, node.col_offset), self.offset(end_line, end_col)

    def encode(self, text: str) -> bytes:
        """Bytes of a changed text, in this file's encoding and with its byte order mark.

        Raises:
            UnicodeEncodeError: The text has characters that the encoding lacks.
        """
        return self.byte_order_mark + text.encode(self.encoding)


def parse(text: str) -> ast.Module:
    """Parse decoded text without showing the warnings that belong to its author.

    Raises:
        UnusableSourceError: It is not Python, or too deeply nested for the parser.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text)
        except SyntaxError as error:
            raise _unusable(f"syntax error, line {error.lineno}: {error.msg}") from error
        except ValueError as error:
            raise _unusable(f"not Python source: {error}") from error
        except (RecursionError, MemoryError) as error:
            raise _unusable("nested too deeply for the parser") from error


class LineSet:
    """Some lines of a file, asked for by range.

    Args:
        lines: Numbers from 1.
        count: Number of lines of the file.
    """

    def __init__(self, lines: Iterable[int], count: int) -> None:
        held = bytearray(count + 2)
        for line in lines:
            held[line] = 1
        self._before = list(itertools.accumulate(held))

    def touches(self, statement: ast.stmt) -> bool:
        """Whether one of the lines is among a statement's, its decorators' included."""
        last = statement.end_lineno
        assert last is not None  # the parser sets it
        return self.between(first_line(statement), last)

    def between(self, first: int, last: int) -> bool:
        """Whether one of the lines is among these."""
        return self._before[last] != self._before[first - 1]


@contextmanager
def collection_paused() -> Iterator[None]:
    """Suspend the cyclic garbage collector, where it runs.

    A syntax tree is a great many objects that all stay alive while it is used: collections in
    between find nothing and take about half of the time.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def first_line(statement: ast.stmt) -> int:
    """Where a statement begins, or the expression of its first decorator."""
    decorators: list[ast.expr] | None = getattr(statement, "decorator_list", None)
    return decorators[0].lineno if decorators else statement.lineno


def node_span(node: ast.expr | ast.stmt) -> Span:
    """Lines and columns of a parsed node."""
    assert node.end_lineno is not None  # the parser sets both
    assert node.end_col_offset is not None
    return (node.lineno, node.end_lineno, node.col_offset, node.end_col_offset)


def _byte_lines(source: bytes) -> Iterator[bytes]:
    r"""Lines by Python's own line ends, each closed by ``\n``: a lone ``\r`` ends one too."""
    for match in _BYTE_LINE.finditer(source):
        if match.group():
            yield match.group().rstrip(b"\r\n") + b"\n"


def _line_starts(text: str) -> tuple[int, ...]:
    if "\r" in text:
        return (0, *(match.end() for match in _LINE_END.finditer(text)), len(text))
    lengths = [len(line) + 1 for line in text.split("\n")]
    lengths[-1] -= 1  # nothing ends the last line
    return (0, *itertools.accumulate(lengths))


def _unusable(reason: str) -> UnusableSourceError:
    return UnusableSourceError(
        f"The source cannot be used: {reason}. Repair the file or leave it out.", reason=reason
    )


def one_line(text: str) -> str:
    """Text with runs of white space as one space, cut to a fixed length."""
    text = " ".join(text.split())
    return text if len(text) <= MAX_SHOWN_CHARACTERS else text[: MAX_SHOWN_CHARACTERS - 1] + "…"
