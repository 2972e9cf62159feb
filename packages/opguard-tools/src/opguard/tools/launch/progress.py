"""How far a running workload is, read from its output directory, and the telling of it."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TextIO

from opguard.tools.formats import CAPTURE_NAME, LOG_NAME

_TAIL_BYTES = 16_384  # enough for the last lines of any log that people read
_LINE_CHARACTERS = 200
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f]")
"""Terminal control sequences and control characters, which must not reach a terminal twice."""


@dataclass(frozen=True)
class Progress:
    """State of a running capture.

    Attributes:
        batches: Batches published so far, all ranks together.
        last_line: Last line that the workload printed, or an empty string.
    """

    batches: int
    last_line: str

    def describe(self) -> str:
        """``3 batches published, log: loss 0.5``."""
        text = f"{self.batches} {'batch' if self.batches == 1 else 'batches'} published"
        return f"{text}, log: {self.last_line}" if self.last_line else text


class Reporter(Protocol):
    """Receives the state of an operation from time to time."""

    interval_seconds: float

    def heartbeat(self, elapsed_seconds: float, progress: Progress) -> None:
        """Called about every ``interval_seconds`` while the workload runs."""

    def note(self, message: str) -> None:
        """Called for an event worth a line."""


def read_progress(output: Path) -> Progress:
    """Count the published batches and read the log's last line; a missing file counts as none."""
    lines = last_lines(output / LOG_NAME, 1)
    return Progress(
        batches=len(list_batches(output / CAPTURE_NAME)), last_line=lines[0] if lines else ""
    )


def list_batches(capture: Path, rank: int | None = None) -> list[Path]:
    """Published batch files of a rank, or of all, in order of rank directory and sequence."""
    return sorted(capture.glob(f"rank-{'*' if rank is None else rank}/batch-*.xsb"))


def last_lines(path: Path, count: int) -> list[str]:
    """The last lines of a log that are not blank, fit to be shown.

    Args:
        path: The log; may be missing.
        count: At most that many lines.

    Returns:
        Lines without control sequences, each cut after 200 characters.
    """
    try:
        with path.open("rb") as log:
            log.seek(0, os.SEEK_END)
            log.seek(max(0, log.tell() - _TAIL_BYTES))
            text = log.read().decode("utf-8", "replace")
    except OSError:
        return []
    # A progress bar rewrites its line with carriage returns: the last state is the line.
    states = (line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    lines = [_CONTROL.sub("", state).rstrip() for state in states]
    return [line[:_LINE_CHARACTERS] for line in lines if line][-count:]


def quote_log(path: Path, count: int = 15) -> str:
    """The log's name and last lines, as the end of an error message."""
    lines = last_lines(path, count)
    if not lines:
        return f"\nThe log {path} is empty."
    return f"\nLast lines of {path}:" + "".join(f"\n  | {line}" for line in lines)


class TextReporter:
    """Writes plain lines to a stream; never moves a cursor, so a file is as good as a terminal."""

    def __init__(
        self, name: str, stream: TextIO | None = None, interval_seconds: float = 15.0
    ) -> None:
        """Report under a name.

        Args:
            name: First word of each line, such as ``trace``.
            stream: Where to write; stderr by default.
            interval_seconds: Seconds between heartbeats.
        """
        self.interval_seconds = interval_seconds
        self._name = name
        self._stream = sys.stderr if stream is None else stream

    def heartbeat(self, elapsed_seconds: float, progress: Progress) -> None:
        """One line with time, batches and the workload's last line."""
        self.note(f"{elapsed_seconds:.0f} s, {progress.describe()}")

    def note(self, message: str) -> None:
        """One line."""
        print(f"opguard {self._name}: {message}", file=self._stream, flush=True)
