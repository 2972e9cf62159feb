"""Progress of a long command on stderr: a live line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, TextIO

from opguard.tools.launch.progress import Progress

if TYPE_CHECKING:
    from rich.status import Status

_PLAIN_INTERVAL_SECONDS = 15.0
_LIVE_INTERVAL_SECONDS = 0.5


class Display:
    """Shows one step at a time.

    Attributes:
        interval_seconds: How often ``update`` is worth calling.
    """

    def __init__(self, steps: int, stream: TextIO | None = None) -> None:
        """Show progress over a number of steps.

        Args:
            steps: How many steps there will be.
            stream: Where to; stderr by default. A live line is used if it is a terminal.
        """
        self._stream = sys.stderr if stream is None else stream
        self._live = self._stream.isatty()
        self.interval_seconds = _LIVE_INTERVAL_SECONDS if self._live else _PLAIN_INTERVAL_SECONDS
        self._steps = steps
        self._step = 0
        self._title = ""
        self._started = 0.0
        self._status: Status | None = None

    def note(self, text: str) -> None:
        """One line that stays."""
        print(f"opguard: {text}", file=self._stream, flush=True)

    def start(self, title: str) -> None:
        """A step begins."""
        self._step += 1
        self._title = f"[{self._step}/{self._steps}] {title}"
        self._started = time.monotonic()
        if self._live:
            # Here, not above: it is a large import, and most runs have no terminal.
            from rich.console import Console
            from rich.status import Status
            from rich.text import Text

            self._status = Status(Text(self._title), console=Console(file=self._stream))
            self._status.start()
        else:
            self.note(f"{self._title} ...")

    def update(self, progress: Progress) -> None:
        """The step goes on."""
        text = f"{self._title}: {self._elapsed()}, {progress.describe()}"
        if self._status is None:
            self.note(text)
            return
        from rich.text import Text

        # Text, not a string: brackets in a log line are not markup.
        self._status.update(Text(text, overflow="ellipsis", no_wrap=True))

    def finish(self, outcome: str) -> None:
        """The step is over."""
        if self._status is not None:
            self._status.stop()
            self._status = None
        self.note(f"{self._title}: {outcome} after {self._elapsed()}")

    def _elapsed(self) -> str:
        return f"{time.monotonic() - self._started:.0f} s"
