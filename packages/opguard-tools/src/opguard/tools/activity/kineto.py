"""Reads the rows of Kineto traces: Chrome JSON, plain or gzipped, one row at a time.

Writers of several torch versions leave JSON that no parser takes: names with bare quotes or lone
backslashes, ``nan`` and ``inf``, bytes that are not UTF-8, files that end in the middle. Rows are
therefore cut out of the text one by one, and a damaged row costs at most itself.
"""

from __future__ import annotations

import codecs
import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, NamedTuple

from opguard.tools.protocol.errors import OpGuardError

_CHUNK: Final = 1 << 20
_MAX_HEADER: Final = 64 << 20
_MAX_ROW: Final = 16 << 20
_GZIP_MAGIC: Final = b"\x1f\x8b"

_ROWS = re.compile(r'"traceEvents"\s*:\s*\[')
_BETWEEN = re.compile(r"[\s,]*")
# The end of one row and the begin of the next, or of the list: the writer gives every row a phase
# as its first or, after its id, category or name, one of its first fields.
_BOUNDARY = re.compile(r'\}\s*(?=,\s*\{\s*"(?:ph|cat|name|id|pid|ts)"|\]\s*(?:,\s*"|\}|$))')
_BARE_NUMBER = re.compile(r"(?<=[:\[,])(\s*)(?:[-+]?(?:inf(?:inity)?|nan)|N/A)(?=\s*[,\]}])", re.I)
_LONE_BACKSLASH = re.compile(r'\\(?!["\\/bfnrt]|u[0-9a-fA-F]{4})')
_NAME = re.compile(r'("name"\s*:\s*")(.*?)("\s*(?:,\s*"\w+"\s*:|\}))', re.S)
_BARE_QUOTE = re.compile(r'(?<!\\)"')

_NO_TIME = "rows left out: a time is missing, not a number, not positive or negative"
_TRUNCATED = "the file ends in the middle; rows until there are read"


class KinetoError(OpGuardError):
    """A file is no Kineto trace, or so damaged that none of its rows can be read."""

    error_type = "kineto_unreadable"


class Row(NamedTuple):
    """One row of a trace.

    Attributes:
        phase: ``X`` for an interval, ``s`` and ``f`` for the ends of an arrow, and others.
        category: In lower case, such as ``kernel``.
        name: Of the kernel, function or operator.
        thread: Process and thread; of device activity, device and stream.
        start: Nanoseconds on the trace's own clock.
        duration: Nanoseconds; 0 for rows that are no interval.
        id: Of an arrow, which both of its ends carry; None for other rows.
        args: What else the writer says, such as ``correlation``.
    """

    phase: str
    category: str
    name: str
    thread: tuple[str, str]
    start: int
    duration: int
    id: object
    args: dict[str, Any]


def read_rows(path: Path, warnings: Counter[str]) -> Iterator[Row]:
    """The rows of a trace in the order of the file, with times in nanoseconds.

    Args:
        path: Chrome JSON as ``torch.profiler`` exports it; gzip is recognised by its first bytes.
        warnings: Receives what had to be repaired or left out, and how often.

    Raises:
        KinetoError: There is no such file, it cannot be read, or it holds no list of rows.
    """
    number = 0
    for number, text in enumerate(_row_texts(path, warnings), 1):  # noqa: B007
        value = _parse(text, warnings) if isinstance(text, str) else text
        row = _row(value) if isinstance(value, dict) else None
        if row is not None:
            yield row
        elif isinstance(value, dict) and value.get("ph") == "X":
            warnings[_NO_TIME] += 1
    if number == 0 and warnings[_TRUNCATED]:
        raise KinetoError(f"{path} ends before its first row", path=path)


