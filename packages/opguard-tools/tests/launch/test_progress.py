from __future__ import annotations

import io
from pathlib import Path

from opguard.tools.launch.progress import (
    Progress,
    TextReporter,
    last_lines,
    quote_log,
    read_progress,
)


def test_last_lines_are_the_last_that_are_not_blank(tmp_path: Path) -> None:
    log = tmp_path / "workload.log"
    log.write_bytes(b"one\n\ntwo\nthree\n\n")

    assert last_lines(log, 2) == ["two", "three"]
    assert last_lines(log, 9) == ["one", "two", "three"]


def test_rewritten_progress_bar_counts_as_its_last_state(tmp_path: Path) -> None:
    log = tmp_path / "workload.log"
    log.write_bytes(b"step 1\rstep 2\rstep 3\nwindows line\r\n")

    assert last_lines(log, 2) == ["step 3", "windows line"]


def test_control_sequences_and_invalid_bytes_do_not_reach_a_terminal(tmp_path: Path) -> None:
    log = tmp_path / "workload.log"
    log.write_bytes(b"\x1b[31mred\x1b[0m \x07bell \xff\n")

    assert last_lines(log, 1) == ["red bell �"]


def test_only_the_end_of_a_huge_log_is_read(tmp_path: Path) -> None:
    log = tmp_path / "workload.log"
    log.write_bytes(b"x" * 5_000_000 + b"\nlast\n")

    lines = last_lines(log, 2)

    assert lines[-1] == "last"
    assert len(lines[0]) == 200


def test_missing_log_has_no_lines_and_is_called_empty(tmp_path: Path) -> None:
    log = tmp_path / "workload.log"

    assert last_lines(log, 3) == []
    assert quote_log(log) == f"\nThe log {log} is empty."


def test_quoted_log_names_the_file_and_its_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "workload.log"
    log.write_bytes(b"a\nb\nc\n")

    assert quote_log(log, 2) == f"\nLast lines of {log}:\n  | b\n  | c"


def test_progress_counts_published_batches_of_all_ranks(tmp_path: Path) -> None:
    for name in ("rank-0/batch-00000000.xsb", "rank-1/batch-00000000.xsb", "rank-1/x.tmp"):
        path = tmp_path / "capture" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    (tmp_path / "workload.log").write_bytes(b"loss 0.5\n")

    assert read_progress(tmp_path) == Progress(batches=2, last_line="loss 0.5")


def test_progress_of_an_operation_that_has_not_begun_is_nothing(tmp_path: Path) -> None:
    assert read_progress(tmp_path / "missing") == Progress(batches=0, last_line="")


def test_text_reporter_writes_one_plain_line_per_event() -> None:
    stream = io.StringIO()
    reporter = TextReporter("trace", stream)

    reporter.heartbeat(12.4, Progress(batches=3, last_line="loss 0.5"))
    reporter.heartbeat(27.0, Progress(batches=1, last_line=""))
    reporter.note("ending it")

    assert stream.getvalue() == (
        "opguard trace: 12 s, 3 batches published, log: loss 0.5\n"
        "opguard trace: 27 s, 1 batch published\n"
        "opguard trace: ending it\n"
    )
