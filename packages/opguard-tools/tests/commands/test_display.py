from __future__ import annotations

import io

from opguard.tools.commands.display import Display
from opguard.tools.launch.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plain_stream_gets_one_line_per_event() -> None:
    stream = io.StringIO()
    display = Display(2, stream)

    display.note("two checkouts")
    display.start("baseline: discover")
    display.update(Progress(batches=1, last_line="loss [0.5]"))
    display.finish("done")

    assert stream.getvalue() == (
        "opguard: two checkouts\n"
        "opguard: [1/2] baseline: discover ...\n"
        "opguard: [1/2] baseline: discover: 0 s, 1 batch published, log: loss [0.5]\n"
        "opguard: [1/2] baseline: discover: done after 0 s\n"
    )


def test_terminal_gets_a_live_line_and_a_last_line_that_stays() -> None:
    stream = Terminal()
    display = Display(1, stream)

    display.start("compare")
    display.update(Progress(batches=0, last_line="[bold]not markup"))
    display.finish("done")

    assert display.interval_seconds < 1
    assert stream.getvalue().endswith("opguard: [1/1] compare: done after 0 s\n")
