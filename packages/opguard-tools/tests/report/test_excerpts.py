from __future__ import annotations

from opguard.tools.report.excerpts import (
    DiffLine,
    ExcerptLine,
    decode_source,
    excerpt,
    excerpt_without_call,
    source_diff,
)

LINES = [f"line {number}" for number in range(1, 41)]
SOURCES = {"a.py": "\n".join(LINES).encode()}


def place(line: int, end_line: int | None = None) -> dict[str, object]:
    return {"file": "a.py", "line": line, "end_line": end_line or line}


def test_excerpt_marks_the_call_and_shows_six_lines_around() -> None:
    found = excerpt(SOURCES, place(20, 21))

    assert [line.number for line in found] == list(range(14, 28))
    assert [line.number for line in found if line.marked] == [20, 21]


def test_excerpt_stops_at_both_ends_of_the_file() -> None:
    assert [line.number for line in excerpt(SOURCES, place(1))] == list(range(1, 8))
    assert [line.number for line in excerpt(SOURCES, place(40))] == list(range(34, 41))


def test_a_file_that_was_not_captured_has_no_excerpt() -> None:
    assert excerpt({}, place(1)) == []
    assert excerpt(SOURCES, None) == []


def test_operator_of_a_library_shows_the_librarys_line_or_else_the_callsite() -> None:
    operator = {"file": "/lib/l.py", "name": "l.py", "line": 2, "end_line": 2, "library": True}
    operator["callsite"] = place(3)

    without = excerpt(SOURCES, operator)
    found = excerpt({**SOURCES, "l.py": b"first\nsecond"}, operator)

    assert [line for line in without if line.marked] == [ExcerptLine(3, "line 3", True)]
    assert [line for line in found if line.marked] == [ExcerptLine(2, "second", True)]


def test_where_a_missing_call_would_be_is_shown_without_mark() -> None:
    other = {"a.py": "\n".join([*LINES[:20], "extra()", *LINES[20:]]).encode()}

    found = excerpt_without_call(SOURCES, other, place(21))

    assert [line.number for line in found] == list(range(15, 27))
    assert not any(line.marked for line in found)


def test_diff_shows_the_changed_block_with_context() -> None:
    other = {"a.py": "\n".join([*LINES[:19], "line twenty", *LINES[20:]]).encode()}

    found = source_diff(SOURCES, other, {"baseline": place(20), "candidate": place(20)})

    assert found == [
        DiffLine("hunk", "@@ baseline line 17 · candidate line 17 @@"),
        *(DiffLine("context", f"line {n}") for n in (17, 18, 19)),
        DiffLine("removed", "line 20"),
        DiffLine("added", "line twenty"),
        *(DiffLine("context", f"line {n}") for n in (21, 22, 23)),
    ]


def test_diff_keeps_the_hunks_nearest_to_the_call() -> None:
    lines = [f"{number}" for number in range(2000)]
    changed = [f"{line}!" if number % 20 == 0 else line for number, line in enumerate(lines)]
    sides = ({"a.py": "\n".join(text).encode()} for text in (lines, changed))

    found = source_diff(*sides, {"baseline": place(1001), "candidate": place(1001)})

    assert DiffLine("added", "1000!") in found
    assert DiffLine("added", "0!") not in found


def test_source_is_decoded_as_it_declares() -> None:
    assert decode_source("# coding: latin-1\nä = 1\r\nb = 2\r".encode("latin-1")) == [
        "# coding: latin-1", "ä = 1", "b = 2", "",
    ]  # fmt: skip
    assert decode_source(b"# coding: no-such\nx") == ["# coding: no-such", "x"]
    assert decode_source(b"\xef\xbb\xbfx = 1") == ["x = 1"]
