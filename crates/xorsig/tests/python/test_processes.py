"""Captures of processes that are killed, and of processes that fork."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import xorsig

Write = Callable[[xorsig.CaptureWriter, int], None]


def test_forked_child_leaves_the_capture_alone(capture: Any, write_calls: Write) -> None:
    """The child may do anything with the writer, also drop it."""
    writer = capture.writer(max_batch_records=4)
    write_calls(writer, 3)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            write_calls(writer, 50)
            writer.flush()
            silent = writer.close() == writer.stats() and writer.stats()["batches"] == 0
            del writer
            status = 0 if silent else 2
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    write_calls(writer, 2)
    assert writer.close()["records"] == 20
    assert capture.verify(expected_records=20)["records"] == 20


def test_child_of_a_child_can_have_its_own_writer(capture: Any, write_calls: Write) -> None:
    parent = capture.writer()
    write_calls(parent, 1)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            own = xorsig.CaptureWriter(
                capture.root / "child", capture.staging, capture_id=capture.capture_id, rank=1
            )
            write_calls(own, 2)
            status = 0 if own.close()["records"] == 8 else 2
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert parent.close()["records"] == 4
    assert xorsig.verify_capture(capture.root / "child", capture.capture_id, 1)["records"] == 8


FORKING = """
    import os
    import sys
    from pathlib import Path

    import xorsig

    directory, staging, capture_id = sys.argv[1:]
    writer = xorsig.CaptureWriter(
        directory, staging, capture_id=capture_id, rank=0, max_batch_records=10
    )
    name = writer.intern("torch.mm")
    for fork in range(20):
        # Five batches wait or are being written as the process forks.
        for _ in range(50):
            writer.mark(1, 0, name, "text")
        child = os.fork()
        if child == 0:
            os._exit(0)
        # The name of the program, in parentheses, may hold blanks.
        threads = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[17])
        assert threads == 1, f"{threads} threads after fork {fork}"
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert writer.close()["records"] == 1000
"""


def interpreters() -> list[str]:
    """This interpreter, and the later ones of the machine that can load the extension as it is."""
    found = [sys.executable]
    for minor in range(sys.version_info.minor + 1, sys.version_info.minor + 4):
        path = shutil.which(f"python3.{minor}")
        # A version manager's stand-in exists for versions that are not selected, too.
        if path and subprocess.run([path, "-c", ""], capture_output=True).returncode == 0:
            found.append(path)
    return found


@pytest.mark.parametrize("interpreter", interpreters())
def test_single_threaded_program_forks_as_without_a_writer(capture: Any, interpreter: str) -> None:
    """From CPython 3.12 on, a fork of a process with several threads warns."""
    if not Path("/proc/self/stat").exists():
        pytest.skip("threads are counted under /proc on Linux only")
    script = textwrap.dedent(FORKING)
    package = Path(xorsig.__file__).parents[1]
    subprocess.run(
        [
            interpreter,
            "-W",
            "error",
            "-c",
            script,
            str(capture.directory),
            str(capture.staging),
            capture.capture_id,
        ],
        check=True,
        env={"PYTHONPATH": str(package)},
    )
    assert capture.verify(expected_records=1000)["last_tick"] == 1000


def test_writer_thread_leaves_signals_to_the_process(capture: Any) -> None:
    tasks = Path("/proc/self/task")
    if not tasks.is_dir():
        pytest.skip("threads are listed under /proc on Linux only")
    writer = capture.writer(max_batch_records=1)
    masks: dict[str, int] = {}
    # The thread lives while it has something to publish.
    while "xorsig-writer" not in masks:
        writer.mark(0, 0, 0, "")
        for task in tasks.iterdir():
            with contextlib.suppress(OSError):
                fields = dict(
                    line.split(":\t", 1)
                    for line in (task / "status").read_text().splitlines()
                    if ":\t" in line
                )
                masks[fields["Name"]] = int(fields["SigBlk"], 16)
    assert masks["xorsig-writer"] >> (signal.SIGINT - 1) & 1
    assert masks["xorsig-writer"] >> (signal.SIGTERM - 1) & 1
    main = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert main == set(), "the mask of the recording thread is put back"
    writer.close()