def _row_texts(path: Path, warnings: Counter[str]) -> Iterator[Any]:
    """Each row: parsed where it is well-formed, else its text."""
    decoder = json.JSONDecoder(strict=False, parse_float=Decimal, parse_constant=lambda _: None)
    chunks = _text(path, warnings)
    buffer, position = _up_to_rows(path, chunks)
    ended = False
    while True:
        between = _BETWEEN.match(buffer, position)
        position = between.end() if between is not None else position
        if position < len(buffer):
            if buffer[position] == "]":
                return
            try:
                value, position = decoder.raw_decode(buffer, position)
            except (json.JSONDecodeError, RecursionError):
                boundary = _BOUNDARY.search(buffer, position)
                if boundary is not None:
                    yield buffer[position : boundary.start() + 1]
                    position = boundary.start() + 1
                    continue
            else:
                yield value
                continue
        if ended:
            warnings[_TRUNCATED] += 1
            return
        if len(buffer) - position > _MAX_ROW:
            raise KinetoError(
                f"{path} has a row of more than {_MAX_ROW >> 20} MiB without an end; "
                "it is no Kineto trace, or damaged",
                path=path,
            )
        chunk = next(chunks, None)
        ended = chunk is None
        buffer, position = buffer[position:] + (chunk or ""), 0


def _up_to_rows(path: Path, chunks: Iterator[str]) -> tuple[str, int]:
    """The first text with the begin of the list of rows in it, and where the list begins."""
    buffer = ""
    for chunk in chunks:
        buffer += chunk
        if buffer.lstrip("\ufeff \t\r\n").startswith("["):
            return buffer, buffer.index("[") + 1
        found = _ROWS.search(buffer)
        if found is not None:
            return buffer, found.end()
        if len(buffer) > _MAX_HEADER:
            break
    raise KinetoError(
        f'{path} is no Kineto trace: it has no list "traceEvents"; give a file that '
        "torch.profiler's export_chrome_trace wrote",
        path=path,
    )


def _text(path: Path, warnings: Counter[str]) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    try:
        with path.open("rb") as stored:
            packed = stored.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
            stored.seek(0)
            file = gzip.GzipFile(fileobj=stored) if packed else stored
            while data := file.read1(_CHUNK):
                text = decoder.decode(data)
                if "\ufffd" in text:
                    warnings["bytes that are not UTF-8 were replaced"] += text.count("\ufffd")
                if text:
                    yield text
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        # What was unpacked until here has been handed out; the rest is as good as cut off.
        warnings[f"the gzip stream is damaged ({error})"] += 1
    except OSError as error:
        raise KinetoError(f"{path} cannot be read: {error.strerror}", path=path) from error


def _parse(text: str, warnings: Counter[str]) -> object:
    """A damaged row, repaired; None where that fails."""
    text = _BARE_NUMBER.sub(r"\1null", text)
    text = _LONE_BACKSLASH.sub(r"\\\\", text)
    text = _NAME.sub(lambda m: m[1] + _BARE_QUOTE.sub(r"\"", m[2]) + m[3], text)
    try:
        value = json.loads(text, strict=False, parse_float=Decimal, parse_constant=lambda _: None)
    except (ValueError, RecursionError):
        warnings["rows left out: they are not JSON and could not be repaired"] += 1
        return None
    warnings["rows repaired"] += 1
    return value


def _row(value: dict[str, Any]) -> Row | None:
    """A row with usable times, else None."""
    phase = value.get("ph")
    start, duration = _nanoseconds(value.get("ts")), _nanoseconds(value.get("dur", 0))
    if start is None or duration is None or start <= 0 or duration < 0:
        return None
    if not isinstance(phase, str) or (phase == "X" and "dur" not in value):
        return None
    args = value.get("args")
    return Row(
        phase,
        str(value.get("cat", "")).lower(),
        str(value.get("name", "")),
        (str(value.get("pid")), str(value.get("tid"))),
        start,
        duration,
        value.get("id"),
        args if isinstance(args, dict) else {},
    )


def _nanoseconds(microseconds: object) -> int | None:
    """Exact to the writer's three decimals, which binary fractions of such sizes are not."""
    if isinstance(microseconds, bool) or not isinstance(microseconds, (int, Decimal)):
        return None
    if isinstance(microseconds, Decimal) and not microseconds.is_finite():
        return None
    return int(microseconds * 1000)
